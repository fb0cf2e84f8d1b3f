"""The interface of queue models: long-run metrics of R replicas at given arrival rates.

Rates in this interface are requests per second. A queue model states which measures it supports; the kinds of
replicas state which latency models it can use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.queueing.measures import METRICS, TargetMeasure
from optimizer.queueing.shapes import ShapeRows
from optimizer.timing.law import Law

MS_PER_S = 1000.0
QUEUE_TO_BATCH_RATIO = 10
"""Default queue capacity as a multiple of the batch limit (as in llm-inferno's `optimizer`)."""


@dataclass(frozen=True, slots=True)
class Performance:
    """Long-run means of R replicas at given arrival rates; all shapes (R,)."""

    offered_rps: FloatArray
    throughput_rps: FloatArray
    response_ms: FloatArray
    wait_ms: FloatArray
    service_ms: FloatArray
    prefill_ms: FloatArray
    ttft_ms: FloatArray
    itl_ms: FloatArray
    in_service: FloatArray
    in_queue: FloatArray
    utilization: FloatArray
    """Utilisation: mean number of requests in the batch divided by the batch limit."""
    loss: FloatArray
    """Share of arrivals that are rejected because the queue is full."""
    p_empty: FloatArray
    p_full: FloatArray

    def take(self, rows: IntArray) -> "Performance":
        """Return the means of the rows with the given indices, without additional results of subclasses."""
        return Performance(*(getattr(self, field.name)[rows] for field in fields(Performance)))

    def spread(self, rows: IntArray) -> Self:
        """Return all results of the rows with the given indices, which can repeat."""
        values = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(v[rows] if isinstance(v, np.ndarray) else v.take(rows) for v in values))

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """Metrics that only one kind of replica has, by pool field; shapes (R,)."""
        return {}

    @property
    def knows_percentiles(self) -> bool:
        """Whether percentiles of latencies are available."""
        return False

    def excess(self, limits: Iterable[Mapping[TargetMeasure, float]]) -> FloatArray | None:  # noqa: ARG002
        """Return the relative excess over the worst target of each row, shape (R,); ≤ 0 if all are met.

        Args:
            limits: targets of each row; not read if the result is None.

        Returns:
            The excess; None if comparing metrics with their limits is equally fast.
        """
        return None

    def figure(self, measure: TargetMeasure, rows: BoolArray | None = None) -> FloatArray:  # noqa: ARG002  used by row-wise models
        """Return the values of a target measure, shape (R,).

        Args:
            rows: mask of the rows whose values are needed, shape (R,); None for all.

        Raises:
            ValueError: a percentile is requested, but only means are available.
        """
        if measure.percentile is not None:
            raise ValueError(f"{measure.label}: only means are known")
        return np.asarray(getattr(self, METRICS[measure.metric].figure))

    def judged(self, measure: TargetMeasure, limits: FloatArray) -> FloatArray:
        """Return values that exceed their limits exactly where a target measure does, shape (R,).

        By default they are the values of the measure; comparing a percentile with a limit can be faster than
        computing it.

        Args:
            limits: limits in the unit of the measure, shape (R,); the value of a row without one is any.
        """
        return self.figure(measure, np.isfinite(limits))

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:  # noqa: ARG002  used by models with percentiles
        """Return the share of requests that exceed at least one of their limits, shape (R,).

        Args:
            limits_ms: limits on the latencies in the order of `LATENCIES` [ms], shape (3, R).

        Raises:
            ValueError: only means are available.
        """
        raise ValueError("only means are known")


@dataclass(frozen=True, slots=True)
class OwnArrays(RowArrays):
    """Base class of arrays that only one kind of replica has."""


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Limits of R replicas, shapes (R,)."""

    max_batch: IntArray
    """N ≥ 1: batch limit, the maximum number of requests in the batch."""
    max_queue: IntArray
    """Q ≥ 0: queue capacity, the maximum number of requests that wait for a full batch."""
    kv_capacity_tokens: FloatArray
    """KV cache capacity [tokens]; inf if unknown."""
    own: OwnArrays | None = None
    """Arrays that only the kind of the replicas has; None selects defaults."""


@dataclass(frozen=True, slots=True)
class Variability:
    """Coefficients of variation of the requests of R replicas, shapes (R,)."""

    arrival_cv: FloatArray
    """Coefficient of variation of the interarrival times; 1 for a Poisson process."""
    in_tokens_cv: FloatArray
    out_tokens_cv: FloatArray
    shapes: ShapeRows | None = None
    """Rows of the loads if any has several request shapes; then the coefficients of lengths do not count."""


VARIABILITY = ("arrival_cv", "in_tokens_cv", "out_tokens_cv")
"""Names of the coefficients of `Variability`, in order."""


class TargetChecker(Protocol):
    """Checks one replica against single targets."""

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return a function that gives a measure's excess over a limit at the rate; ≤ 0 if met."""

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return a rate up to which all targets are certainly met [requests/s]; 0 if none is known."""


class QueueModel(RowArrays, ABC):
    """Base class of queue models: R replicas, each with its latency model, batch limit and queue capacity."""

    name: ClassVar[str]
    """Name of the queue model in documents."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether the model computes a target measure; by default only means."""
        return measure.percentile is None and not measure.is_missed

    takes_variability: ClassVar[bool] = False
    """Whether the queue model supports non-Poisson arrivals and variable lengths."""
    takes_shapes: ClassVar[bool] = False
    """Whether the queue model supports several request shapes and shared prefixes."""
    own_variability: ClassVar[tuple[str, ...]] = ()
    """Document keys of the supported coefficients of variation, if not all are supported."""
    means_only: ClassVar[bool] = False
    """Whether only long-run means are available."""
    chunk_elements: ClassVar[int] = 2**20
    """Maximum number of states in a chunk of rows; so large that the overhead per chunk is negligible."""
    judges_shares: ClassVar[bool] = False
    """Whether sizing checks single targets with `judge`. Reasons are that it is faster than `analyze`, or
    that a latency can fall as the rate grows, so that the lowest rate can miss a target that higher rates
    meet.
    """

    @classmethod
    @abstractmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create a queue model of R replicas.

        Args:
            law: latency model of the R rows; every request must take time.
            limits: batch limits, queue capacities and memory.
            variability: coefficients of variation.
        """

    def mix_of(self, row: int) -> tuple[bool, bool, float] | None:  # noqa: ARG002  used by models of shapes
        """Return what makes predictions for the requests of a row uncertain.

        Returns:
            Whether the requests differ, whether some of their prompts can exceed the token budget beside
            decodes, and the fraction of the KV cache that the longest shape holds at its end; None if the
            latencies of shapes are not known.
        """
        return None

    @property
    @abstractmethod
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""

    @property
    @abstractmethod
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""

    @property
    @abstractmethod
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""

    @property
    def longest_rate_rps(self) -> FloatArray:
        """Maximum rate with a steady state [requests/s], shape (R,); larger if queues are bounded."""
        return self.stable_rate_rps

    @property
    def is_non_monotone(self) -> BoolArray:
        """Mask of rows in which a latency can fall as the rate grows, shape (R,)."""
        return np.zeros(len(self.stable_rate_rps), np.bool_)

    @property
    def is_simulated(self) -> bool:
        """Whether any row is simulated, which takes a fraction of a second for each."""
        return False

    @abstractmethod
    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return long-run metrics at arrival rates > 0, shape (R,); finite even above the stable rate."""

    def judge(self, row: int) -> TargetChecker:
        """Return a checker of single targets for one row; by default, the checker analyses the row."""
        return _AnalysedReplica(self.take(np.array([row])))

    def draft(self, row: int) -> TargetChecker | None:  # noqa: ARG002  used by models that simulate
        """Return a faster, less accurate checker with which the search for a rate starts; None if none is."""
        return None


@dataclass(frozen=True, slots=True)
class _AnalysedReplica(TargetChecker):
    """Checks single targets of one replica by analysing it."""

    replica: QueueModel

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return a function that gives a measure's relative excess over a limit at the rate."""
        performance = self.replica.analyze(np.array([rate_rps]))
        return lambda measure, limit: float(performance.figure(measure)[0]) / limit - 1

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:  # noqa: ARG002  the model is not known
        """Return 0, because no rate is known up to which all targets are met."""
        return 0.0
