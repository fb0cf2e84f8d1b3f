"""Ten minutes of an emulated fleet under each scaling rule: first tokens in time, and replica-hours.

A step from 2 to 12 requests/s for four minutes; replicas of four slots start in 30 s. Every rule gets the
same requests, reads the `/metrics` of the replicas every period, and scales by the emulated Kubernetes API.
The rules are those of ``scaling_rules.py``; the loop is its controller. All times are the emulator's.
``python tests/benchmarks/live_rules.py [SPEED [SEED [RULE…]]] [--period S]`` prints a table of docs/loop.md.
"""

import argparse
import math
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "rest_server")]

from emulated import emulated  # noqa: E402
from scaling_rules import REACTIVE  # noqa: E402
from service_days import Seen  # noqa: E402
from test_loop_ten_minutes import (  # noqa: E402
    BACK_S,
    LOW_RPS,
    SECONDS,
    STEP_S,
    TARGET_MS,
    requests_of,
)  # fmt: skip

from optimizer.spec.system import System, load_system  # noqa: E402
from rest_server.emulator.driver import MeasuredLoad, ServerLoad, drive  # noqa: E402
from rest_server.loop.config import LoopConfig  # noqa: E402
from rest_server.loop.controller import Controller  # noqa: E402
from rest_server.loop.fetching import Fetcher  # noqa: E402
from rest_server.loop.kubernetes import Cluster, connected  # noqa: E402
from rest_server.loop.scrape import ScrapeReader  # noqa: E402
from rest_server.loop.window import Reading, Window  # noqa: E402

START_S, SLOTS = 30.0, 4
TOKENS, MAX_REPLICAS, RECENT_S = 10, 12, 60.0
"""Few and long tokens, so that an emulator carries the load at a high speed."""
FLEET = f"""\
accelerators: [{{name: GPU, type: GPU, cost: 50, memSize: 80}}]
count: [{{type: GPU, count: {MAX_REPLICAS}}}]
models:
  - {{name: chat, acc: GPU, queueModel: continuous, maxBatchSize: {SLOTS}, kvCapacity: 40000,
     perfParms: {{alpha: 60.0, beta: 3.0, gamma: 0.0003}}}}
serviceClasses:
  - name: Interactive
    priority: 1
    modelTargets: [{{model: chat, slo-itl: 180, slo-ttft: {TARGET_MS:g}}}]
servers:
  - {{name: talk, class: Interactive, model: chat, maxQueueSize: 1000,
     currentAlloc: {{load: {{arrivalRate: {LOW_RPS:g}/s, avgInTokens: 40, avgOutTokens: {TOKENS}}}}}}}
"""
SERVER, ACCELERATOR = "talk", "GPU"
NAMES = (
    "queue-depth rule", "HPA, 2 waiting", "HPA, 80 % of slots running", "HPA, running and waiting",
    "KEDA, KV usage 60 % and 30 waiting", "plan for completions", "loop",
)  # fmt: skip

Step = Callable[[float], int]
"""Function that looks at the fleet at a time [s], scales it, and returns the desired replicas."""


class FirstTokenTimes:
    """The p95 of the TTFT of the last minute, from the histograms of the replicas."""

    def __init__(self, fetch: Callable[[str], str], period_s: float) -> None:
        self._fetch = fetch
        self._before: dict[tuple[str, float], float] = {}
        self._steps: deque[dict[float, float]] = deque(maxlen=round(RECENT_S / period_s))
        self._step: dict[float, float] = {}

    def __call__(self, url: str) -> str:
        """Return the body at an address, and count the TTFTs in it."""
        text = self._fetch(url)
        if url.endswith("/metrics"):
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name == "vllm:time_to_first_token_seconds_bucket":
                        bound = float(sample.labels["le"])
                        new = sample.value - self._before.get((url, bound), 0.0)
                        self._step[bound] = self._step.get(bound, 0.0) + new
                        self._before[url, bound] = sample.value
        return text

    def p95_s(self) -> float:
        """Return the 95th percentile, linear in its bucket like Prometheus, and end the period."""
        self._steps.append(self._step)
        self._step = {}
        bounds = sorted({bound for step in self._steps for bound in step})
        counts = [sum(step.get(bound, 0.0) for step in self._steps) for bound in bounds]
        if not counts or not counts[-1]:
            return 0.0
        place = int(np.searchsorted(counts, 0.95 * counts[-1]))
        low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
        if not math.isfinite(bounds[place]):
            return low
        return low + (bounds[place] - low) * (0.95 * counts[-1] - below) / (counts[place] - below)


class Completions:
    """A source that takes completions for arrivals, and sees no queue."""

    def __init__(self, reader: ScrapeReader) -> None:
        self._reader = reader
        self.replicas: Mapping[tuple[str, str], int] = {}

    def read(self, system: System, now_s: float) -> dict[str, Reading]:
        """Return the windows."""
        found: dict[str, Reading] = {}
        for name, reading in self._reader.read(system, now_s).items():
            found[name] = reading
            if isinstance(reading, Window):
                counts = replace(reading.counts, arrived=reading.counts.completed)
                found[name] = replace(reading, counts=counts, last=None, waiting=0.0, of_replicas=None)
        return found


def step_of(name: str, period_s: float, url: str, system: System, cluster: Cluster) -> Step:
    """Return a rule at a fleet."""
    discovery = f"{url}/emulator/targets"
    if name in ("loop", "plan for completions"):
        scraped = {"kind": "scrape", "url": discovery}
        given = {"system": "-", "source": scraped, "startup": START_S, "period": period_s}
        config = LoopConfig.model_validate(given)
        reader = ScrapeReader(Fetcher().text, discovery, config.window_s)
        source = reader if name == "loop" else Completions(reader)
        controller = Controller(system, config, source, cluster, lambda _: None)

        desired = 1

        def cycle(now_s: float) -> int:
            nonlocal desired
            for item in controller.cycle(now_s)["workloads"]:  # none if the cycle plans nothing
                desired = int(item["replicas"])
            return desired

        return cycle
    times, rule = FirstTokenTimes(Fetcher().text, period_s), REACTIVE[name](SLOTS)
    reader = ScrapeReader(times, discovery, period_s)

    def look(now_s: float) -> int:
        there, _ = cluster.read()
        item, reading = there[SERVER][ACCELERATOR], reader.read(system, now_s)[SERVER]
        p95_s = times.p95_s()
        if not isinstance(reading, Window):
            return item.desired
        counts = reading.counts
        wanted = rule(
            Seen(
                now_s=now_s,
                arrived=0,
                started=int(counts.first_tokens),
                completed=int(counts.completed),
                waiting=int(reading.waiting),
                running=int(reading.running),
                mean_running=reading.running,
                ready=item.ready,
                desired=item.desired,
                p95_s=p95_s,
            )
        )
        wanted = max(1, min(wanted, MAX_REPLICAS))
        if wanted != item.desired:
            cluster.scale(SERVER, ACCELERATOR, wanted)
        return wanted

    return look


class Result(NamedTuple):
    """Outcome of ten minutes."""

    within: float
    """Share of requests with a first token in time."""
    step_within: float
    """That of the requests of the step."""
    replica_h: float
    """Desired replicas, integrated over the time [h]."""
    most: int
    changes: int
    late_ms: float
    """The 99th percentile of the delay of the client."""


def live(name: str, speed: float, seed: int, period_s: float) -> Result:
    """Run ten emulated minutes under a rule.

    Args:
        name: name of the rule.
        speed: emulated time per time of the machine.
        seed: random seed of the requests.
        period_s: time between two decisions [s].
    """
    load = ServerLoad(SERVER, "chat", streams=True, rate_rps=LOW_RPS, requests=requests_of(seed, TOKENS))
    driven: list[MeasuredLoad] = []
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "fleet.yaml"
        document.write_text(FLEET, encoding="utf-8")
        system = load_system(document)
        flags = ("--scalable", "--startup", f"{START_S:g}", "--speed", f"{speed:g}")
        with emulated(document, *flags) as fleet:
            target = LoopConfig.model_validate(
                {
                    "system": "-",
                    "source": {"kind": "scrape", "url": fleet.url},
                    "kubernetes": {"url": fleet.url, "lease": ""},
                }
            ).kubernetes
            assert target is not None
            cluster = Cluster(connected(target), target, system)
            step = step_of(name, period_s, fleet.url, system, cluster)
            driving = threading.Thread(target=lambda: driven.extend(drive(fleet.url, [load], speed)))
            begun_s = time.monotonic()
            driving.start()
            desired = []
            for k in range(round(SECONDS / period_s)):
                time.sleep(max(0.0, begun_s + k * period_s / speed - time.monotonic()))
                desired.append(step((time.monotonic() - begun_s) * speed))
            driving.join()
    (found,) = driven
    in_time = found.latencies_ms["ttft"] <= TARGET_MS
    arrivals_s = np.asarray(load.requests.arrival_ms) / 1000
    of_step = (arrivals_s >= STEP_S) & (arrivals_s < BACK_S)
    return Result(
        within=float(in_time.mean()),
        step_within=float(in_time[of_step].mean()),
        replica_h=sum(desired) * period_s / 3600,
        most=max(desired),
        changes=sum(a != b for a, b in pairwise(desired)),
        late_ms=float(np.percentile(found.late_ms, 99)),
    )


def main(speed: float, seed: int, names: Sequence[str], period_s: float) -> None:
    """Print the table."""
    print("| rule | within 1.5 s | in the step | replica-hours | most replicas | changes | client late |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names:
        found = live(name, speed, seed, period_s)
        print(
            f"| {name} | {found.within:.1%} | {found.step_within:.1%} | {found.replica_h:.2f} | "
            f"{found.most} | {found.changes} | {found.late_ms:.0f} ms |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("speed", nargs="?", type=float, default=3.0)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--period", type=float, default=15.0)
    given = parser.parse_args()
    main(given.speed, given.seed, given.names, given.period)
