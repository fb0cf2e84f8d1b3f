"""The queue model of batch servers: R servers that collect requests and answer them together.

For Poisson arrivals the figures are exact; others are simulated. Source: Neuts, A general class of bulk
queues with Poisson input (1967); docs/math.md has the equations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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
from optimizer.queueing.measures import LOSS, MISSED, TargetMeasure
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
from optimizer.simulation.batches import CLOCK, OLDEST, BatchServer
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem, station_table
from optimizer.timing import BatchLaw, Law

STABILITY_MARGIN = 1e-3
"""Rates are sought up to this share below what full batches answer."""
MIN_LOAD = 1e-3
"""Rates are sought from this share of it."""


@dataclass(frozen=True, slots=True)
class BulkPerformance(Performance):
    """Figures of R batch servers, with the law of the latency of each."""

    rows: tuple["SteadyState", ...]
    known: dict[TargetMeasure, FloatArray] = field(default_factory=dict)
    """Percentiles that were asked for before."""

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """Share of the time in which each is busy, and mean number of requests that it answers together."""
        return {name: np.array([getattr(row, name) for row in self.rows]) for name in ("busy", "mean_batch")}

    @property
    def knows_percentiles(self) -> bool:
        """Whether figures include percentiles of latencies: they do."""
        return True

    def excess(self, limits: Iterable[Mapping[TargetMeasure, float]]) -> FloatArray:
        """Return by how much the worst target is exceeded, shape (R,): one probability for each."""
        rows = zip(self.rows, limits, strict=True)
        return np.array([_worst(row, mine) if mine else -1.0 for row, mine in rows])

    def figure(self, measure: TargetMeasure) -> FloatArray:
        """Return a figure that can have a target, its mean or a percentile, shape (R,)."""
        return self.figure_of(measure, np.ones(len(self.rows), np.bool_))

    def figure_of(self, measure: TargetMeasure, rows: BoolArray) -> FloatArray:
        """Return a figure of some rows, shape (R,): a percentile is 0 where nobody asks for it."""
        if measure.percentile is None:
            return super(BulkPerformance, self).figure(measure)
        if measure.metric == "itl":
            return np.zeros(len(self.rows))
        share = measure.percentile / 100
        measure = TargetMeasure("e2e", measure.percentile)  # the first token of an answer is its last
        known = self.known.setdefault(measure, np.full(len(self.rows), np.nan))
        for row in np.flatnonzero(rows & np.isnan(known)).tolist():
            known[row] = self.rows[row].quantile_ms(share)
        return np.where(rows, known, 0.0)

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:
        """Return the share of answered requests beyond the limit on the time to the answer."""
        least = limits_ms[1:].min(axis=0)
        return np.array([row.late_share(limit) for row, limit in zip(self.rows, least, strict=True)])


@dataclass(frozen=True, slots=True)
class BatchingPolicy(OwnArrays):
    """How R batch servers collect requests, shapes (R,)."""

    trigger: IntArray
    """What starts a batch that is not full, an index into `TRIGGERS`."""
    window_ms: FloatArray
    room: IntArray
    """Requests that may wait, or be in the system; `UNLIMITED`: any number."""
    counts_system: BoolArray
    """Whether the room holds those in service as well."""
    stations: FloatArray
    """The stages around each, as `station_table` gives them; shape (R, stages, 4)."""
    jobs: IntArray
    """Requests that are in each and its stages at once; `ALL_JOBS`: any number."""

    @classmethod
    def of_lines(cls, lines: Sequence[Tandem]) -> Self:
        """Return how lines collect their requests."""
        servers = [line.server for line in lines]
        return cls(
            np.array([server.trigger for server in servers]),
            np.array([server.window_ms for server in servers]),
            np.array([server.room for server in servers]),
            np.array([server.counts_system for server in servers], dtype=np.bool_),
            station_table([line.stations for line in lines]),
            np.array([line.jobs for line in lines]),
        )


@dataclass(frozen=True, slots=True)
class BulkQueues(QueueModel):
    """R batch servers; all fields have shape (R,)."""

    name: ClassVar[str] = "bulk"
    takes_variability: ClassVar[bool] = True
    judges_shares: ClassVar[bool] = True
    chunk_elements: ClassVar[int] = 2**9  # every row takes so long that threads are to share them
    base_ms: FloatArray
    slope_ms: FloatArray
    max_batch: IntArray
    trigger: IntArray
    window_ms: FloatArray
    room: IntArray
    counts_system: BoolArray
    arrival_cv: FloatArray
    stations: FloatArray
    """The stages around each, as `station_table` gives them; shape (R, stages, 4)."""
    jobs: IntArray
    """Requests that are in each and its stages at once; `ALL_JOBS`: any number."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Say whether the figures include a measure: all but those of tokens."""
        return measure.metric in {"e2e", "loss", "missed"}

    @classmethod
    def of_law(cls, law: Law, room: ReplicaLimits, variability: Variability) -> Self:
        """Build the servers."""
        assert isinstance(law, BatchLaw)
        count, given = len(room.max_batch), room.own
        assert given is None or isinstance(given, BatchingPolicy)
        return cls(
            law.base_ms,
            law.slope_ms,
            room.max_batch,
            np.full(count, OLDEST) if given is None else given.trigger,
            np.zeros(count) if given is None else given.window_ms,
            np.full(count, UNLIMITED) if given is None else given.room,
            np.zeros(count, np.bool_) if given is None else given.counts_system,
            variability.arrival_cv,
            np.zeros((count, 0, 4)) if given is None else given.stations,
            np.full(count, ALL_JOBS) if given is None else given.jobs,
        )

    def line(self, row: int) -> Tandem:
        """Return one of the servers with its stages."""
        stations = (Station.of_row(station) for station in self.stations[row].tolist() if station[-1] > 0)
        return Tandem(self.server(row), tuple(stations), int(self.jobs[row]))

    def server(self, row: int) -> BatchServer:
        """Return one of the servers; no batch is larger than the room."""
        room, counts_system = int(self.room[row]), bool(self.counts_system[row])
        size = min(int(self.max_batch[row]), max(room, 1))
        window = 0.0 if size == 1 and self.trigger[row] != CLOCK else float(self.window_ms[row])
        return BatchServer(
            size,
            window,
            float(self.base_ms[row]),
            float(self.slope_ms[row]),
            room,
            counts_system,
            int(self.trigger[row]),
        )

    @property
    def lines(self) -> list[Tandem]:
        """All of the servers with their stages."""
        return [self.line(row) for row in range(len(self.max_batch))]

    @property
    def full_rate_rps(self) -> FloatArray:
        """What full batches answer, or the slowest stage does, or so many jobs make; shape (R,)."""
        return np.array([MS_PER_S * _most(line) for line in self.lines])

    @property
    def least_rate_rps(self) -> FloatArray:
        """The lower end of the rates that sizing considers, shape (R,)."""
        return MIN_LOAD * self.full_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """The largest rate that counts as stable, shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.full_rate_rps

    @property
    def longest_rate_rps(self) -> FloatArray:
        """The largest rate that has a long run, shape (R,): a server with a limited queue has one at any."""
        stages = np.array(
            [min((station.most for station in line.stations), default=np.inf) for line in self.lines]
        )
        limited = (1 - STABILITY_MARGIN) * MS_PER_S * stages
        return np.where(self.room < UNLIMITED, limited, self.stable_rate_rps)

    @property
    def is_non_monotone(self) -> BoolArray:
        """Where a window makes answers late at low rates, shape (R,)."""
        return self.window_ms > 0

    @property
    def law_type(self) -> type[Law]:
        """The law that drives it."""
        return BatchLaw

    def take(self, rows: IntArray) -> Self:
        """Return the servers of the chosen rows, in their order."""
        return type(self)(*(getattr(self, item.name)[rows] for item in fields(self)))

    def columns(self) -> list[FloatArray | IntArray | BoolArray]:
        """Return everything that the figures of a row depend on."""
        return [getattr(self, item.name) for item in fields(self)]

    def row_at(self, row: int, rate_rps: float) -> "SteadyState":
        """Return the long run of one of the servers at a rate.

        Raises:
            AnalysisError: without a limit to the queue it grows without end.
        """
        return _steady_state(self.line(row), rate_rps, float(self.arrival_cv[row]))

    def analyze(self, rate_rps: FloatArray) -> BulkPerformance:
        """Return means and distributions at arrival rates > 0, shape (R,).

        Without a limit to the queue there is no long run beyond the stable rate; the figures are then those
        at that rate.
        """
        rates = np.minimum(rate_rps, self.longest_rate_rps)
        rows = tuple(self.row_at(row, rate) for row, rate in enumerate(rates.tolist()))

        def of(name: str) -> FloatArray:
            return np.array([getattr(row, name) for row in rows])

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
        """Return what tells of one of the servers whether it keeps to targets."""
        return BatchServerChecker(self.line(row), float(self.arrival_cv[row]))


@dataclass(frozen=True, slots=True)
class BatchServerChecker(TargetChecker):
    """One of the servers."""

    line: Tandem
    arrival_cv: float

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return what gives the excess over a limit on a measure at a rate, at most 0 where it is kept."""
        return partial(_excess, _steady_state(self.line, rate_rps, self.arrival_cv))

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return a rate up to which all targets hold, at every rate; 0 where none is known."""
        if not self.line.is_server_alone or self.arrival_cv != POISSON_CV:
            return 0.0
        return MS_PER_S * surely_met_below(self.line.server, limits)


SteadyState = ServerSteadyState | SimulatedSteadyState | TandemSteadyState | ClosedNetworkSteadyState
"""What one server is found to do at a rate."""


def _steady_state(line: Tandem, rate_rps: float, arrival_cv: float) -> SteadyState:
    """Return what a server does at a rate, with its stages.

    Raises:
        AnalysisError: without a limit to the queue it grows without end.
    """
    rate = rate_rps / MS_PER_S
    if arrival_cv != POISSON_CV:
        return simulate_steady_state(line, rate, arrival_cv)
    if line.jobs != ALL_JOBS:
        return closed_network_steady_state(line, rate)
    return tandem_steady_state(line, rate) if line.stations else server_steady_state(line.server, rate)


def _most(line: Tandem) -> float:
    """Return what a line can serve [requests/ms]."""
    return line.most if line.jobs == ALL_JOBS else min(safe_capacity(line), line.most)


def _worst(found: SteadyState, limits: Mapping[TargetMeasure, float]) -> float:
    """Return the largest excess over any target."""
    return max(_excess(found, *target) for target in limits.items())


def _excess(found: SteadyState, measure: TargetMeasure, limit: float) -> float:
    """Return the excess over a target, as a share of what it allows."""
    if measure == LOSS:
        return found.rejected / limit - 1
    if measure == MISSED:
        raise ValueError(f"{measure.label} has a limit of its own for every request")
    if measure.percentile is None:
        return found.mean_ms / limit - 1
    return found.late_share(limit) / (1 - measure.percentile / 100) - 1
