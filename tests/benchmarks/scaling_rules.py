"""Days of one service under scaling rules: replica-hours, share of slow requests, and changes.

``python tests/benchmarks/scaling_rules.py [SEEDS [PART…]]`` prints a table for each kind of day of
``service_days.py`` whose name has one of the parts: means over the seeds. The rules of HPA and KEDA are
written from their documented formulas; neither runs here. The policy is that of the loop;
`Loop` is the loop itself with its planner, for one day (``… SEEDS loop``). With perfect foresight, the plan
for each true rate is ordered a start-up time before.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from service_days import BIN_S, DAY_S, KINDS, PERIOD_S, Day, Rule, Seen, Service, day_of, simulated

from optimizer import load_system
from optimizer.candidates import SizingMemo
from optimizer.stabilisation.arrivals import ArrivalCount
from optimizer.stabilisation.backlog import ReplicaCapacity
from optimizer.stabilisation.decisions import ReplicaStatus
from optimizer.stabilisation.demand import DemandMemory
from optimizer.studies.replay.scaled_server import ScaledServer
from rest_server.loop.config import LoopConfig
from rest_server.loop.deciding import CycleInputs, CycleOutcome, ExistingReplicas, LoopState, decide
from rest_server.loop.loads import LoadMemory
from rest_server.loop.window import Counts, Window, summed

WINDOW_S = 60.0
HEADROOMS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
MAIN = KINDS["calm day"].form
DOCUMENT: dict[str, Any] = {
    "accelerators": [{"name": "GPU", "type": "GPU", "cost": 100}],
    "count": [{"type": "GPU", "count": MAIN.most}],
    "models": [
        {"name": "m", "acc": "GPU", "maxBatchSize": MAIN.slots, "decodeParms": {"alpha": 200, "beta": 25}}
    ],
    "serviceClasses": [{"name": "c", "priority": 1, "modelTargets": [{"model": "m", "slo-ttft": 200}]}],
    "servers": [
        {
            "name": "s", "class": "c", "model": "m",
            "currentAlloc": {"load": {"arrivalRate": 900, "avgInTokens": 0, "avgOutTokens": 2}},
        }
    ],
}  # fmt: skip
"""Two output tokens take one token time, (200 + 25 n) ms; their length does not vary."""


def queue_depth(slots: int) -> Rule:
    """Queue above 100 or p95 above 700 ms: two more; below 20 and utilisation below 40 %: one less."""

    def rule(seen: Seen) -> int:
        if seen.waiting > 100 or seen.p95_s > 0.7:
            return seen.desired + 2
        busy = seen.mean_running / (slots * max(1, seen.ready))
        return seen.desired - (seen.waiting < 20 and busy < 0.4)

    return rule


def hpa(*metrics: tuple[Callable[[Seen], float], float]) -> Rule:
    """HorizontalPodAutoscaler with AverageValue metrics, and its defaults.

    Desired = ceil(sum / target) outside of a tolerance of 10 %, the largest of several metrics; up by at most
    the larger of 100 % and 4 in 15 s; down to the largest of the last 300 s.
    """
    past: deque[tuple[float, int]] = deque()

    def rule(seen: Seen) -> int:
        found = []
        for metric, target in metrics:
            ratio = metric(seen) / (target * seen.desired)
            found.append(seen.desired if abs(ratio - 1) <= 0.1 else math.ceil(metric(seen) / target))
        wanted = min(max(found), seen.desired + max(4, seen.desired))
        past.append((seen.now_s, wanted))
        while past[0][0] < seen.now_s - 300:
            past.popleft()
        return max(wanted, min(seen.desired, max(number for _, number in past)))

    return rule


def policy(form: Service, period_s: float = PERIOD_S, **more: Any) -> Rule:
    """Return the policy of the loop as a rule for a service."""
    capacity = ReplicaCapacity(form.within_rps, form.most_rps, form.slots)
    server = ScaledServer(
        capacity, form.startup_s, form.most, is_common=form.is_common, period_s=period_s, **more
    )
    waiting = 0

    def rule(seen: Seen) -> int:
        nonlocal waiting
        growth, waiting = seen.waiting - waiting, seen.waiting
        there = ReplicaStatus(seen.ready, seen.desired - seen.ready)
        return server.replicas(seen.now_s, seen.started + growth, waiting, there, seen.of_replicas)

    return rule


def completions(form: Service) -> Rule:
    """Return the policy with completions as arrivals, and without a queue."""
    found = policy(form)
    return lambda seen: found(seen._replace(started=seen.completed, waiting=0, of_replicas=None))


def foresight(form: Service, day: Day, headroom: float = 0.0) -> Rule:
    """Return a rule that knows all later rates."""
    plan = np.ceil(day.rates_rps * (1 + headroom) / form.within_rps - 1e-9).astype(int)

    def rule(seen: Seen) -> int:
        first, end_s = round(seen.now_s / BIN_S), seen.now_s + form.startup_s + PERIOD_S
        return int(plan[min(first, len(plan) - 1) : math.ceil(end_s / BIN_S)].max())

    return rule


Maker = Callable[[Service, Day], Rule]
REACTIVE: Mapping[str, Callable[[int], Rule]] = {
    "queue-depth rule": queue_depth,
    "HPA, 2 waiting": lambda _: hpa((lambda seen: seen.waiting, 2.0)),
    "HPA, 80 % of slots running": lambda slots: hpa((lambda seen: seen.running, 0.8 * slots)),
    "HPA, running and waiting": lambda slots: hpa((lambda seen: seen.running + seen.waiting, 0.8 * slots)),
    "KEDA, KV usage 60 % and 30 waiting": lambda slots: hpa(
        (lambda seen: seen.running / slots, 0.6), (lambda seen: seen.waiting, 30.0)
    ),
}
"""Rules that react to queues and running requests, by name: a new rule for a number of slots."""
RULES: Mapping[str, Maker] = {
    **{name: lambda form, _, of=of: of(form.slots) for name, of in REACTIVE.items()},  # type: ignore[misc]
    "plan for completions": lambda form, _: completions(form),
    **{f"policy, headroom {h:g}": lambda form, _, h=h: policy(form, headroom=h) for h in HEADROOMS},  # type: ignore[misc]
    "perfect foresight": foresight,
}
"""All rules, by name."""


def with_headroom(share: float) -> dict[str, Any]:
    """Return the document with headroom for more load than is measured."""
    (server,) = DOCUMENT["servers"]
    return {**DOCUMENT, "servers": [{**server, "headroomShare": share}]}


@dataclass
class Loop:
    """The loop itself, by its pure function, for the service of the calm day."""

    config: LoopConfig
    state: LoopState = field(default_factory=LoopState)
    steps: deque[Counts] = field(default_factory=lambda: deque(maxlen=round(WINDOW_S / PERIOD_S)))
    memo: SizingMemo = field(default_factory=lambda: SizingMemo(2**15))
    waiting: int = 0
    outcome: CycleOutcome | None = None
    """Result of the last plan."""
    system: Any = field(default_factory=lambda: load_system(DOCUMENT))

    def after_a_day(self, day: Day) -> "Loop":
        """Let the forecast learn the season from the arrivals of another day."""
        memory = DemandMemory()
        counts = np.bincount((day.arrivals / PERIOD_S).astype(int), minlength=round(DAY_S / PERIOD_S))
        for k, number in enumerate(counts.tolist(), 1):
            count = ArrivalCount(k * PERIOD_S - DAY_S, PERIOD_S, number)
            memory = memory.after(count, MAIN.startup_s, self.config.forecast_settings)
        self.state = LoopState(loads={"s": LoadMemory(demand=memory)})
        return self

    def __call__(self, seen: Seen) -> int:
        """Return the desired replicas."""
        growth, self.waiting = seen.waiting - self.waiting, seen.waiting
        counts = Counts(PERIOD_S, seen.started, growth, completed=seen.completed)
        self.steps.append(counts)
        window = Window(
            summed(self.steps), seen.waiting, seen.running, max(1, seen.ready), max(1, seen.ready),
            last=ArrivalCount(seen.now_s, PERIOD_S, counts.arrivals),
        )  # fmt: skip
        there = {"s": {"GPU": ExistingReplicas(seen.desired, seen.ready)}}
        inputs = CycleInputs(seen.now_s, {"s": window}, there)
        self.outcome = decide(self.system, self.config, self.state, inputs, self.memo)
        self.state = self.outcome.state
        return self.outcome.workloads[0].replicas


def config(**more: Any) -> LoopConfig:
    """Return the configuration of the loop."""
    source = {"kind": "scrape", "url": "http://-"}
    given = {"system": "-", "source": source, "startup": MAIN.startup_s, "queue": "common", **more}
    return LoopConfig.model_validate(given)


def table(kind: str, seeds: int, rules: Mapping[str, Maker]) -> None:
    """Print the table of a kind of day."""
    print(f"\n{kind}\n\n| rule | replica-hours | slow | above 5 s | changes |\n|---|---:|---:|---:|---:|")
    form, pods = KINDS[kind].form, KINDS[kind].pods
    days = [day_of(KINDS[kind], seed) for seed in range(1, seeds + 1)]
    for name, made in rules.items():
        found = np.array([simulated(form, day, made(form, day), pods) for day in days]).mean(axis=0)
        print(f"| {name} | {found[0]:.2f} | {found[1]:.2%} | {found[2]:.2%} | {found[3]:.0f} |", flush=True)


def main(seeds: int, parts: Sequence[str]) -> None:
    """Print the tables."""
    if "loop" in parts:
        whole: dict[str, Maker] = {
            "loop": lambda *_: Loop(config()),
            "loop without forecast": lambda *_: Loop(config(forecast="none")),
            "loop that knows the day": lambda *_: Loop(config()).after_a_day(day_of(KINDS["calm day"], 99)),
            "loop, 30 % headroom": lambda *_: Loop(config(), system=load_system(with_headroom(0.3))),
        }
        table("bursty day", seeds, whole)
        return
    for kind in KINDS:
        if not parts or any(part in kind for part in parts):
            table(kind, seeds, RULES)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:])
