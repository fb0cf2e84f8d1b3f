"""Measurements of a running fleet compared with the simulator and the plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.features.external.uses import Rented
from optimizer.plan import Plan
from optimizer.schema import Server
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import DEFAULT_REQUESTS, Effort, TokenReplica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import LEFT_OUT, MIN_REQUESTS, PARTS, half_width
from optimizer.simulation.workload import MergedLoad, TraceLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, simulated_runs
from optimizer.units import MINUTES_PER_HOUR
from rest_server.emulator.driver import AnsweringServer, MeasuredLoad, ServerLoad
from rest_server.emulator.rented import cost_cents

METRICS = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end", "latency": "latency"}
PERCENTILE = 95
MIN_PART = 2
"""Minimum number of requests in a batch of batch means."""
REQUESTS_PER_COST = 1000
"""Number of requests for which the price is shown."""


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
class DrivenMetric:
    """A metric of a server: measured, simulated, and predicted by the plan."""

    server: str
    metric: str
    unit: str
    measured: float | None
    half_width: float | None = None
    """Half-width of the 95 % confidence interval of the measured mean; None if there are too few requests."""
    measured_p95: float | None = None
    simulated: float | None = None
    simulated_p95: float | None = None
    predicted: float | None = None


def compared(
    measured_load: MeasuredLoad,
    everything: Sequence[MeasuredLoad],
    system: System,
    plan: Plan,
    runs: Sequence[PoolRun],
    course: Course,
    seed: int,
) -> Iterator[DrivenMetric]:
    """Yield the metrics of each server that serves requests to a name, and its share of the requests.

    Args:
        measured_load: measurements for the name.
        everything: measurements for all names.
        system: the planned system.
        course: changes of the load compared with the plan.
        seed: random seed of the simulation.
    """
    hits = {use.server: use.hit_rate for use in plan.caches}
    for server, part in measured_load.load.parts.items():
        here = measured_load.noted("server", server)
        if server in hits:
            share = _share(measured_load.noted("cache", "hit")[here])
            yield DrivenMetric(server, "cache hits", "%", *share, simulated=100 * hits[server])
        if len(measured_load.load.parts) > 1:
            if (
                measured_load.load.kinds and part.model != measured_load.load.model
            ):  # the small model also gets reruns
                here |= measured_load.noted("to", "both")
            whole = 100 * part.share / (1 - hits.get(server, 0.0))
            yield DrivenMetric(server, "share", "%", *_share(here), simulated=whole)
        mine, rows = [run for run in runs if run.server == server], measured_load.at(server)
        run = next(iter(mine), None)
        simulated = _simulated(mine, rows, everything, runs, course, seed)
        planned = _planned(mine) if course == Course() else {}
        service = next((one for one in plan.rented if one.server == server), None)
        if service is not None:
            steps = max(system.in_plans[server].current.load.out_tokens - 1, 0.0)
            planned = {"ttft": service.ttft_ms, "itl": service.itl_ms}
            planned["e2e"] = service.ttft_ms + steps * service.itl_ms
        yield from _metrics(rows, simulated, run, planned)
        if service is not None:
            yield _cost(rows, service, system.in_plans[server])


def _metrics(
    measured_load: MeasuredLoad,
    simulated: MeasuredLoad | None,
    run: PoolRun | None,
    planned: Mapping[str, float],
) -> Iterator[DrivenMetric]:
    """Yield the latencies, the rejection rate and the goodput of a server."""
    server, there = measured_load.load.server, None if simulated is None else simulated.latencies_ms
    for metric, values in measured_load.latencies_ms.items():
        mean, p95 = _mean_and_p95(values)
        other, other_p95 = _mean_and_p95(None if there is None else there[metric])
        yield DrivenMetric(
            server, METRICS[metric], "ms", mean, _half_width(values), p95, other, other_p95,
            planned.get(metric),
        )  # fmt: skip
    losses, width = _share(np.isnan(measured_load.last_ms))
    other = None if simulated is None else 100 * simulated.loss
    yield DrivenMetric(server, "rejected", "%", losses, width, simulated=other, predicted=planned.get("loss"))
    if run is not None and run.request_limits:
        good = [None if load is None else 100 * _within(load, run) for load in (measured_load, simulated)]
        yield DrivenMetric(server, "within targets", "%", good[0], simulated=good[1])


def _cost(measured_load: MeasuredLoad, service: Rented, server: Server) -> DrivenMetric:
    """Return the price of requests to an external service, for `REQUESTS_PER_COST` complete requests."""
    assert server.external is not None
    complete = ~np.isnan(measured_load.last_ms)
    prices = server.external.in_per_million, server.external.out_per_million
    tokens = measured_load.load.requests.in_tokens[complete].sum(), measured_load.tokens[complete].sum()
    measured = REQUESTS_PER_COST * cost_cents(prices, *tokens) / max(complete.sum(), 1)
    per_hour = service.arrival_rate_rpm * MINUTES_PER_HOUR
    planned = REQUESTS_PER_COST * service.cost_cents_per_h / per_hour
    unit = f"cents/{REQUESTS_PER_COST:,}"
    return DrivenMetric(server.name, "cost", unit, float(measured), predicted=planned)


def _planned(runs: Sequence[PoolRun]) -> dict[str, float]:
    """Return the plan's metrics of a server, averaged over the loads of its pools, by name."""
    rates = [run.rate_rps * run.pool.num_replicas for run in runs]
    planned: dict[str, float] = {}
    for run, rate_rps in zip(runs, rates, strict=True):
        pool, share = run.pool, rate_rps / sum(rates)
        figures = {"latency": pool.ttft_ms, "ttft": pool.ttft_ms, "itl": pool.itl_ms}
        figures |= {"e2e": run.prediction.e2e_ms, "loss": 100 * pool.loss}
        for name, value in figures.items():
            planned[name] = planned.get(name, 0.0) + share * value
    return planned


def _simulated(
    mine: Sequence[PoolRun],
    measured_load: MeasuredLoad,
    everything: Sequence[MeasuredLoad],
    runs: Sequence[PoolRun],
    course: Course,
    seed: int,
) -> MeasuredLoad | None:
    """Simulate a server under the measured load.

    A single replica gets the same requests as in the measurement. Otherwise one replica of each pool gets its
    share of them.

    Returns:
        Simulated times of the requests. None if the server gets too few requests of a ramp or a trace, if
            users are divided, or if it has several pools or shares a card and runs otherwise than planned.
    """
    (part,) = measured_load.load.parts.values()
    if part.replicas == 1 and len(mine) == 1 and mine[0].card is None:
        return _replayed(mine[0], measured_load, everything, runs, seed)
    counts = [run.pool.num_replicas for run in mine]
    if len(mine) > 1 and (course != Course() or part.replicas != sum(counts)):
        return None
    of_pools = [_at_share(run, measured_load.load, part, course, seed) for run in mine]
    known = [one for one in of_pools if one is not None]
    if len(known) < 2:
        return next(iter(known), None)
    # Each pool gets requests in proportion to its load, alternating with those of other pools.
    rates = [run.rate_rps * count for run, count in zip(mine, counts, strict=True)]
    most = min(len(one.sent_ms) / rate for one, rate in zip(known, rates, strict=True))
    taken = [int(most * rate) for rate in rates]
    order = np.argsort(np.concatenate([(np.arange(count) + 0.5) / count for count in taken]), kind="stable")
    sent_ms, first_ms, last_ms, tokens = (
        np.concatenate([getattr(one, name)[:count] for one, count in zip(known, taken, strict=True)])[order]
        for name in ("sent_ms", "first_ms", "last_ms", "tokens")
    )
    return MeasuredLoad(measured_load.load, sent_ms, first_ms, last_ms, tokens)


def _at_share(
    run: PoolRun, load: ServerLoad, part: AnsweringServer, course: Course, seed: int
) -> MeasuredLoad | None:
    """Simulate a replica with its share of a load.

    None if there are too few requests, or if a shared card has another load than planned.
    """
    if course.users is not None or (run.card is not None and course != Course()):
        return None
    if course.trace is None and course.ramp is None:
        scale = course.scale * part.scale
        changed = run if np.isclose(scale, 1) else run.at_share(scale)
    elif isinstance(run.load, MergedLoad) or len(load.requests) < 2 * MIN_REQUESTS * part.replicas:
        return None
    else:
        changed = replace(run, load=TraceLoad(load.requests, 1 / part.replicas))
    effort = Effort(requests=DEFAULT_REQUESTS, seed=seed)
    return _as_measured(load, simulated_runs(changed, effort)[0], run.delay_ms)


def _replayed(
    run: PoolRun,
    measured_load: MeasuredLoad,
    everything: Sequence[MeasuredLoad],
    runs: Sequence[PoolRun],
    seed: int,
) -> MeasuredLoad | None:
    """Simulate the only replica with the requests of all servers that share it.

    None if requests come from users who wait for responses, which cannot be repeated.
    """
    shared = {each.server: each for each in runs if each.planned == run.planned}
    others = [each.at(name) for each in everything for name in each.load.parts if name in shared]
    names, load = [each.load.server for each in others], measured_load.load
    if load.users is not None and (len(others) > 1 or not isinstance(run.replica, TokenReplica)):
        return None
    requests = load.requests
    if len(others) > 1:
        merged = run.load
        assert isinstance(merged, MergedLoad)
        priorities = [merged.priorities[shared[name].place] for name in names]
        requests = _merged([one.load.requests for one in others], priorities)
    done = run.replica.run(run.replica.with_chances(requests, np.random.SeedSequence(seed)))
    own = done if len(others) == 1 else done.of_stream(names.index(load.server))
    return _as_measured(load, own, run.delay_ms)


def _merged(parts: Sequence[Requests], priorities: Sequence[int]) -> Requests:
    """Merge the requests of several servers by arrival time, with priorities and the index of the server."""
    counts = [len(part) for part in parts]
    arrival_ms = np.concatenate([np.array(part.arrival_ms) for part in parts])
    together = Requests(
        np.concatenate([part.in_tokens for part in parts]),
        np.concatenate([part.out_tokens for part in parts]),
        arrival_ms,
        priority=np.repeat(priorities, counts),
        stream=np.repeat(np.arange(len(parts)), counts),
    )
    return together.take(np.argsort(arrival_ms, kind="stable"))


def _as_measured(load: ServerLoad, done: SimulatedRun, outside_ms: float) -> MeasuredLoad:
    """Convert simulated times to measurements at the client, including the network latency."""
    tokens = np.where(np.isnan(done.last_ms), np.nan, done.requests.out_tokens)
    delay_ms = done.client_ms + outside_ms
    times = done.first_ms + delay_ms, done.last_ms + delay_ms
    return MeasuredLoad(load, done.sent_ms, *times, tokens)


def _within(measured_load: MeasuredLoad, run: PoolRun) -> float:
    """Return the fraction of counted requests that were served within all limits on single requests."""
    latencies = measured_load.latencies_ms
    limits = {("latency" if "latency" in latencies else name): ms for name, ms in run.request_limits.items()}
    kept = ~np.isnan(measured_load.last_ms)
    for metric, limit in limits.items():
        kept &= np.isnan(latencies[metric]) | (latencies[metric] <= limit)
    return float(kept[_middle(len(kept))].mean())


def _mean_and_p95(values: FloatArray | None) -> tuple[float | None, float | None]:
    """Return the mean and the 95th percentile of the counted requests; None if there are none."""
    kept = np.empty(0) if values is None else values[_middle(len(values))]
    kept = kept[~np.isnan(kept)]
    return (float(kept.mean()), float(np.percentile(kept, PERCENTILE))) if len(kept) else (None, None)


def _half_width(values: FloatArray) -> float | None:
    """Return the half-width of the 95 % confidence interval for the mean of the counted requests.

    It uses batch means; None if there are too few requests.
    """
    kept = values[_middle(len(values))]
    size = len(kept) // PARTS
    if size < MIN_PART:
        return None
    parts = kept[: size * PARTS].reshape(PARTS, size)
    counts = (~np.isnan(parts)).sum(axis=1)
    means = np.where(counts, np.nansum(parts, axis=1) / np.maximum(counts, 1), np.nan)
    return float(half_width(means))


def _share(mask: BoolArray) -> tuple[float, float | None]:
    """Return the share of requests in a mask [%], and the half-width of its confidence interval."""
    values = np.asarray(100.0 * mask, np.float64)
    return (float(values.mean()) if len(values) else 0.0), _half_width(values)


def _middle(count: int) -> slice:
    """Return the slice of `count` requests that are counted."""
    return slice(int(count * LEFT_OUT), count - int(count * LEFT_OUT))
