"""Queue model of R dynamic-batching servers, which collect requests and serve them together.

For Poisson arrivals the results are exact; otherwise they are simulated. Source: Neuts, A general class of
bulk queues with Poisson input (1967); docs/math.md has the equations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.bulk.closed_network import (
    ClosedNetworkSteadyState,
    closed_network_steady_state,
    safe_capacity,
)
from optimizer.queueing.bulk.simulated import SimulatedSteadyState, simulate_steady_state
from optimizer.queueing.bulk.steady import ServerSteadyState, load_of, server_steady_state
from optimizer.queueing.bulk.sure import surely_met_below
from optimizer.queueing.bulk.tandem import TandemSteadyState, tandem_steady_state
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.queueing.performance import (
    MS_PER_S,
    OwnArrays,
    Performance,
    QueueModel,
    ReplicaLimits,
    TargetChecker,
    Variability,
)
from optimizer.simulation.arrivals import POISSON_CV
from optimizer.simulation.batches import CLOCK, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem, station_table
from optimizer.timing import BatchLaw, Law

STABILITY_MARGIN = 1e-3
"""Rates are searched up to this share below the saturation throughput."""
MIN_LOAD = 1e-3
"""Rates are searched from this share of the saturation throughput."""
DEFAULT_LINE = Tandem(BatchServer(1, 0.0, 0.0, 0.0))
"""Batching policy if a document states none: no window, no stages, no limits."""


@dataclass(frozen=True, slots=True)
class BulkPerformance(Performance):
    """Metrics of R dynamic-batching servers, with the latency distribution of each."""

    rows: tuple["SteadyState", ...]
    known: dict[TargetMeasure, FloatArray] = field(default_factory=dict)
    """Percentiles computed before."""

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """Share of time each server is busy, and mean batch."""
        return {name: np.array([getattr(row, name) for row in self.rows]) for name in ("busy", "mean_batch")}

    @property
    def knows_percentiles(self) -> bool:
        """Whether percentiles of latencies are available; always true."""
        return True

    def excess(self, limits: Iterable[Mapping[TargetMeasure, float]]) -> FloatArray:
        """Return the excess over the worst target, shape (R,), computed from one probability per target."""
        rows = zip(self.rows, limits, strict=True)
        return np.array([_worst(row, mine) if mine else -1.0 for row, mine in rows])

    def figure(self, measure: TargetMeasure) -> FloatArray:
        """Return the values of a measure, a mean or a percentile, shape (R,)."""
        return self.figure_of(measure, np.ones(len(self.rows), np.bool_))

    def figure_of(self, measure: TargetMeasure, rows: BoolArray) -> FloatArray:
        """Return the values of a measure for some rows, shape (R,); percentiles of other rows are 0."""
        if measure.percentile is None:
            return super(BulkPerformance, self).figure(measure)
        if measure.metric == "itl":
            return np.zeros(len(self.rows))
        share = measure.percentile / 100
        measure = TargetMeasure("e2e", measure.percentile)  # there is only one response time
        known = self.known.setdefault(measure, np.full(len(self.rows), np.nan))
        for row in np.flatnonzero(rows & np.isnan(known)).tolist():
            known[row] = self.rows[row].quantile_ms(share)
        return np.where(rows, known, 0.0)

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:
        """Return the share of completed requests with a longer latency than the limit, shape (R,)."""
        least = limits_ms[1:].min(axis=0)
        return np.array([row.late_share(limit) for row, limit in zip(self.rows, least, strict=True)])


@dataclass(frozen=True, slots=True)
class BatchingPolicy(OwnArrays):
    """Batching policies of R servers, shapes (R,)."""

    trigger: IntArray
    """Event that starts a partial batch, an index into `TRIGGERS`."""
    window_ms: FloatArray
    queue_limit: IntArray
    """Maximum requests waiting, or in the system; `UNLIMITED` for no limit."""
    counts_system: BoolArray
    """Whether the limit includes requests in service."""
    stations: FloatArray
    """Stages of each replica, as returned by `station_table`; shape (R, stages, 4)."""
    jobs: IntArray
    """Maximum requests inside each replica; `ALL_JOBS` for no limit."""

    @classmethod
    def of_lines(cls, lines: Sequence[Tandem]) -> Self:
        """Build the policies of several tandems."""
        servers = [line.server for line in lines]
        return cls(
            np.array([server.trigger for server in servers]),
            np.array([server.window_ms for server in servers]),
            np.array([server.queue_limit for server in servers]),
            np.array([server.counts_system for server in servers], dtype=np.bool_),
            station_table([line.stations for line in lines]),
            np.array([line.jobs for line in lines]),
        )


@dataclass(frozen=True, slots=True)
class BulkQueues(QueueModel):
    """R dynamic-batching servers; all fields have R rows."""

    name: ClassVar[str] = "bulk"
    takes_variability: ClassVar[bool] = True
    judges_shares: ClassVar[bool] = True
    chunk_elements: ClassVar[int] = 2**9  # rows are slow, so threads share them
    base_ms: FloatArray
    slope_ms: FloatArray
    max_batch: IntArray
    arrival_cv: FloatArray
    policy: BatchingPolicy

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether a measure is available: all but the token latencies."""
        return measure.metric in {"e2e", "loss", "missed"}

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Build the servers."""
        assert isinstance(law, BatchLaw)
        policy = limits.own or BatchingPolicy.of_lines([DEFAULT_LINE] * len(limits.max_batch))
        assert isinstance(policy, BatchingPolicy)
        return cls(law.base_ms, law.slope_ms, limits.max_batch, variability.arrival_cv, policy)

    def line(self, row: int) -> Tandem:
        """Return one server with its stages."""
        rows = self.policy.stations[row].tolist()
        stations = tuple(Station.of_row(station) for station in rows if station[-1] > 0)
        return Tandem(self.server(row), stations, int(self.policy.jobs[row]))

    def server(self, row: int) -> BatchServer:
        """Return one server; its batch limit is at most its queue limit."""
        policy = self.policy
        queue_limit, trigger = int(policy.queue_limit[row]), int(policy.trigger[row])
        size = min(int(self.max_batch[row]), max(queue_limit, 1))
        window = 0.0 if size == 1 and trigger != CLOCK else float(policy.window_ms[row])
        times = window, float(self.base_ms[row]), float(self.slope_ms[row])
        return BatchServer(size, *times, queue_limit, bool(policy.counts_system[row]), trigger)

    @property
    def lines(self) -> list[Tandem]:
        """All servers with their stages."""
        return [self.line(row) for row in range(len(self.max_batch))]

    @property
    def full_rate_rps(self) -> FloatArray:
        """Saturation throughput, of the server, the slowest stage or the limited jobs; shape (R,)."""
        return np.array([MS_PER_S * _most(line) for line in self.lines])

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lower end of the rates searched by sizing [requests/s], shape (R,)."""
        return MIN_LOAD * self.full_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.full_rate_rps

    @property
    def longest_rate_rps(self) -> FloatArray:
        """Maximum rate with a steady state, shape (R,): any rate has one with a bounded queue."""
        stages = np.array(
            [min((station.most for station in line.stations), default=np.inf) for line in self.lines]
        )
        limited = (1 - STABILITY_MARGIN) * MS_PER_S * stages
        return np.where(self.policy.queue_limit < UNLIMITED, limited, self.stable_rate_rps)

    @property
    def is_non_monotone(self) -> BoolArray:
        """Whether a window delays requests at low rates, shape (R,)."""
        return self.policy.window_ms > 0

    @property
    def law_type(self) -> type[Law]:
        """The latency model that this queue model uses."""
        return BatchLaw

    def row_at(self, row: int, rate_rps: float) -> "SteadyState":
        """Return the steady state of one server at a rate.

        Raises:
            AnalysisError: the queue is unlimited and grows without bound.
        """
        return _steady_state(self.line(row), rate_rps, float(self.arrival_cv[row]))

    def analyze(self, rate_rps: FloatArray) -> BulkPerformance:
        """Return means and distributions at arrival rates > 0, shape (R,).

        An unlimited queue has no steady state above the maximum stable rate; the results are then those at
        that rate.
        """
        rates = np.minimum(rate_rps, self.longest_rate_rps)
        rows = tuple(self.row_at(row, rate) for row, rate in enumerate(rates.tolist()))

        def of(name: str) -> FloatArray:
            return np.array([getattr(row, name) for row in rows])

        # A row's rejections are those at the capped rate; the load is that offered.
        response, service, loss, queue = of("mean_ms"), of("service_ms"), of("rejected"), of("queue")
        throughput = rate_rps * (1 - loss)
        load = [load_of(row.server, rate / MS_PER_S) for row, rate in zip(rows, rate_rps, strict=True)]
        return BulkPerformance(
            offered_rps=rate_rps,
            throughput_rps=throughput,
            response_ms=response,
            wait_ms=response - service,
            service_ms=service,
            prefill_ms=np.zeros(len(rows)),
            ttft_ms=response,
            itl_ms=np.zeros(len(rows)),
            in_service=throughput * service / MS_PER_S,
            in_queue=queue,
            utilization=np.array(load),
            loss=loss,
            p_empty=1 - of("busy"),
            p_full=loss,
            rows=rows,
        )

    def judge(self, row: int) -> "BatchServerChecker":
        """Return a checker of single targets for one server."""
        return BatchServerChecker(self.line(row), float(self.arrival_cv[row]))


@dataclass(frozen=True, slots=True)
class BatchServerChecker(TargetChecker):
    """Checks one dynamic-batching server against single targets."""

    line: Tandem
    arrival_cv: float

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return a function from a measure and its limit to the excess at a rate, at most 0 if it is met."""
        return partial(_excess, _steady_state(self.line, rate_rps, self.arrival_cv))

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return a rate up to which all targets are met at every rate; 0 if none is known."""
        if not self.line.is_server_alone or self.arrival_cv != POISSON_CV:
            return 0.0
        return MS_PER_S * surely_met_below(self.line.server, limits)


SteadyState = ServerSteadyState | SimulatedSteadyState | TandemSteadyState | ClosedNetworkSteadyState
"""Steady state of one server at a rate."""


def _steady_state(line: Tandem, rate_rps: float, arrival_cv: float) -> SteadyState:
    """Return the steady state of a server with its stages.

    Args:
        line: server and stages.
        rate_rps: arrivals [req/s].
        arrival_cv: CV of the interarrival times.

    Raises:
        AnalysisError: the queue is unlimited and grows without bound.
    """
    rate = rate_rps / MS_PER_S
    if arrival_cv != POISSON_CV:
        return simulate_steady_state(line, rate, arrival_cv)
    if line.jobs != ALL_JOBS:
        return closed_network_steady_state(line, rate)
    return tandem_steady_state(line, rate) if line.stations else server_steady_state(line.server, rate)


def _most(line: Tandem) -> float:
    """Return the capacity of a server with its stages [requests/ms]."""
    return line.most if line.jobs == ALL_JOBS else min(safe_capacity(line), line.most)


def _worst(found: SteadyState, limits: Mapping[TargetMeasure, float]) -> float:
    """Return the largest excess over any target."""
    return max(_excess(found, *target) for target in limits.items())


def _excess(found: SteadyState, measure: TargetMeasure, limit: float) -> float:
    """Return the relative excess over a target."""
    if measure == LOSS:
        return found.rejected / limit - 1
    if measure.is_missed:
        raise ValueError(f"{measure.label} has a separate limit for each request")
    if measure.percentile is None:
        return found.mean_ms / limit - 1
    return found.late_share(limit) / (1 - measure.percentile / 100) - 1
