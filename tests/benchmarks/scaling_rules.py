# ruff: noqa: ANN001, ANN201  compiled functions have the types of their arguments
"""A day of one service under scaling rules: share of slow requests and replica-hours.

Replicas of four slots share one queue; a request with n in its batch takes (200 + 25 n) ms times a lognormal
work of mean 1 and CV 0.5; replicas start in 150 s. The day has 15 to 100 requests/s, with and without three
bursts of factor 1.8 for 20 minutes that no forecast knows. The rules of HPA and KEDA are written from their
documented formulas; neither runs here. ``python tests/benchmarks/scaling_rules.py [SEEDS [RULE…]]`` prints
the table of docs/loop.md: means over the seeds, with the largest deviation of a seed.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from optimizer import load_system
from optimizer.candidates import SizingMemo
from rest_server.loop.config import LoopConfig
from rest_server.loop.deciding import CycleInputs, CycleOutcome, ExistingReplicas, LoopState, decide
from rest_server.loop.forecast import RateForecast
from rest_server.loop.loads import LoadMemory
from rest_server.loop.window import Counts, Window, summed

SLOTS, BASE_S, SLOPE_S, START_S, DAY_S = 4, 0.2, 0.025, 150.0, 86_400.0
SLOW_S, LOST_S = 0.7, 5.0
PERIOD_S, WINDOW_S = 15.0, 60.0
MAX_PODS = 48
DOCUMENT: dict[str, Any] = {
    "accelerators": [{"name": "GPU", "type": "GPU", "cost": 100}],
    "count": [{"type": "GPU", "count": MAX_PODS}],
    "models": [
        {"name": "m", "acc": "GPU", "maxBatchSize": SLOTS, "decodeParms": {"alpha": 200, "beta": 25}}
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


@njit(cache=True)
def advance(  # type: ignore[no-untyped-def]  # noqa: C901, PLR0912
    until_s, now_s, arrivals, works, place, queue, head, tail, left, who, count, seen_s, ready_s, end_s
):
    """Run the service until a time; return the next request, the ends of the queue, and counts.

    The last of them is the sum over requests of their time in batches [s].
    """
    started = completed = 0
    busy_s = 0.0
    while True:
        next_s, pod = until_s, -1
        for p in range(len(count)):
            if count[p]:
                least = math.inf
                for k in range(count[p]):
                    least = min(least, left[p, k])
                due_s = seen_s[p] + least * (BASE_S + SLOPE_S * count[p])
                if due_s < next_s:
                    next_s, pod = due_s, p
            elif tail > head and now_s < ready_s[p] < next_s:
                next_s, pod = ready_s[p], -2
        arrives = place < len(arrivals) and arrivals[place] < next_s
        if arrives:
            next_s, pod = arrivals[place], -3
        busy_s += (next_s - now_s) * count.sum()
        now_s = next_s
        if pod == -1:
            break
        if pod >= 0:
            speed = 1 / (BASE_S + SLOPE_S * count[pod])
            kept = 0
            for k in range(count[pod]):
                rest = left[pod, k] - (now_s - seen_s[pod]) * speed
                if rest <= 1e-9:
                    end_s[who[pod, k]] = now_s
                    completed += 1
                else:
                    left[pod, kept], who[pod, kept] = rest, who[pod, k]
                    kept += 1
            count[pod], seen_s[pod] = kept, now_s
        if pod == -3:
            queue[tail] = place
            tail += 1
            place += 1
        while tail > head:
            best = -1
            for p in range(len(count)):
                if ready_s[p] <= now_s and count[p] < SLOTS and (best < 0 or count[p] < count[best]):
                    best = p
            if best < 0:
                break
            speed = 1 / (BASE_S + SLOPE_S * max(1, count[best]))
            for k in range(count[best]):
                left[best, k] -= (now_s - seen_s[best]) * speed
            request = queue[head]
            head += 1
            left[best, count[best]], who[best, count[best]] = works[request], request
            count[best] += 1
            seen_s[best] = now_s
            started += 1
    return place, head, tail, started, completed, busy_s


def with_headroom(share: float) -> dict[str, Any]:
    """Return the document with headroom for more load than is measured."""
    (server,) = DOCUMENT["servers"]
    return {**DOCUMENT, "servers": [{**server, "headroomShare": share}]}


class Seen(NamedTuple):
    """Measurements of the last period."""

    now_s: float
    arrived: int
    started: int
    completed: int
    waiting: int
    running: int
    mean_running: float
    ready: int
    desired: int
    p95_s: float


class Service:
    """The service and its replicas."""

    def __init__(self, arrivals: Any, works: Any, pods: int) -> None:
        self.arrivals, self.works = arrivals, works
        self.end_s = np.full(len(arrivals), np.inf)
        self.queue = np.zeros(len(arrivals), np.int64)
        self.place = self.head = self.tail = 0
        self.now_s = 0.0
        self.left = np.zeros((MAX_PODS, SLOTS))
        self.who = np.zeros((MAX_PODS, SLOTS), np.int64)
        self.count = np.zeros(MAX_PODS, np.int64)
        self.seen_s = np.zeros(MAX_PODS)
        self.ready_s = np.full(MAX_PODS, np.inf)
        """Infinite for absent and for stopping replicas."""
        self.stopping = np.zeros(MAX_PODS, bool)
        self.ready_s[:pods] = 0.0
        self.desired = pods
        self.pod_s = 0.0

    def scale(self, wanted: int) -> None:
        """Start or stop replicas; those that are not ready stop first, others complete their requests."""
        wanted = max(
            1, min(wanted, MAX_PODS - int(self.count[~np.isfinite(self.ready_s)].astype(bool).sum()))
        )
        live = np.flatnonzero(np.isfinite(self.ready_s))
        free = np.flatnonzero(~np.isfinite(self.ready_s) & (self.count == 0))
        if wanted > len(live):
            self.ready_s[free[: wanted - len(live)]] = self.now_s + START_S
        for pod in sorted(live, key=lambda pod: -self.ready_s[pod])[: max(0, len(live) - wanted)]:
            self.ready_s[pod] = np.inf
        self.desired = wanted

    def run(self, until_s: float) -> Seen:
        """Run one period; replicas count until they are empty."""
        before = self.place
        self.place, self.head, self.tail, started, completed, busy_s = advance(
            until_s, self.now_s, self.arrivals, self.works, self.place, self.queue, self.head, self.tail,
            self.left, self.who, self.count, self.seen_s, self.ready_s, self.end_s,
        )  # fmt: skip
        self.pod_s += (until_s - self.now_s) * int((np.isfinite(self.ready_s) | (self.count > 0)).sum())
        self.now_s = until_s
        recent = slice(max(0, self.place - 4000 - self.tail + self.head), self.place)
        done = (self.end_s[recent] <= until_s) & (self.end_s[recent] > until_s - 60)
        latencies = (self.end_s[recent] - self.arrivals[recent])[done]
        p95_s = float(np.percentile(latencies, 95)) if len(latencies) else 0.0
        ready = int((self.ready_s <= until_s).sum())
        return Seen(
            now_s=until_s,
            arrived=self.place - before,
            started=started,
            completed=completed,
            waiting=self.tail - self.head,
            running=int(self.count.sum()),
            mean_running=busy_s / PERIOD_S,
            ready=ready,
            desired=self.desired,
            p95_s=p95_s,
        )


# --- rules ---------------------------------------------------------------------------------------------

Rule = Callable[[Seen], int]
"""Desired replicas."""


def printed() -> Rule:
    """Queue above 100 or p95 above 700 ms: two more; below 20 and utilisation below 40 %: one less."""

    def rule(seen: Seen) -> int:
        if seen.waiting > 100 or seen.p95_s > 0.7:
            return seen.desired + 2
        busy = seen.mean_running / (SLOTS * max(1, seen.ready))
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


@dataclass
class Loop:
    """The loop itself, by its pure function."""

    config: LoopConfig
    completions: bool = False
    """Whether completions are taken for arrivals, as by rules that read only them."""
    state: LoopState = field(default_factory=LoopState)
    steps: deque[Counts] = field(default_factory=lambda: deque(maxlen=round(WINDOW_S / PERIOD_S)))
    memo: SizingMemo = field(default_factory=lambda: SizingMemo(2**15))
    waiting: int = 0
    every: int = 2
    """Periods from one plan to the next."""
    calls: int = 0
    outcome: CycleOutcome | None = None
    """Result of the last plan."""
    system: Any = field(default_factory=lambda: load_system(DOCUMENT))

    def after_a_day(self, seed: int) -> "Loop":
        """Let the forecast learn the season from the arrivals of another day without bursts."""
        settings = self.config.forecast
        assert settings != "none"
        forecast, step_s = RateForecast(), self.every * PERIOD_S
        counts = np.bincount(
            (day(seed, bursts=False)[0] / step_s).astype(int), minlength=round(DAY_S / step_s)
        )
        for k, count in enumerate(counts.tolist(), 1):
            forecast = forecast.after(count / step_s, k * step_s - DAY_S, settings)
        self.state = LoopState(loads={"s": LoadMemory(forecast=forecast)})
        return self

    def __call__(self, seen: Seen) -> int:
        """Return the desired replicas."""
        growth, self.waiting = seen.waiting - self.waiting, seen.waiting
        counts = Counts(PERIOD_S, seen.started, growth, completed=seen.completed)
        if self.completions:
            counts = replace(counts, first_tokens=float(seen.completed), waiting_growth=0.0)
        self.steps.append(counts)
        self.calls += 1
        if self.calls % self.every:
            return seen.desired
        waiting = 0 if self.completions else seen.waiting
        window = Window(summed(self.steps), waiting, seen.running, max(1, seen.ready), max(1, seen.ready))
        there = {"s": {"GPU": ExistingReplicas(seen.desired, seen.ready)}}
        outcome = decide(
            self.system, self.config, self.state, CycleInputs(seen.now_s, {"s": window}, there), self.memo
        )
        self.state, self.outcome = outcome.state, outcome
        return outcome.workloads[0].replicas


def config(**more: Any) -> LoopConfig:
    """Return the configuration of the loop."""
    source = {"kind": "scrape", "url": "http://-"}
    given = {"system": "-", "source": source, "startup": START_S, "period": 2 * PERIOD_S, "drain": 60, **more}
    return LoopConfig.model_validate(given)


RULES: Mapping[str, Callable[[int], Rule]] = {
    "queue-depth rule": lambda _: printed(),
    "HPA, 2 waiting": lambda _: hpa((lambda seen: seen.waiting, 2.0)),
    "HPA, 80 % of slots running": lambda _: hpa((lambda seen: seen.running, 0.8 * SLOTS)),
    "HPA, running and waiting": lambda _: hpa((lambda seen: seen.running + seen.waiting, 0.8 * SLOTS)),
    "KEDA, KV usage 60 % and 30 waiting": lambda _: hpa(
        (lambda seen: seen.running / SLOTS, 0.6), (lambda seen: seen.waiting, 30.0)
    ),
    "plan for completions": lambda _: Loop(config(), completions=True),
    "loop without forecast": lambda _: Loop(config(forecast="none")),
    "loop on its first day": lambda _: Loop(config()),
    "loop that knows the day": lambda seed: Loop(config()).after_a_day(1000 + seed),
    "loop, 30 % headroom": lambda _: Loop(config(), system=load_system(with_headroom(0.3))),
}
"""A new rule for a seed, by name."""


def day(seed: int, *, bursts: bool) -> tuple[Any, Any]:
    """Return the arrivals [s] and works of a day."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(180 * DAY_S)
    times_s = np.sort(rng.uniform(0, DAY_S, count))
    rate_rps = 57.5 - 42.5 * np.cos(2 * np.pi * times_s / DAY_S)
    if bursts:
        for begin_s in np.array([5.0, 11.0, 17.0]) * 3600:
            rate_rps[(times_s >= begin_s) & (times_s < begin_s + 1200)] *= 1.8
    kept = times_s[rng.random(count) * 180 < rate_rps]
    sigma = math.sqrt(math.log1p(0.25))
    return kept, rng.lognormal(-(sigma**2) / 2, sigma, len(kept))


class Result(NamedTuple):
    """Outcome of a day."""

    pod_h: float
    slow: float
    """Share of requests above 0.7 s."""
    lost: float
    """Share of requests above 5 s."""
    actions: int


def simulated(name: str, seed: int, *, bursts: bool) -> Result:
    """Return the outcome of a day under a rule."""
    arrivals, works = day(seed, bursts=bursts)
    service, rule, actions = Service(arrivals, works, 4), RULES[name](seed), 0
    for k in range(1, round(DAY_S / PERIOD_S) + 1):
        before = service.desired
        service.scale(rule(service.run(k * PERIOD_S)))
        actions += service.desired != before
    latencies = service.end_s - arrivals
    slow, lost = float((latencies > SLOW_S).mean()), float((latencies > LOST_S).mean())
    return Result(service.pod_s / 3600, slow, lost, actions)


def main(seeds: int, names: Sequence[str]) -> None:
    """Print the table."""
    print("| rule | replica-hours | slow | above 5 s | changes | deviation of replica-hours, slow |")
    print("|---|---:|---:|---:|---:|---:|")
    for bursts in (False, True):
        for name in names:
            found = np.array([simulated(name, seed, bursts=bursts) for seed in range(1, seeds + 1)])
            mean, most = found.mean(axis=0), np.abs(found - found.mean(axis=0)).max(axis=0)
            print(
                f"| {name}{', bursts' if bursts else ''} | {mean[0]:.0f} | {mean[1]:.1%} | {mean[2]:.1%} | "
                f"{mean[3]:.0f} | {most[0]:.0f}, {most[1]:.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:] or tuple(RULES))
