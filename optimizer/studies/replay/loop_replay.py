"""Replay of loads under the policy of the control loop, with simulated queues and replicas that start.

Each server is replayed by itself, on the accelerator that the plan for its largest load chooses. Arrivals in
periods of 15 s are Poisson counts; waiting requests are a fluid, which ready replicas serve at their maximum
throughput. Requests are missed by their mean rate beyond the rate within targets, as in other replays. Those
that are counted are late beyond that rate, or while a long queue exists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

import numpy as np

from optimizer.candidates.measuring import stable_rates_of
from optimizer.candidates.pairs import arrays_of
from optimizer.pipeline import solve
from optimizer.plan import Plan, Pool
from optimizer.plan.rows import pool_pairs
from optimizer.spec.load_traces import LoadStep
from optimizer.spec.loads import rate_rpm
from optimizer.spec.system import System
from optimizer.stabilisation.backlog import ReplicaCapacity
from optimizer.stabilisation.decisions import ReplicaStatus
from optimizer.stabilisation.rules import RECOMMENDED
from optimizer.studies.replay.replay_document import (
    HeadroomOutcome,
    ReplayedServer,
    ReplayPolicy,
    ReplayStep,
)
from optimizer.studies.replay.scaled_server import ScaledServer
from optimizer.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

LOOP, FORESIGHT = "the loop", "perfect foresight"
PERIOD_S = 15.0
HEADROOMS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6)
SEED = 1


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Settings of the loop that a replay tries."""

    startup_s: float
    """Start-up time of a replica [s]."""
    late_cost: float
    """Cost of a late request, in costs of serving one request."""
    is_common: bool
    """Whether the replicas of a server serve one queue; otherwise each replica has its own."""


@dataclass(frozen=True, slots=True)
class _Periods:
    """Arrivals at one server, in periods."""

    ends_s: Sequence[float]
    step_of: Sequence[int]
    """Index of the interval of the trace of each period."""
    rates_rps: Sequence[float]
    counts: Sequence[int]


@dataclass(slots=True)
class _Outcome:
    """Outcome of one server so far."""

    offered: float = 0.0
    missed: float = 0.0
    late: float = 0.0
    replica_s: float = 0.0
    changes: int = 0
    most: int = 0
    states: list[tuple[int, float, int, int, int]] = field(default_factory=list)
    """Interval, length of the period [s], planned, desired and ready replicas of each period."""


Decide = Callable[[int, float, ReplicaStatus], int]
"""Function from a period, the waiting requests and the existing replicas to the desired replicas."""


def loop_variants(
    system: System, steps: Sequence[LoadStep], settings: LoopSettings
) -> tuple[list[ReplayPolicy], tuple[HeadroomOutcome, ...]]:
    """Return the replays under the loop and with perfect foresight, and the outcomes by headroom.

    Args:
        system: the fleet.
        steps: the loads.
        settings: settings of the loop.
    """
    servers = list(_servers(system, steps, settings))
    variants = []
    for name, known in ((LOOP, False), (FORESIGHT, True)):
        runs = [(server.name, server.pool, server.run(0.0, known=known)) for server in servers]
        variants.append(_variant(name, runs, steps))
    return variants, tuple(_headroom(share, servers, steps) for share in HEADROOMS)


@dataclass(frozen=True, slots=True)
class _ReplayedServer:
    """A server with the pool that it is replayed on, and its arrivals."""

    name: str
    pool: Pool
    capacity: ReplicaCapacity
    most: int
    periods: _Periods
    settings: LoopSettings

    def run(self, headroom: float, *, known: bool) -> _Outcome:
        """Return the outcome under the loop, or with perfect foresight if later rates are `known`."""
        settings, periods = self.settings, self.periods
        server = ScaledServer(
            self.capacity, settings.startup_s, self.most, settings.is_common, settings.late_cost, headroom
        )
        plan = [server.planned(rate_rps) for rate_rps in periods.rates_rps]
        ahead = ceil((settings.startup_s + PERIOD_S) / PERIOD_S) + 1

        def decide(k: int, waiting: float, there: ReplicaStatus) -> int:
            if known:
                return max(plan[k : k + ahead + 1])
            before = 0.0 if k == 0 else periods.ends_s[k - 1]
            server.period_s = periods.ends_s[k] - before
            return server.replicas(periods.ends_s[k], periods.counts[k], waiting, there)

        return self._simulated(decide, plan)

    def _simulated(self, decide: Decide, plan: Sequence[int]) -> _Outcome:
        outcome, desired, waiting, before_s = _Outcome(), plan[0], 0.0, 0.0
        ready_at_s = [0.0] * desired
        for k, end_s in enumerate(self.periods.ends_s):
            span_s, count = end_s - before_s, self.periods.counts[k]
            ready = sum(at_s <= before_s for at_s in ready_at_s)
            offered, within = self.periods.rates_rps[k] * span_s, self.capacity.within_rps * ready * span_s
            is_long = waiting > self.capacity.max_batch * max(1, ready)
            waiting = max(0.0, waiting + count - self.capacity.most_rps * ready * span_s)
            outcome.offered += offered
            outcome.missed += max(0.0, offered - within)
            outcome.late += count if is_long else max(0.0, count - within)
            outcome.replica_s += desired * span_s
            outcome.states.append((self.periods.step_of[k], span_s, plan[k], desired, ready))
            now = sum(at_s <= end_s for at_s in ready_at_s)
            wanted = max(1, decide(k, waiting, ReplicaStatus(now, desired - now)))
            ready_at_s = sorted(ready_at_s)[:wanted]
            ready_at_s += [end_s + self.settings.startup_s] * (wanted - len(ready_at_s))
            outcome.changes += wanted != desired
            outcome.most, desired, before_s = max(outcome.most, wanted), wanted, end_s
        return outcome


def _servers(system: System, steps: Sequence[LoadStep], settings: LoopSettings) -> Iterator[_ReplayedServer]:
    """Yield the servers with pools of their own in the plan for the largest loads."""
    largest = {}
    for name, server in system.servers.items():
        reported = [found for step in steps if (found := step.reported(server)) is not None]
        if reported:
            largest[name] = server.with_load(max(reported, key=rate_rpm).current.load)  # type: ignore[union-attr]
    plan = solve(system.with_planned(largest))
    rng = np.random.default_rng(SEED)
    for name, pool, stable_rps in _pools(system.with_planned(largest), plan, list(largest)):
        within_rps = pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE / pool.num_replicas
        capacity = ReplicaCapacity(within_rps, stable_rps, pool.max_batch)
        type_name, each = system.units_per_replica(name, pool.accelerator)
        limit = system.card_limit(type_name)
        most = system.servers[name].max_num_replicas or (10_000 if limit is None else limit // each)
        yield _ReplayedServer(name, pool, capacity, most, _periods(system, name, steps, rng), settings)


def _pools(system: System, plan: Plan, names: Sequence[str]) -> Iterator[tuple[str, Pool, float]]:
    """Yield the largest pool of each server, with the maximum throughput of a replica [requests/s]."""
    running = [
        (name, max(pools, key=lambda pool: pool.max_arrival_rate_rpm))
        for name in names
        if (pools := [pool for pool in plan.serving_pools_of(name) if pool.num_replicas])
    ]
    if running:
        arrays = arrays_of(system)
        stable = stable_rates_of(arrays, pool_pairs(arrays, running)[0]).tolist()
        yield from ((name, pool, rate) for (name, pool), rate in zip(running, stable, strict=True))


def _periods(system: System, name: str, steps: Sequence[LoadStep], rng: np.random.Generator) -> _Periods:
    """Return the arrivals at a server; an interval of the trace is divided into periods of equal length."""
    ends, step_of, rates, spans = [], [], [], []
    server, rate_rps = system.servers[name], 0.0
    begin_s = steps[0].time_s
    for k, (step, following) in enumerate(pairwise(steps)):
        reported = following.reported(server)
        rate_rps = rate_rps if reported is None else rate_rpm(reported) / SECONDS_PER_MINUTE
        number = max(1, round((following.time_s - step.time_s) / PERIOD_S))
        edges = np.linspace(step.time_s - begin_s, following.time_s - begin_s, number + 1)
        ends += edges[1:].tolist()
        spans += np.diff(edges).tolist()
        step_of += [k] * number
        rates += [rate_rps] * number
    counts = rng.poisson(np.array(rates) * np.array(spans)).tolist()
    return _Periods(ends, step_of, rates, counts)


# --- results -------------------------------------------------------------------------------------------


def _headroom(share: float, servers: Sequence[_ReplayedServer], steps: Sequence[LoadStep]) -> HeadroomOutcome:
    outcomes = [server.run(share, known=False) for server in servers]
    days = (steps[-1].time_s - steps[0].time_s) / SECONDS_PER_HOUR / 24
    offered = sum(item.offered for item in outcomes)
    return HeadroomOutcome(
        headroom=share,
        replica_hours_per_day=sum(item.replica_s for item in outcomes) / SECONDS_PER_HOUR / days,
        late=sum(item.late for item in outcomes) / offered if offered else 0.0,
        changes=sum(item.changes for item in outcomes),
    )


def _variant(
    name: str, runs: Sequence[tuple[str, Pool, _Outcome]], steps: Sequence[LoadStep]
) -> ReplayPolicy:
    hours = (steps[-1].time_s - steps[0].time_s) / SECONDS_PER_HOUR
    costs = {server: pool.cost_cents_per_h / pool.num_replicas for server, pool, _ in runs}
    servers = tuple(
        ReplayedServer(
            server=server,
            offered=item.offered,
            missed=item.missed,
            cost=item.replica_s / SECONDS_PER_HOUR * costs[server],
            changes=item.changes,
            switches=0,
            held=0,
            most_replicas=item.most,
        )
        for server, _, item in runs
    )
    points = tuple(_points(runs, steps, costs))
    return ReplayPolicy.of_servers(servers, hours, name=name, rules=RECOMMENDED, points=points)


def _points(
    runs: Sequence[tuple[str, Pool, _Outcome]], steps: Sequence[LoadStep], costs: Mapping[str, float]
) -> Iterator[ReplayStep]:
    """Yield the state in each interval of the trace: means of the loads, and the last numbers of replicas."""
    count = len(steps) - 1
    load, capacity, cost, planned, desired, ready = (np.zeros(count) for _ in range(6))
    for server, pool, item in runs:
        steps_of, spans_s, *numbers = np.array(item.states).T
        at = steps_of.astype(int)
        length_s = np.bincount(at, spans_s, count)
        each_rpm = pool.max_arrival_rate_rpm / pool.num_replicas
        capacity += each_rpm * np.bincount(at, spans_s * numbers[2], count) / length_s
        cost += costs[server] * np.bincount(at, spans_s * numbers[1], count) / length_s
        last = np.zeros((3, count))
        last[:, at] = numbers
        planned, desired, ready = planned + last[0], desired + last[1], ready + last[2]
    for server, _, _ in runs:
        rate = 0.0
        for k, following in enumerate(steps[1:]):
            reported = next((o for o in following.planned.values() if o.name == server), None)
            rate = rate if reported is None else rate_rpm(reported)
            load[k] += rate
    for k, step in enumerate(steps[:-1]):
        yield ReplayStep(
            time_s=step.time_s,
            load_rpm=float(load[k]),
            capacity_rpm=float(capacity[k]),
            planned=int(planned[k]),
            desired=int(desired[k]),
            ready=int(ready[k]),
            cost_per_h=float(cost[k]),
        )
