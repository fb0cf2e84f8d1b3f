"""What the users of a replica see at a rate, and what a queue model is: it gives that, for R rows at once.

Rates are requests per second at this boundary. A queue model says which laws it takes and which measures it
knows; `optimizer.queueing.table` lists them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.measures import METRICS, Measure
from optimizer.timing import Law

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

    def figure(self, measure: Measure) -> FloatArray:
        """Return a figure that can have a target, shape (R,).

        Raises:
            ValueError: a percentile of means.
        """
        if measure.percentile is not None:
            raise ValueError(f"{measure.label}: only means are known")
        return np.asarray(getattr(self, METRICS[measure.metric].figure))


class QueueModel(ABC):
    """R replicas, each with its latency model, batch limit and queue capacity."""

    name: ClassVar[str]
    """What it is called in documents."""

    @classmethod
    @abstractmethod
    def takes(cls, law: type[Law]) -> bool:
        """Say whether a law can drive this queue."""

    @classmethod
    @abstractmethod
    def knows(cls, measure: Measure) -> bool:
        """Say whether the figures include a measure."""

    @classmethod
    @abstractmethod
    def of_law(cls, law: Law, max_batch: IntArray, max_queue: IntArray) -> Self:
        """Build the replicas; every request must take time."""

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
    def steps(self) -> BoolArray:
        """Whether latencies step with the rate, and may fall at a step; shape (R,)."""

    @abstractmethod
    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the long-run figures at arrival rates > 0, shape (R,)."""

    @abstractmethod
    def take(self, rows: IntArray) -> Self:
        """Return the replicas of the chosen rows, in their order."""
