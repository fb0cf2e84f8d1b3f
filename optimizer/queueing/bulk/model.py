"""Queue model of R batch servers, which collect requests and serve them together.

The results of a server alone with Poisson arrivals are exact, except with the trigger `gap`; others are
simulated. Source: Neuts, A general class of
bulk queues with Poisson input (1967); docs/math.md has the equations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.bulk.simulated import (
    DRAFT_REQUESTS,
    SimulatedSteadyState,
    is_simulated,
    saturation_rate,
    simulate_steady_state,
)
from optimizer.queueing.bulk.steady import ServerSteadyState, load_of, server_steady_state
from optimizer.queueing.bulk.sure import surely_met_below
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
from optimizer.simulation.batches import CLOCK, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import Station, Tandem, station_table
from optimizer.timing.batch import BatchLaw
from optimizer.timing.law import Law

STABILITY_MARGIN = 1e-3
"""Margin below the saturation throughput, as a share of it, up to which sizing searches."""
MIN_LOAD = 1e-3
"""Share of the saturation throughput from which sizing searches."""
DEFAULT_LINE = Tandem(BatchServer(1, 0.0, 0.0, 0.0))
"""Batch server used if a document states no batching policy: no window, no stages, no limits."""


@dataclass(frozen=True, slots=True)
class BulkPerformance(Performance):
    """Metrics of R batch servers, with the latency distribution of each."""

    rows: tuple["SteadyState", ...]
    known: dict[TargetMeasure, FloatArray] = field(default_factory=dict)
    """Cache of percentiles."""

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """Metrics that only batch servers have: share of time in which the server is busy, and mean batch."""
        return {name: np.array([getattr(row, name) for row in self.rows]) for name in ("busy", "mean_batch")}

    @property
    def knows_percentiles(self) -> bool:
        """Whether percentiles of latencies are available; always true."""
        return True

    def excess(self, limits: Iterable[Mapping[TargetMeasure, float]]) -> FloatArray:
        """Return the relative excess over the worst target, shape (R,).

        It needs only one probability per target.
        """
        rows = zip(self.rows, limits, strict=True)
        return np.array([_worst(row, mine) if mine else -1.0 for row, mine in rows])

    def figure(self, measure: TargetMeasure, rows: BoolArray | None = None) -> FloatArray:
        """Return the values of a target measure, shape (R,); percentiles are 0 except for the given rows."""
        if measure.percentile is None:
            return super(BulkPerformance, self).figure(measure)
        if measure.metric == "itl":
            return np.zeros(len(self.rows))
        needed = np.ones(len(self.rows), np.bool_) if rows is None else rows
        share = measure.percentile / 100
        measure = TargetMeasure("e2e", measure.percentile)  # batch servers have only one latency
        known = self.known.setdefault(measure, np.full(len(self.rows), np.nan))
        for row in np.flatnonzero(needed & np.isnan(known)).tolist():
            known[row] = self.rows[row].quantile_ms(share)
        return np.where(needed, known, 0.0)


@dataclass(frozen=True, slots=True)
class BatchingPolicy(OwnArrays):
    """Batching policies of R servers, shapes (R,)."""

    trigger: IntArray
    """Trigger of a batch that is not full: index in `TRIGGERS`."""
    window_ms: FloatArray
    queue_limit: IntArray
    """Maximum number of requests that wait, or that are in the system; `UNLIMITED` for no limit."""
    counts_system: BoolArray
    """Whether `queue_limit` includes requests in service."""
    stations: FloatArray
    """Stages of each replica, in the format of `station_table`; shape (R, stages, 4)."""
    jobs: IntArray
    """Maximum number of requests inside each replica; `ALL_JOBS` for no limit."""

    @classmethod
    def of_lines(cls, lines: Sequence[Tandem]) -> Self:
        """Create the policies of several servers with stages."""
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
    """Queue model of R batch servers; all fields have R rows."""

    name: ClassVar[str] = "bulk"
    takes_variability: ClassVar[bool] = True
    judges_shares: ClassVar[bool] = True
    chunk_elements: ClassVar[int] = 2**7  # rows are slow, so they are computed in threads
    base_ms: FloatArray
    slope_ms: FloatArray
    max_batch: IntArray
    arrival_cv: FloatArray
    policy: BatchingPolicy

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether the model computes a target measure: all except token latencies."""
        return measure.metric in {"e2e", "loss", "missed"}

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create the servers from a latency model, their limits and the variability of requests."""
        assert isinstance(law, BatchLaw)
        policy = limits.own or BatchingPolicy.of_lines([DEFAULT_LINE] * len(limits.max_batch))
        assert isinstance(policy, BatchingPolicy)
        return cls(law.base_ms, law.slope_ms, limits.max_batch, variability.arrival_cv, policy)

    def line(self, row: int) -> Tandem:
        """Return the server of a row, with its stages."""
        rows = self.policy.stations[row].tolist()
        stations = tuple(Station.of_row(station) for station in rows if station[-1] > 0)
        return Tandem(self.server(row), stations, int(self.policy.jobs[row]))

    def server(self, row: int) -> BatchServer:
        """Return the server of a row; its batch limit is at most its queue limit."""
        policy = self.policy
        queue_limit, trigger = int(policy.queue_limit[row]), int(policy.trigger[row])
        size = min(int(self.max_batch[row]), max(queue_limit, 1))
        window = 0.0 if size == 1 and trigger != CLOCK else float(policy.window_ms[row])
        times = window, float(self.base_ms[row]), float(self.slope_ms[row])
        return BatchServer(size, *times, queue_limit, bool(policy.counts_system[row]), trigger)

    @property
    def lines(self) -> list[Tandem]:
        """Servers of all rows, with their stages."""
        return [self.line(row) for row in range(len(self.max_batch))]

    @property
    def full_rate_rps(self) -> FloatArray:
        """Saturation throughput [requests/s], shape (R,): the least of server, stages and limited jobs."""
        return np.array([MS_PER_S * saturation_rate(line) for line in self.lines])

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return MIN_LOAD * self.full_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.full_rate_rps

    @property
    def longest_rate_rps(self) -> FloatArray:
        """Maximum rate with a steady state [requests/s], shape (R,); inf if the queue is bounded."""
        stages = np.array(
            [min((station.most for station in line.stations), default=np.inf) for line in self.lines]
        )
        limited = (1 - STABILITY_MARGIN) * MS_PER_S * stages
        return np.where(self.policy.queue_limit < UNLIMITED, limited, self.stable_rate_rps)

    @property
    def is_non_monotone(self) -> BoolArray:
        """Mask of servers whose window delays requests at low rates, so targets can fail there."""
        return self.policy.window_ms > 0

    @property
    def is_simulated(self) -> bool:
        """Whether any server has no exact results."""
        return any(is_simulated(line, cv) for line, cv in zip(self.lines, self.arrival_cv, strict=True))

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""
        return BatchLaw

    def row_at(self, row: int, rate_rps: float) -> "SteadyState":
        """Return the steady state of the server of a row at an arrival rate.

        Raises:
            AnalysisError: the queue is unlimited and grows without bound.
        """
        return _steady_state(self.line(row), rate_rps, float(self.arrival_cv[row]))

    def analyze(self, rate_rps: FloatArray) -> BulkPerformance:
        """Return the metrics at arrival rates > 0 [requests/s], shape (R,).

        Above the maximum stable rate, an unlimited queue has no steady state; its results are those at that
        rate.
        """
        rates = np.minimum(rate_rps, self.longest_rate_rps)
        rows = tuple(self.row_at(row, rate) for row, rate in enumerate(rates.tolist()))

        def of(name: str) -> FloatArray:
            return np.array([getattr(row, name) for row in rows])

        # Rejections are those at the capped rate, and the offered load is not capped.
        response, service, loss, queue = of("mean_ms"), of("service_ms"), of("rejected"), of("queue")
        throughput = rate_rps * (1 - loss)
        servers = (line.server for line in self.lines)
        load = [load_of(server, rate / MS_PER_S) for server, rate in zip(servers, rate_rps, strict=True)]
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
        """Return a checker of single targets for the server of a row."""
        return BatchServerChecker(self.line(row), float(self.arrival_cv[row]))

    def draft(self, row: int) -> TargetChecker | None:
        """Return a checker that simulates fewer requests; None for servers with exact results."""
        line, arrival_cv = self.line(row), float(self.arrival_cv[row])
        return (
            BatchServerChecker(line, arrival_cv, DRAFT_REQUESTS) if is_simulated(line, arrival_cv) else None
        )


@dataclass(frozen=True, slots=True)
class BatchServerChecker(TargetChecker):
    """Checks one batch server against single targets."""

    line: Tandem
    arrival_cv: float
    requests: int | None = None
    """Number of requests of a simulation; None for as many as figures need."""

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return a function that gives a measure's excess over a limit at the rate; ≤ 0 if met."""
        return partial(_excess, _steady_state(self.line, rate_rps, self.arrival_cv, self.requests))

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return a rate up to which all targets are certainly met [requests/s]; 0 if none is known."""
        if is_simulated(self.line, self.arrival_cv):
            return 0.0
        return MS_PER_S * surely_met_below(self.line.server, limits)


SteadyState = ServerSteadyState | SimulatedSteadyState
"""Steady state of one batch server, by any of the methods."""


def _steady_state(
    line: Tandem, rate_rps: float, arrival_cv: float, requests: int | None = None
) -> SteadyState:
    """Return the steady state of a batch server with its stages.

    Args:
        line: the server and its stages.
        rate_rps: arrival rate [requests/s].
        arrival_cv: CV of the interarrival times.
        requests: number of requests of a simulation; None for as many as figures need.

    Raises:
        AnalysisError: the queue is unlimited and grows without bound.
    """
    rate = rate_rps / MS_PER_S
    if is_simulated(line, arrival_cv):
        return simulate_steady_state(line, rate, arrival_cv, requests)
    return server_steady_state(line.server, rate)


def _worst(steady_state: SteadyState, limits: Mapping[TargetMeasure, float]) -> float:
    """Return the largest relative excess over any target."""
    return max(_excess(steady_state, *target) for target in limits.items())


def _excess(steady_state: SteadyState, measure: TargetMeasure, limit: float) -> float:
    """Return the relative excess of a measure over its limit."""
    if measure == LOSS:
        return steady_state.rejected / limit - 1
    if measure.is_missed:
        raise ValueError(f"{measure.label} has a separate limit for each request")
    if measure.percentile is None:
        return steady_state.mean_ms / limit - 1
    return steady_state.late_share(limit) / (1 - measure.percentile / 100) - 1
