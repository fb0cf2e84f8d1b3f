"""Loads of a document for a running fleet, and what is measured beside the simulator and the plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.errors import SpecError
from optimizer.kinds.table import kind_of_pool
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import DEFAULT_REQUESTS, Effort, TokenReplica
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.workload import MergedLoad, TraceLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, open_load_of, simulated_runs, stream_of
from rest_server.emulator.driver import MeasuredLoad, ServerLoad

METRICS = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end", "latency": "latency"}
LEFT_OUT = 0.1
"""Share of the requests discarded at the start and again at the end, as in a simulation."""
PERCENTILE = 95


@dataclass(frozen=True, slots=True)
class Course:
    """How the load of a run differs from the plan's."""

    scale: float = 1.0
    """Factor on the arrival rates at the start."""
    ramp: float | None = None
    """Factor at the end, which is reached linearly; None if it stays."""
    trace: Requests | None = None
    """Recorded requests instead of those of the document."""
    users: int | None = None
    """Users who send one request after the other, instead of arrivals at a rate; None without them."""

    def changed(self, requests: Requests) -> Requests:
        """Return requests at the planned rate with the times of this course."""
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
    measured_p95: float | None
    simulated: float | None
    simulated_p95: float | None
    predicted: float | None


def loads_of(
    system: System,
    runs: Sequence[PoolRun],
    running: Mapping[str, int] | None,
    requests: int,
    seed: int,
    course: Course,
) -> list[ServerLoad]:
    """Return the requests to each server: the planned load of a replica, times the replicas that run.

    Raises:
        SpecError: none of the servers runs there.
    """
    rates: dict[str, float] = {}
    for run in runs:
        rates[run.server] = rates.get(run.server, 0.0) + run.rate_rps * run.pool.num_replicas
    planned = {name: sum(r.pool.num_replicas for r in runs if r.server == name) for name in rates}
    here = planned if running is None else running
    if running is not None:
        rates = {name: rate * here.get(name, 0) / planned[name] for name, rate in rates.items()}
    rates = {name: rate for name, rate in rates.items() if rate > 0}
    if not rates:
        raise SpecError("URL: none of the document's servers runs there; GET /emulator/replicas lists them")
    last_s, loads = requests / max(rates.values()), []
    for server, rate in rates.items():
        run = next(run for run in runs if run.server == server)
        drawn = course.trace or _drawn(run, rate, last_s, seed)
        streams = "itl" in {shown.metric for shown in kind_of_pool(run.pool).metrics}
        changes = course.ramp is not None or course.trace is not None
        cv = np.inf if changes else open_load_of(run).arrival_cv
        sent, model = course.changed(drawn), system.named[server].model
        loads.append(ServerLoad(server, model, streams, rate * course.scale, sent, cv, here[server]))
    return loads


def _drawn(run: PoolRun, rate_rps: float, last_s: float, seed: int) -> Requests:
    own = np.random.SeedSequence([seed, stream_of(run.server, "")])
    return replace(open_load_of(run), rate_rps=rate_rps).draw(max(round(rate_rps * last_s), 20), own)


def compared(
    found: MeasuredLoad,
    everything: Sequence[MeasuredLoad],
    runs: Sequence[PoolRun],
    course: Course,
    seed: int,
) -> Iterator[DrivenMetric]:
    """Yield the metrics of a server; those of several pools are not compared.

    Args:
        found: what was measured of the server.
        everything: what was measured of all servers.
        runs: pools of the plan.
        course: difference of the load from the plan's.
        seed: random seed of the simulation.
    """
    mine = [run for run in runs if run.server == found.load.server]
    run = mine[0] if len(mine) == 1 else None
    simulated = None if run is None else _simulated(run, found, everything, runs, course, seed)
    planned = {} if run is None or course != Course() else _planned(run)
    server, there = found.load.server, None if simulated is None else simulated.latencies_ms
    for metric, values in found.latencies_ms.items():
        figures = _mean_and_p95(values), _mean_and_p95(None if there is None else there[metric])
        yield DrivenMetric(server, METRICS[metric], "ms", *figures[0], *figures[1], planned.get(metric))
    losses = [None if load is None else 100 * load.loss for load in (found, simulated)]
    yield DrivenMetric(server, "rejected", "%", losses[0], None, losses[1], None, planned.get("loss"))
    if run is not None and run.request_limits:
        good = [None if load is None else 100 * _within(load, run) for load in (found, simulated)]
        yield DrivenMetric(server, "within targets", "%", good[0], None, good[1], None, None)


def _planned(run: PoolRun) -> dict[str, float]:
    """Return the figures of the plan by metric."""
    pool = run.pool
    first = {"latency": pool.ttft_ms, "ttft": pool.ttft_ms, "itl": pool.itl_ms}
    return first | {"e2e": run.prediction.e2e_ms, "loss": 100 * pool.loss}


def _simulated(
    run: PoolRun,
    found: MeasuredLoad,
    everything: Sequence[MeasuredLoad],
    runs: Sequence[PoolRun],
    course: Course,
    seed: int,
) -> MeasuredLoad | None:
    """Simulate a replica: with the same requests if it is the only one, else with its share of the load.

    Returns:
        The simulated times of its requests; None if it gets too few of a ramp or a trace, if users are
        divided, or if it shares a card under another load than the plan's.
    """
    load, here = found.load, found.load.replicas
    if here == 1 and run.card is None:
        return _replayed(run, load, [one.load for one in everything], runs, seed)
    if course.users is not None or (run.card is not None and course != Course()):
        return None
    if course.trace is None and course.ramp is None:
        changed = run if course.scale == 1 else run.at_share(course.scale)
    elif isinstance(run.load, MergedLoad) or len(load.requests) < 2 * MIN_REQUESTS * here:
        return None
    else:
        changed = replace(run, load=TraceLoad(load.requests, 1 / here))
    effort = Effort(requests=DEFAULT_REQUESTS, seed=seed)
    return _as_measured(load, simulated_runs(changed, effort)[0])


def _replayed(
    run: PoolRun, load: ServerLoad, loads: Sequence[ServerLoad], runs: Sequence[PoolRun], seed: int
) -> MeasuredLoad | None:
    """Simulate the only replica with the requests of all servers that share it; None if users cannot be."""
    shared = {each.server: each for each in runs if each.planned == run.planned}
    loads = [one for one in loads if one.server in shared]
    if load.users is not None and (len(loads) > 1 or not isinstance(run.replica, TokenReplica)):
        return None
    requests = load.requests
    if len(loads) > 1:
        merged = run.load
        assert isinstance(merged, MergedLoad)
        priorities = [merged.priorities[shared[one.server].place] for one in loads]
        requests = _merged([one.requests for one in loads], priorities)
    done = run.replica.run(run.replica.with_chances(requests, np.random.SeedSequence(seed)))
    return _as_measured(load, done if len(loads) == 1 else done.of_stream(loads.index(load)))


def _merged(parts: Sequence[Requests], priorities: Sequence[int]) -> Requests:
    """Return the requests of several servers by arrival, with priorities and the index of the server."""
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


def _as_measured(load: ServerLoad, done: SimulatedRun) -> MeasuredLoad:
    """Return the times of a simulation at the server, as of a measurement."""
    tokens = np.where(np.isnan(done.last_ms), np.nan, done.requests.out_tokens)
    return MeasuredLoad(load, done.sent_ms, done.first_ms, done.last_ms, tokens, np.zeros(len(tokens)))


def _within(found: MeasuredLoad, run: PoolRun) -> float:
    """Return the share of the counted requests that were answered within all limits on single requests."""
    latencies = found.latencies_ms
    limits = {("latency" if "latency" in latencies else name): ms for name, ms in run.request_limits.items()}
    kept = ~np.isnan(found.last_ms)
    for metric, limit in limits.items():
        kept &= np.isnan(latencies[metric]) | (latencies[metric] <= limit)
    return float(kept[_middle(len(kept))].mean())


def _mean_and_p95(values: FloatArray | None) -> tuple[float | None, float | None]:
    """Return mean and percentile of the counted requests; None if there are none."""
    kept = np.empty(0) if values is None else values[_middle(len(values))]
    kept = kept[~np.isnan(kept)]
    return (float(kept.mean()), float(np.percentile(kept, PERCENTILE))) if len(kept) else (None, None)


def _middle(count: int) -> slice:
    """Return the requests that count."""
    return slice(int(count * LEFT_OUT), count - int(count * LEFT_OUT))
