"""What the users of a replica see at a rate, and what a queue model is: it gives that, for R rows at once.

Rates are requests per second at this boundary. A queue model says which measures it knows; the kinds of
replicas say which laws drive it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.measures import METRICS, TargetMeasure
from optimizer.timing import Law

MS_PER_S = 1000.0
QUEUE_TO_BATCH_RATIO = 10
"""Queue capacity, as a multiple of the batch limit, where none is stated (the reference's first family)."""


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
    """Share of arrivals that find the queue full."""
    p_empty: FloatArray
    p_full: FloatArray

    def take(self, rows: IntArray) -> "Performance":
        """Return the means of the chosen rows, in their order, and nothing else that is known of them."""
        return Performance(*(getattr(self, field.name)[rows] for field in fields(Performance)))

    @property
    def own(self) -> Mapping[str, FloatArray]:
        """Figures that only one kind has, by the fields of pools that show them; shapes (R,)."""
        return {}

    @property
    def knows_percentiles(self) -> bool:
        """Whether figures include percentiles of latencies."""
        return False

    def excess(self, limits: Iterable[Mapping[TargetMeasure, float]]) -> FloatArray | None:  # noqa: ARG002
        """Return by how much the worst of some targets is exceeded, shape (R,), at most 0 where all hold.

        Args:
            limits: the targets of each row; read only where figures do not tell it.

        Returns:
            None where figures tell it as cheaply.
        """
        return None

    def figure(self, measure: TargetMeasure) -> FloatArray:
        """Return a figure that can have a target, shape (R,).

        Raises:
            ValueError: a percentile of means.
        """
        if measure.percentile is not None:
            raise ValueError(f"{measure.label}: only means are known")
        return np.asarray(getattr(self, METRICS[measure.metric].figure))

    def figure_of(self, measure: TargetMeasure, rows: BoolArray) -> FloatArray:  # noqa: ARG002  for those row by row
        """Return a figure of some rows, whatever of the others, shape (R,).

        Args:
            measure: the figure.
            rows: those that are asked for, shape (R,).
        """
        return self.figure(measure)

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:  # noqa: ARG002  for those that know more
        """Return the share of requests that exceed at least one of their limits.

        Args:
            limits_ms: by latency in the order of `LATENCIES`, shape (3, R).

        Raises:
            ValueError: only means are known.
        """
        raise ValueError("only means are known")


@dataclass(frozen=True, slots=True)
class OwnArrays:
    """What R replicas of one kind have beside the limits of all; the arrays of a kind inherit from it."""

    def take(self, rows: IntArray) -> Self:
        """Return the chosen rows, in their order."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """What R replicas hold, shapes (R,)."""

    max_batch: IntArray
    """N ≥ 1: requests in the batch."""
    max_queue: IntArray
    """Q ≥ 0: requests that may wait behind a full batch."""
    kv_capacity_tokens: FloatArray
    """Tokens of KV cache; infinity where the limit is not known."""
    own: OwnArrays | None = None
    """What only their kind has; none: it has no more than this, or its defaults."""


@dataclass(frozen=True, slots=True)
class Variability:
    """How much the requests of R replicas vary: coefficients of variation, shapes (R,)."""

    arrival_cv: FloatArray
    """Of the times between arrivals; 1: a Poisson process."""
    in_tokens_cv: FloatArray
    out_tokens_cv: FloatArray


VARIABILITY = tuple(field.name for field in fields(Variability))
"""What documents call these, in their order."""


class TargetChecker(Protocol):
    """Tells of one replica whether it keeps to targets."""

    def at(self, rate_rps: float) -> Callable[[TargetMeasure, float], float]:
        """Return what gives the excess over a limit on a measure at a rate, at most 0 where it is kept."""

    def safe_rate_rps(self, limits: Mapping[TargetMeasure, float]) -> float:
        """Return a rate up to which all targets hold, at every rate; 0 where none is known."""


class QueueModel(ABC):
    """R replicas, each with its latency model, batch limit and queue capacity."""

    name: ClassVar[str]
    """What it is called in documents."""

    @classmethod
    @abstractmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Say whether the figures include a measure."""

    takes_variability: ClassVar[bool] = False
    """Whether it knows of arrivals that are not Poisson, and of lengths by more than their means."""
    own_variability: ClassVar[tuple[str, ...]] = ()
    """Coefficients of variation that it knows where it does not know all, by their keys in documents."""
    means_only: ClassVar[bool] = False
    """Whether its figures are long-run means, a number each, and nothing else."""
    chunk_elements: ClassVar[int] = 2**20
    """States of the rows that are worked on together: so many that what is done once a chunk takes little of
    the time."""
    judges_shares: ClassVar[bool] = False
    """Whether `judge` tells of targets more cheaply than figures do."""

    @classmethod
    @abstractmethod
    def of_law(cls, law: Law, room: ReplicaLimits, variability: Variability) -> Self:
        """Build the replicas; every request must take time."""

    @property
    @abstractmethod
    def law_type(self) -> type[Law]:
        """The law that drives it: with it the columns mean something."""

    @abstractmethod
    def columns(self) -> list[FloatArray | IntArray | BoolArray]:
        """Return all that the figures of a row depend on, each of shape (R,)."""

    @property
    @abstractmethod
    def least_rate_rps(self) -> FloatArray:
        """The lower end of the rates that sizing considers, shape (R,)."""

    @property
    @abstractmethod
    def stable_rate_rps(self) -> FloatArray:
        """The largest rate that counts as stable, shape (R,)."""

    @property
    @abstractmethod
    def is_non_monotone(self) -> BoolArray:
        """Whether latencies step with the rate, and may fall at a step; shape (R,)."""

    @abstractmethod
    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the long-run figures at arrival rates > 0, shape (R,)."""

    def judge(self, row: int) -> TargetChecker:
        """Return what tells of a row whether it keeps to targets at a rate, one target at a time."""
        raise NotImplementedError

    @abstractmethod
    def take(self, rows: IntArray) -> Self:
        """Return the replicas of the chosen rows, in their order."""
