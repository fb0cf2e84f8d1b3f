"""Loads of a document for a running fleet, and what is measured beside the simulator and the plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.errors import SpecError
from optimizer.kinds.table import kind_of_pool
from optimizer.simulation.replicas import DEFAULT_REQUESTS, Effort
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.workload import MergedLoad, OpenLoad, TraceLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.document import SimulatedPool
from optimizer.studies.simulation.pools import PoolRun, simulate_pool, stream_of
from rest_server.emulator.driver import MeasuredLoad, ServerLoad

METRICS = {"ttft": "TTFT", "itl": "ITL", "e2e": "end-to-end", "latency": "latency"}
LEFT_OUT = 0.1
"""Share of the requests discarded at the start and again at the end, as in a simulation."""
PERCENTILE = 95
Optional = float | None


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
    measured: Optional
    measured_p95: Optional
    simulated: Optional
    simulated_p95: Optional
    predicted: Optional


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
    if running is not None:
        planned = {name: sum(r.pool.num_replicas for r in runs if r.server == name) for name in rates}
        rates = {name: rate * running.get(name, 0) / planned[name] for name, rate in rates.items()}
    rates = {name: rate for name, rate in rates.items() if rate > 0}
    if not rates:
        raise SpecError("URL: none of the document's servers runs there; GET /emulator/replicas lists them")
    last_s, loads = requests / max(rates.values()), []
    for server, rate in rates.items():
        run = next(run for run in runs if run.server == server)
        drawn = course.trace or _drawn(run, rate, last_s, seed)
        streams = "itl" in {shown.metric for shown in kind_of_pool(run.pool).metrics}
        changes = course.ramp is not None or course.trace is not None
        cv = np.inf if changes else _open_load(run).arrival_cv
        count = sum(r.pool.num_replicas for r in runs if r.server == server)
        here = count if running is None else running[server]
        sent = course.changed(drawn)
        rate_rps = rate * course.scale
        loads.append(ServerLoad(server, system.named[server].model, streams, rate_rps, sent, cv, here))
    return loads


def _drawn(run: PoolRun, rate_rps: float, last_s: float, seed: int) -> Requests:
    own = np.random.SeedSequence([seed, stream_of(run.server, "")])
    return replace(_open_load(run), rate_rps=rate_rps).draw(max(round(rate_rps * last_s), 20), own)


def _open_load(run: PoolRun) -> OpenLoad:
    load = run.load.streams[run.place] if isinstance(run.load, MergedLoad) else run.load
    assert isinstance(load, OpenLoad)
    return load


def compared(
    found: MeasuredLoad, runs: Sequence[PoolRun], course: Course, seed: int
) -> Iterator[DrivenMetric]:
    """Yield the metrics of a server; those of several pools are not compared."""
    mine = [run for run in runs if run.server == found.load.server]
    run = mine[0] if len(mine) == 1 else None
    pool = None if run is None else _simulated(run, found, course, seed)
    server = found.load.server
    is_planned = course == Course()
    for metric, values in found.latencies_ms.items():
        kept = _counted(values)
        simulated = None if pool is None else getattr(pool, "ttft" if metric == "latency" else metric)
        yield DrivenMetric(
            server,
            METRICS[metric],
            "ms",
            float(kept.mean()) if len(kept) else None,
            float(np.percentile(kept, PERCENTILE)) if len(kept) else None,
            None if simulated is None else simulated.mean.value,
            None if simulated is None else simulated.p95.value,
            simulated.predicted_mean if is_planned and simulated is not None else None,
        )
    loss, within = (None, None) if pool is None else (pool.loss.value, pool.within_all.value)
    predicted = 100 * run.pool.loss if is_planned and run is not None else None
    yield DrivenMetric(server, "rejected", "%", 100 * found.loss, None, _percent(loss), None, predicted)
    if run is not None and run.request_limits:
        good = 100 * float(_within(found, run).mean())
        yield DrivenMetric(server, "within targets", "%", good, None, _percent(within), None, None)


def _simulated(run: PoolRun, found: MeasuredLoad, course: Course, seed: int) -> SimulatedPool | None:
    """Simulate a replica: with the same requests if it is the only one, else with its share of the load.

    Returns:
        The simulation; None if a replica gets too few requests of a ramp or a trace, if users are
        divided, or if it shares a card.
    """
    effort = Effort(requests=DEFAULT_REQUESTS, seed=seed)
    here, sent = found.load.replicas, found.load.requests
    is_alone = run.card is None and not isinstance(run.load, MergedLoad)
    is_steady = course.trace is None and course.ramp is None and course.users is None
    if (
        is_alone
        and (here == 1 or not (is_steady or course.users))
        and len(sent) >= (2 * here - 1) * MIN_REQUESTS
    ):
        return simulate_pool(replace(run, load=TraceLoad(sent, 1 / here)), effort)
    if is_steady and (is_alone or course == Course()):
        return simulate_pool(run.at_share(course.scale) if is_alone else run, effort)
    return None


def _percent(share: Optional) -> Optional:
    return None if share is None else 100 * share


def _within(found: MeasuredLoad, run: PoolRun) -> BoolArray:
    """Return a mask of the counted requests that were answered within all limits on single requests."""
    latencies = found.latencies_ms
    limits = {("latency" if "latency" in latencies else name): ms for name, ms in run.request_limits.items()}
    kept = ~np.isnan(found.last_ms)
    for metric, limit in limits.items():
        kept &= np.isnan(latencies[metric]) | (latencies[metric] <= limit)
    return kept[_middle(len(kept))]


def _middle(count: int) -> slice:
    return slice(int(count * LEFT_OUT), count - int(count * LEFT_OUT))


def _counted(values: FloatArray) -> FloatArray:
    kept = values[_middle(len(values))]
    return kept[~np.isnan(kept)]
