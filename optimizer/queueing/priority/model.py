"""Queue model of classes with priorities that share one continuous batch (docs/math.md, section 25).

The oldest waiting request of the highest priority takes the next free slot of the batch; running requests are
never interrupted. Each row is one class of one queue. Rates are those of the entire queue, whose mix is
fixed, and metrics are those of the row's class. Sizing a row therefore returns the maximum rate of its queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.queueing.continuous.model import ContinuousPerformance, ContinuousQueues
from optimizer.queueing.measures import LatencyName, TargetMeasure
from optimizer.queueing.performance import Performance, QueueModel, ReplicaLimits, Variability
from optimizer.queueing.priority.latencies import ClassLatencies, of_iterations, of_service_times
from optimizer.queueing.reference import ReplicaQueues
from optimizer.timing import Law

UNLIMITED_QUEUE = 2**40
"""Queue capacity of a queue with classes [requests]."""

COUNTED = ("offered_rps", "throughput_rps", "in_service", "in_queue")
"""Metrics of the queue that are multiplied by the class's share."""
WITH_WAIT = ("response_ms", "wait_ms", "ttft_ms")
"""Metrics that include the queueing time."""


class ClassMix(NamedTuple):
    """The K classes of one queue, in the given order; shapes (K,)."""

    share: FloatArray
    """Share of the queue's requests."""
    above: FloatArray
    """Share of the queue's load from classes of higher priority."""
    upto: FloatArray
    """Share of the queue's load from classes of higher or equal priority; 1 for the lowest."""

    @classmethod
    def of(
        cls, rates: Sequence[float], priorities: Sequence[int], work: Sequence[float] | None = None
    ) -> Self:
        """Return the mix of classes in any order; classes of equal priority are served as one.

        Args:
            rates: arrival rates, at least one of them above zero.
            priorities: 1 is the highest.
            work: mean work of a request, in any unit; default: the same in all classes.
        """
        rate, rank = np.array(rates, dtype=np.float64), np.array(priorities)
        load = rate * (1.0 if work is None else np.array(work))
        levels = np.unique(rank)
        upto = np.array([load[rank <= level].sum() for level in levels])
        upto /= upto[-1]
        above = np.concatenate(([0.0], upto[:-1]))
        place = np.searchsorted(levels, rank)
        return cls(rate / rate.sum(), above[place], upto[place])


@dataclass(frozen=True, slots=True)
class ClassPerformance(ContinuousPerformance):
    """Long-run means of R classes, with their latency distributions."""

    latencies: ClassLatencies

    def wait_quantile(self, share: float) -> FloatArray:
        """Return a quantile of the time before the prefill, over all requests of a class [ms]."""
        return self.latencies.wait_quantile(share)

    def quantile_of_all(self, metric: LatencyName, percent: float) -> float:
        """Return a percentile of a latency over the requests of all rows; all rows belong to one queue."""
        from scipy.optimize import brentq

        ends = self.figure(TargetMeasure(metric, percent))
        low, high = float(ends.min()), float(ends.max())
        share = self.offered_rps / self.offered_rps.sum()
        beyond = getattr(self.latencies, f"{metric}_beyond")

        def excess(x: float) -> float:
            return float(share @ beyond(np.full(len(share), x))) - (1 - percent / 100)

        return float(brentq(excess, low, high)) if excess(low) > 0 > excess(high) else low


@dataclass(frozen=True, slots=True)
class PriorityQueues(QueueModel):
    """R classes of queues in front of continuous batches."""

    name: ClassVar[str] = "priority"
    takes_variability: ClassVar[bool] = True
    queues: QueueModel
    """The queue of each row, of unlimited capacity; the same for all classes of a queue."""
    share: FloatArray
    """Share of the queue's requests, shape (R,)."""
    above: FloatArray
    """Share of the queue's load with a higher priority, shape (R,)."""
    upto: FloatArray
    """Share of the queue's load with a higher or equal priority, shape (R,)."""
    work_scv: FloatArray
    """Squared coefficient of variation of a request's work, shape (R,)."""

    @classmethod
    def of(cls, queues: QueueModel, mixes: Sequence[ClassMix], work_cv: FloatArray) -> Self:
        """Return the classes of some queues, one queue after another.

        Args:
            queues: the queue of each class; a queue is repeated once for each of its classes.
            mixes: the classes of each queue.
            work_cv: coefficient of variation of a request's work, shape (R,).
        """
        share, above, upto = (np.concatenate(column) for column in zip(*mixes, strict=True))
        return cls(queues, share, above, upto, work_cv**2)

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether a measure is available: means, and percentiles of latencies."""
        return ContinuousQueues.supports_measure(measure)

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Build queues with one class each, whose work varies as the output length does."""
        queues = ContinuousQueues.of_law(law, limits, variability)
        one = np.ones(len(limits.max_batch))
        return cls(queues, one, 0 * one, one, variability.out_tokens_cv**2)

    @property
    def law_type(self) -> type[Law]:
        """The latency model that this queue model uses."""
        return self.queues.law_type

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lower end of the rates searched by sizing [requests/s], shape (R,)."""
        return self.queues.least_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate of the queue [requests/s], shape (R,)."""
        return self.queues.stable_rate_rps

    @property
    def is_non_monotone(self) -> BoolArray:
        """Whether a latency can fall as the rate grows, shape (R,)."""
        return self.queues.is_non_monotone

    def analyze(self, rate_rps: FloatArray) -> ClassPerformance:
        """Return means and distributions of each class at total rates `rate_rps` > 0, shape (R,)."""
        found = self.queues.analyze(rate_rps)
        latencies, ratio = self._latencies(found)
        change = latencies.turn_ms - found.wait_ms
        own = {name: self.share * getattr(found, name) for name in COUNTED}
        own |= {name: getattr(found, name) + change for name in WITH_WAIT}
        own["in_queue"] *= ratio
        values = {field.name: getattr(found, field.name) for field in fields(Performance)}
        return ClassPerformance(**(values | own), latencies=latencies)

    def _latencies(self, found: Performance) -> tuple[ClassLatencies, FloatArray]:
        shares = self.above, self.upto
        if isinstance(self.queues, ReplicaQueues):
            return of_service_times(self.queues, found, shares, self.work_scv)
        assert isinstance(self.queues, ContinuousQueues)
        assert isinstance(found, ContinuousPerformance)
        return of_iterations(self.queues, found, shares, self.work_scv)
