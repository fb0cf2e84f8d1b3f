"""A fleet of simulated replicas on a clock of its own, which the loop's sources can read."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from optimizer import load_system, solve
from optimizer.simulation.live.replica import LiveReplica
from optimizer.simulation.replicas import TokenReplica
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import pool_runs
from rest_server.emulator.metrics import TokenMetrics
from rest_server.loop.deciding import Existing, ExistingReplicas
from rest_server.loop.fetching import SourceError
from rest_server.loop.window import Hold

DISCOVERY = "http://fleet/targets"
CHAT = """
accelerators: [{name: GPU, type: GPU, cost: 50, memSize: 80}]
count: [{type: GPU, count: 40}]
models:
  - {name: chat, acc: GPU, queueModel: continuous, maxBatchSize: 4, kvCapacity: 40000,
     perfParms: {alpha: 20.0, beta: 1.0, gamma: 0.0001}}
serviceClasses:
  - name: Interactive
    priority: 1
    modelTargets: [{model: chat, slo-itl: 60, slo-ttft: 1500}]
servers:
  - {name: talk, class: Interactive, model: chat, maxQueueSize: 400,
     currentAlloc: {load: {arrivalRate: 2/s, avgInTokens: 60, avgOutTokens: 30}}}
"""
"""One server; a replica takes about 4.5 requests/s. Figures made for these tests."""


def chat_system() -> System:
    from optimizer.schema.files import plain_value

    return load_system(plain_value(CHAT, "fleet"))  # type: ignore[arg-type]


@dataclass(slots=True)
class Job:
    """A request."""

    arrival_ms: float
    prompt: int
    tokens: int
    scheduled_ms: float = math.nan
    first_ms: float = math.nan
    last_ms: float = math.nan
    made: int = 0


@dataclass(slots=True)
class SimulatedReplicaOfFleet:
    address: str
    live: LiveReplica
    ready_ms: float
    metrics: TokenMetrics = field(default_factory=TokenMetrics)
    jobs: dict[int, Job] = field(default_factory=dict)
    stopping: bool = False

    @property
    def load(self) -> int:
        return self.live.waiting + self.live.running

    def run(self, until_ms: float) -> None:
        for step in self.live.run_until(until_ms):
            over = set(step.ended)
            for row in step.made:
                job = self.jobs[row]
                job.made += 1
                if job.made == 1:
                    job.first_ms, job.scheduled_ms = step.time_ms, self.live.scheduled_ms(row)
                    self.metrics.observe_first((step.time_ms - job.arrival_ms) / 1000)
                else:
                    self.metrics.observe_token((step.time_ms - job.last_ms) / 1000)
                job.last_ms = step.time_ms
                if row in over:
                    times_ms = job.arrival_ms, job.scheduled_ms, job.first_ms, job.last_ms
                    self.metrics.complete("length", job.prompt, job.made, [ms / 1000 for ms in times_ms])
                    del self.jobs[row]

    def text(self) -> str:
        gauges = {"num_requests_running": self.live.running, "num_requests_waiting": self.live.waiting}
        return self.metrics.text("chat", {**gauges, "kv_cache_usage_perc": 0.0}, 0).decode()


class SimulatedFleet:
    """Replicas of one server behind a router that takes the least loaded one."""

    def __init__(self, system: System, replicas: int, startup_s: float = 0.0, seed: int = 1) -> None:
        plan = solve(system)
        (run,) = pool_runs(system, plan)
        assert isinstance(run.replica, TokenReplica)
        self._replica = run.replica
        self._name, self._on = run.server, run.pool.accelerator
        self._rng = np.random.default_rng(seed)
        self._startup_ms = 1000 * startup_s
        self._number = 0
        self.now_ms = 0.0
        self.replicas: list[SimulatedReplicaOfFleet] = []
        self.drained: list[SimulatedReplicaOfFleet] = []
        self.desired = 0
        self.events: list[tuple[str, str]] = []
        self.lost = 0
        self.rejected: list[Job] = []
        self.failing: set[str] = set()
        """Addresses that do not answer."""
        self.broken: Callable[[str], str] = str
        """Changes the text of metrics."""
        self.replica_s = 0.0
        """Time of all replicas, starting ones too [s]."""
        self.scale("", "", replicas, at_once=True)

    # --- workloads ---

    def scale(self, _server: str, _accelerator: str, replicas: int, *, at_once: bool = False) -> None:
        self.desired = replicas
        while len(self.replicas) < replicas:
            ready_ms = self.now_ms if at_once else self.now_ms + self._startup_ms
            self._number += 1
            self.replicas.append(self._new(f"10.0.0.1:{8000 + self._number}", ready_ms))
        while len(self.replicas) > replicas:
            gone = max(self.replicas, key=lambda one: one.ready_ms)
            self.replicas.remove(gone)
            if gone.ready_ms <= self.now_ms:
                self.drained.append(gone)

    def _new(self, address: str, ready_ms: float) -> SimulatedReplicaOfFleet:
        return SimulatedReplicaOfFleet(address, self._replica.live(1, self._rng), ready_ms)

    def restart(self, index: int = 0, down_s: float = 0.0) -> None:
        """Lose the requests of a replica, and start it again with empty counters."""
        old = self.replicas[index]
        self.lost += len(old.jobs)
        self.replicas[index] = self._new(old.address, self.now_ms + 1000 * down_s)

    @property
    def ready(self) -> list[SimulatedReplicaOfFleet]:
        return [one for one in self.replicas if one.ready_ms <= self.now_ms]

    def read(self) -> tuple[Existing, dict[str, Hold]]:
        return {self._name: {self._on: ExistingReplicas(self.desired, len(self.ready))}}, {}

    def announce(self, _server: str, _accelerator: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def may_act(self) -> str | None:
        return None

    @property
    def has_lease(self) -> bool:
        return True

    def release(self) -> None:
        pass

    # --- time and requests ---

    def advance(self, until_s: float, jobs: Iterable[Job] = ()) -> None:
        """Let time pass, with the requests that arrive until then."""
        for job in jobs:
            self._pass(job.arrival_ms)
            self._send(job)
        self._pass(1000 * until_s)

    def _pass(self, until_ms: float) -> None:
        self.replica_s += (until_ms - self.now_ms) / 1000 * len(self.replicas)
        self.now_ms = until_ms

    def _send(self, job: Job) -> None:
        ready = self.ready
        for one in ready:
            one.run(job.arrival_ms)
        for one in sorted(ready, key=lambda one: one.load):
            row = one.live.add(job.arrival_ms, job.prompt, job.tokens)
            if row is not None:
                one.jobs[row] = job
                return
            one.metrics.rejected += 1
            break
        self.rejected.append(job)

    # --- metrics ---

    def fetch(self, url: str) -> str:
        for one in [*self.replicas, *self.drained]:
            if one.ready_ms <= self.now_ms:
                one.run(self.now_ms)
        self.drained = [one for one in self.drained if one.load]
        if "fleet" in self.failing:
            raise SourceError(f"{url}: nothing answers")
        if url == DISCOVERY:
            labels = {"server": self._name, "accelerator": self._on}
            return json.dumps([{"targets": [one.address for one in self.ready], "labels": labels}])
        address = url.removeprefix("http://").removesuffix("/metrics")
        one = next(one for one in self.replicas if one.address == address)
        if address in self.failing:
            raise SourceError(f"{url}: nothing answers")
        return self.broken(one.text())


def poisson(
    rate_rps: Callable[[float], float], end_s: float, rng: np.random.Generator, most_rps: float
) -> list[Job]:
    """Return requests of a Poisson process with a changing rate, by thinning."""
    count = int(end_s * most_rps * 1.2 + 100)
    times_s = np.cumsum(rng.exponential(1 / most_rps, count))
    times_s = times_s[times_s < end_s]
    kept = times_s[rng.random(len(times_s)) * most_rps < np.array([rate_rps(t) for t in times_s.tolist()])]
    prompts = np.maximum(1, np.rint(rng.gamma(4.0, 15.0, len(kept)))).astype(int)
    tokens = np.maximum(1, np.rint(rng.exponential(30.0, len(kept)))).astype(int)
    return [
        Job(1000 * at_s, prompt, made)
        for at_s, prompt, made in zip(kept.tolist(), prompts.tolist(), tokens.tolist(), strict=True)
    ]


def between(jobs: Sequence[Job], begin_s: float, end_s: float) -> list[Job]:
    return [job for job in jobs if 1000 * begin_s <= job.arrival_ms < 1000 * end_s]
