"""Queue model of request classes with priorities that share one continuous batch (math.md section 25).

The oldest waiting request of the highest priority takes the next free slot of the batch; running requests are
not interrupted. Each row is one class of one queue. Rates are those of the entire queue, in which classes
have fixed shares, and metrics are those of the row's class. So sizing a row returns the maximum rate of its
queue at which this class meets its targets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.continuous.model import ContinuousPerformance, ContinuousQueues
from optimizer.queueing.measures import LatencyName, TargetMeasure
from optimizer.queueing.performance import Performance, QueueModel, ReplicaLimits, Variability
from optimizer.queueing.priority.latencies import ClassLatencies, of_iterations, of_service_times
from optimizer.queueing.reference import ReplicaQueues
from optimizer.timing.law import Law

UNLIMITED_QUEUE = 2**40
"""Queue capacity that is used for queues with classes, which are unlimited [requests]."""

COUNTED = ("offered_rps", "throughput_rps", "in_service", "in_queue")
"""Metrics of a queue that are multiplied by the share of a class."""
WITH_WAIT = ("response_ms", "wait_ms", "ttft_ms")
"""Metrics that include the queueing time and therefore differ by class."""


class ClassMix(NamedTuple):
    """The shares of the K classes of one queue, shapes (K,)."""

    share: FloatArray
    """Share of the queue's requests that belong to each class."""
    above: FloatArray
    """Share of the queue's load from classes of higher priority."""
    upto: FloatArray
    """Share of the queue's load from classes of higher or equal priority; 1 for the lowest."""

    @classmethod
    def of(
        cls, rates: Sequence[float], priorities: Sequence[int], work: Sequence[float] | None = None
    ) -> Self:
        """Create the mix of classes, in the given order; classes of equal priority are served as one.

        Args:
            rates: arrival rates of the classes; at least one is above 0.
            priorities: priorities of the classes; 1 is the highest.
            work: mean work of a request of each class, in any unit; default: equal in all classes.
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
    """Long-run means of R classes, with the latency distributions of each."""

    latencies: ClassLatencies
    of_queue: Performance
    """Long-run means over the requests of all classes, of the queue without priorities."""

    def wait_quantile(self, share: float) -> FloatArray:
        """Return the time before the prefill that a share of each class's requests does not exceed [ms]."""
        return self.latencies.wait_quantile(share)

    def quantile_of_all(self, metric: LatencyName, percent: float) -> float:
        """Return a percentile of a latency over the requests of all rows [ms]; all belong to one queue."""
        from scipy.optimize import brentq

        ends = self.figure(TargetMeasure(metric, percent))
        low, high = float(ends.min()), float(ends.max())
        share = self.offered_rps / self.offered_rps.sum()

        def excess(x: float) -> float:
            return float(share @ self.latencies.survival(metric, np.full(len(share), x))) - (
                1 - percent / 100
            )

        return float(brentq(excess, low, high)) if excess(low) > 0 > excess(high) else low


@dataclass(frozen=True, slots=True)
class PriorityQueues(QueueModel):
    """Queue model of R classes that wait for continuous batches, by priority."""

    name: ClassVar[str] = "priority"
    takes_variability: ClassVar[bool] = True
    queues: QueueModel
    """Queue of each row without priorities, of unlimited capacity; equal for all classes of a queue."""
    share: FloatArray
    """Share of the queue's requests that belong to the row's class, shape (R,)."""
    above: FloatArray
    """Share of the queue's load that has higher priority than the row's class, shape (R,)."""
    upto: FloatArray
    """Share of the queue's load that has higher or equal priority, shape (R,)."""
    work_scv: FloatArray
    """Squared coefficient of variation of a request's work, shape (R,)."""
    shape: IntArray
    """Number of the request shape of each row of the queue's load, if its requests belong to the class; −1 if
    they belong to others. Shape (R, H); with one column, all classes have the same requests.
    """

    @classmethod
    def of(
        cls,
        queues: QueueModel,
        mixes: Sequence[ClassMix],
        work_cv: FloatArray,
        shape: IntArray | None = None,
    ) -> Self:
        """Create one row for each class of several queues, one queue after another.

        Args:
            queues: the queue of each class; each queue is repeated for all its classes.
            mixes: mix of classes of each queue.
            work_cv: coefficient of variation of a request's work, shape (R,).
            shape: numbers of the request shapes of each class; None if all have the same requests.
        """
        share, above, upto = (np.concatenate(column) for column in zip(*mixes, strict=True))
        same = np.zeros((len(work_cv), 1), np.int64)
        return cls(queues, share, above, upto, work_cv**2, same if shape is None else shape)

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether the model computes a target measure: means, and percentiles of latencies."""
        return ContinuousQueues.supports_measure(measure)

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create queues with one class each, whose work varies like the output length."""
        queues = ContinuousQueues.of_law(law, limits, variability)
        one = np.ones(len(limits.max_batch))
        same = np.zeros((len(one), 1), np.int64)
        return cls(queues, one, 0 * one, one, variability.out_tokens_cv**2, same)

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""
        return self.queues.law_type

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return self.queues.least_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate of each row's queue [requests/s], shape (R,)."""
        return self.queues.stable_rate_rps

    @property
    def is_non_monotone(self) -> BoolArray:
        """Mask of rows in which a latency can fall as the rate grows, shape (R,)."""
        return self.queues.is_non_monotone

    def analyze(self, rate_rps: FloatArray) -> ClassPerformance:
        """Return the metrics of each class at total rates `rate_rps` > 0 of its queue, shape (R,)."""
        performance = self.queues.analyze(rate_rps)
        everyone, ratio = self._latencies(performance)
        change = everyone.turn_ms - performance.wait_ms
        own = {name: self.share * getattr(performance, name) for name in COUNTED}
        own |= {name: getattr(performance, name) + change for name in WITH_WAIT}
        own["in_queue"] *= ratio
        latencies = everyone
        if self.shape.shape[1] > 1:  # classes differ in their requests, too
            latencies = replace(everyone.of_rows(self.shape >= 0), shape=self.shape)
            prefill = latencies.prefill_ms - everyone.prefill_ms
            own["ttft_ms"] += prefill
            own["response_ms"] += latencies.e2e_ms - everyone.e2e_ms
            own["prefill_ms"], own["itl_ms"] = performance.prefill_ms + prefill, latencies.itl_ms
        values = {field.name: getattr(performance, field.name) for field in fields(Performance)}
        return ClassPerformance(**(values | own), latencies=latencies, of_queue=performance)

    def _latencies(self, performance: Performance) -> tuple[ClassLatencies, FloatArray]:
        shares = self.above, self.upto
        if isinstance(self.queues, ReplicaQueues):
            return of_service_times(self.queues, performance, shares, self.work_scv)
        assert isinstance(self.queues, ContinuousQueues)
        assert isinstance(performance, ContinuousPerformance)
        return of_iterations(self.queues, performance, shares, self.work_scv)
