"""The interface of queue models: long-run metrics of R replicas at given rates.

Rates are requests per second at this boundary. A queue model states which measures it supports; the kinds of
replicas state which latency models it uses.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.queueing.measures import METRICS, TargetMeasure
from optimizer.timing import Law

MS_PER_S = 1000.0
QUEUE_TO_BATCH_RATIO = 10
"""Default queue capacity as a multiple of the batch limit (the reference's first family)."""


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
    """Mean occupancy over the batch limit."""
    loss: FloatArray
    """Share of arrivals rejected because the queue is full."""
    p_empty: FloatArray
    p_full: FloatArray

    def take(self, rows: IntArray) -> "Performance":
        """Return the means of the given rows, without the additional results of subclasses."""
        return Performance(*(getattr(self, field.name)[rows] for field in fields(Performance)))

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """Metrics specific to one kind of replica, by pool field; shapes (R,)."""
        return {}

    @property
    def knows_percentiles(self) -> bool:
        """Whether percentiles of latencies are available."""
        return False

    def excess(self, limits: Iterable[Mapping[TargetMeasure, float]]) -> FloatArray | None:  # noqa: ARG002
        """Return the excess over the worst target of each row, at most 0 if all are met; shape (R,).

        Args:
            limits: targets of each row; read only if `figure` does not give the excess.

        Returns:
            The excess; None if comparing metrics with their limits is as cheap.
        """
        return None

    def figure(self, measure: TargetMeasure) -> FloatArray:
        """Return the values of a measure, shape (R,).

        Raises:
            ValueError: a percentile is requested, but only means are known.
        """
        if measure.percentile is not None:
            raise ValueError(f"{measure.label}: only means are known")
        return np.asarray(getattr(self, METRICS[measure.metric].figure))

    def figure_of(self, measure: TargetMeasure, rows: BoolArray) -> FloatArray:  # noqa: ARG002  used by row-wise models
        """Return the values of a measure for some rows, arbitrary values for the others; shape (R,).

        Args:
            measure: the measure.
            rows: mask of the requested rows, shape (R,).
        """
        return self.figure(measure)

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:  # noqa: ARG002  used by models with percentiles
        """Return the share of requests that exceed at least one of their limits, shape (R,).

        Args:
            limits_ms: by latency in the order of `LATENCIES`, shape (3, R).

        Raises:
            ValueError: only means are known.
        """
        raise ValueError("only means are known")


@dataclass(frozen=True, slots=True)
class OwnArrays(RowArrays):
    """Base of the arrays that only one kind of replica has."""


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Limits of R replicas, shapes (R,)."""

    max_batch: IntArray
    """N ≥ 1: maximum requests in the batch."""
    max_queue: IntArray
    """Q ≥ 0: maximum requests queued behind a full batch."""
    kv_capacity_tokens: FloatArray
    """Tokens of KV cache; inf if unknown."""
    own: OwnArrays | None = None
    """Arrays specific to one kind; None for its defaults."""


@dataclass(frozen=True, slots=True)
class Variability:
    """Coefficients of variation of the requests of R replicas, shapes (R,)."""

    arrival_cv: FloatArray
    """CV of the interarrival times; 1 for a Poisson process."""
    in_tokens_cv: FloatArray
    out_tokens_cv: FloatArray


VARIABILITY = tuple(field.name for field in fields(Variability))
"""Document keys of the coefficients, in this order."""


class TargetChecker(Protocol):
    """Checks one replica against single targets."""

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return a function from a measure and its limit to the excess at a rate, at most 0 if it is met."""

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return a rate up to which all targets are met at every rate; 0 if none is known."""


class QueueModel(RowArrays, ABC):
    """R replicas, each with its latency model, batch limit and queue capacity."""

    name: ClassVar[str]
    """Name in documents."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether a measure is available; by default the means only."""
        return measure.percentile is None and not measure.is_missed

    takes_variability: ClassVar[bool] = False
    """Whether the queue model supports non-Poisson arrivals and variable lengths."""
    own_variability: ClassVar[tuple[str, ...]] = ()
    """Document keys of the supported coefficients of variation, if not all are supported."""
    means_only: ClassVar[bool] = False
    """Whether only long-run means are available."""
    chunk_elements: ClassVar[int] = 2**20
    """States per chunk of rows, large enough that the overhead per chunk is negligible."""
    judges_shares: ClassVar[bool] = False
    """Whether sizing checks single targets with `judge`: because that is cheaper than `analyze`, or because a
    latency can fall as the rate grows, so that the lowest rate can miss a target that higher rates meet.
    """

    @classmethod
    @abstractmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Build the replicas.

        Args:
            law: latency model of the R rows; every request must take time.
            limits: batch, queue and memory limits.
            variability: coefficients of variation.
        """

    @property
    @abstractmethod
    def law_type(self) -> type[Law]:
        """The latency model that this queue model uses."""

    @property
    @abstractmethod
    def least_rate_rps(self) -> FloatArray:
        """Lower end of the rates searched by sizing [requests/s], shape (R,)."""

    @property
    @abstractmethod
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""

    @property
    def is_non_monotone(self) -> BoolArray:
        """Whether a latency can fall as the rate grows, shape (R,)."""
        return np.zeros(len(self.stable_rate_rps), np.bool_)

    @abstractmethod
    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the long-run metrics at arrival rates > 0, shape (R,); finite above the stable rate, too."""

    def judge(self, row: int) -> TargetChecker:
        """Return a checker of single targets for one row; by default, it analyses the row."""
        return _AnalysedReplica(self.take(np.array([row])))


@dataclass(frozen=True, slots=True)
class _AnalysedReplica(TargetChecker):
    """Checks one replica against its means."""

    replica: QueueModel

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return a function from a measure and its limit to the relative excess at a rate."""
        found = self.replica.analyze(np.array([rate_rps]))
        return lambda measure, limit: float(found.figure(measure)[0]) / limit - 1

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:  # noqa: ARG002  the model is not known
        """Return 0: no rate is known up to which all targets are met."""
        return 0.0
