"""Measurements of a running fleet, in the form of a simulation, and the servers that answered."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import frozen
from optimizer.plan import Plan
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import summarise
from optimizer.studies.simulation.pools import PoolRun, summarised_pool
from optimizer.studies.simulation.simulation_document import Simulation
from rest_server.emulator.driver import DrivenFleet, MeasuredLoad

MIN_REQUESTS = 10
"""Minimum number of answered requests for which the metrics of a pool are stated."""


@dataclass(frozen=True, slots=True)
class Course:
    """Changes of the load of a run compared with the plan."""

    scale: float = 1.0
    """Factor on the planned arrival rates at the start."""
    ramp: float | None = None
    """Factor on the planned arrival rates at the end, reached linearly; None if the rate stays the same."""
    trace: Requests | None = None
    """Recorded requests to send instead of those of the document."""
    users: int | None = None
    """Number of users who send one request after the other, instead of arrivals at a rate; None for arrivals.
    """

    def changed(self, requests: Requests) -> Requests:
        """Return requests drawn at the planned rate with the arrival times that this run has."""
        if self.users is not None:
            no_ms, wakes_ms = np.zeros(len(requests)), np.zeros(self.users)
            return replace(requests, arrival_ms=None, think_ms=no_ms, wakes_ms=wakes_ms)
        assert requests.arrival_ms is not None
        first, last = self.scale, self.scale if self.ramp is None else self.ramp
        planned_ms = requests.arrival_ms
        span_ms = 2 * float(planned_ms[-1]) / (first + last)
        slope = 2 * (last - first) * planned_ms / span_ms
        return replace(requests, arrival_ms=2 * planned_ms / (first + np.sqrt(first**2 + slope)))


@dataclass(frozen=True, slots=True)
class Answers:
    """Requests to a name that a server answered, and the fractions of them that the plan expects."""

    server: str
    requests: int
    share: float
    """Fraction of the requests to the name that the server answered."""
    planned_share: float
    """This fraction in the plan; the fractions add up to more than 1 if a route asks both models."""
    hits: float | None
    """Fraction of these requests that the cache answered; None without a cache."""
    planned_hits: float | None
    """This fraction in the plan; None without a cache."""


def answers_of(loads: Sequence[MeasuredLoad], plan: Plan) -> Iterator[Answers]:
    """Yield the answers of each server, also of external services, which have no pool."""
    hit_rates = {use.server: use.hit_rate for use in plan.caches}
    for load in loads:
        for server, part in load.load.parts.items():
            here, hit_rate = load.noted("server", *load.names_of(server)), hit_rates.get(server)
            if load.load.kinds and part.model != load.load.model:  # the small model also gets reruns
                here |= load.noted("to", "both")
            hits = None if hit_rate is None or not here.any() else load.noted("cache", "hit")[here].mean()
            planned_share = part.share / (1 - (hit_rate or 0.0))
            yield Answers(server, int(here.sum()), float(here.mean()), planned_share, hits, hit_rate)


def measured_runs(
    loads: Sequence[MeasuredLoad], runs: Sequence[PoolRun], fleet: DrivenFleet
) -> Iterator[tuple[PoolRun, SimulatedRun]]:
    """Yield each pool with the requests that it answered, at their rate and with the replicas that run.

    Without notes of a router, the requests to a server with several pools count for the first of them.
    """
    seen = set[str]()
    for run in runs:
        load = next((load.at(run.server) for load in loads if run.server in load.load.parts), None)
        if load is None or (fleet.replicas is None and run.server in seen):
            continue
        seen.add(run.server)
        if fleet.replicas is not None:
            note = "prefill" if run.both is not None and run.both.role == "prefill" else "replica"
            load = load.rows(load.noted(note, *fleet.ids_of(run.pool.accelerator)))
        if len(load.sent_ms) < MIN_REQUESTS:
            continue
        count = run.pool.num_replicas
        if fleet.replicas is not None:
            count = fleet.replicas[run.server, run.pool.accelerator]
        pool = run.pool.model_copy(update={"num_replicas": count})
        rate_rps = 1000 * len(load.sent_ms) / float(np.ptp(load.sent_ms)) / count
        changed = replace(run, pool=pool, rate_rps=rate_rps, offline=None)
        done = load.run
        if run.both is not None and run.both.role == "decode":
            done = replace(done, sent_ms=frozen(load.handed_over_ms))
        yield (changed if load.load.requests.shape is not None else _without_shapes(changed)), done


def _without_shapes(run: PoolRun) -> PoolRun:
    """Return a pool without request shapes, which those of a trace do not have."""
    return replace(run, shapes=(), targets=tuple(target for target in run.targets if not target[0].shape))


def measurement(
    measured: Sequence[tuple[PoolRun, SimulatedRun]], requests: int, course: Course, seed: int
) -> Simulation:
    """Return the metrics of pools in the form of a simulation.

    Args:
        measured: the pools with their requests.
        requests: number of requests that were sent.
        course: changes of the load compared with the plan.
        seed: random seed of the requests.
    """
    pools = tuple(
        summarised_pool(run, [done], replace(summarise([done]), overload=None)) for run, done in measured
    )
    return Simulation(
        requests=requests,
        traced=course.trace is not None,
        seed=seed,
        holds=all(pool.holds for pool in pools),
        offered_rps=math.fsum(run.counted_rps for run, _ in measured),
        goodput_rps=math.fsum(
            pool.goodput_rps for (run, _), pool in zip(measured, pools, strict=True) if run.counted_rps
        ),
        pools=pools,
    )
