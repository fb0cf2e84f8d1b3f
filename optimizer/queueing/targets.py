"""Targets: upper limits on metrics of replicas, and the comparison of values with limits.

A target is a metric, a statistic of it (the mean or a percentile) and a limit. Sizing, verification, prices,
tables and charts all use the comparison defined here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.queueing.measures import (
    LATENCIES,
    MEANS,
    METRICS,
    LatencyName,
    MetricName,
    TargetMeasure,
)
from optimizer.queueing.performance import Performance

TARGET_TOLERANCE = 1e-9
"""Relative excess over a limit up to which sizing counts a target as met."""
DELAYED: frozenset[MetricName] = frozenset({"ttft", "e2e"})
"""Names of latencies that include the network latency between client and replica."""
MISS_TOLERANCE = 1e-6
"""Relative excess over a limit, at the load per replica, up to which verification counts a target as met."""
CARD_MISS_TOLERANCE = 10 * MISS_TOLERANCE
"""The same excess for servers on shared cards, whose maximum rates are less exact."""


def target_ratio(value: FloatArray | float, limit: FloatArray | float) -> FloatArray:
    """Return values divided by their limits; above 1 a target is missed. 0 if the limit is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.divide(value, limit))


def target_share(value: float, limit: float | None) -> float | None:
    """Return a value as a fraction of its limit; None without a limit."""
    return None if limit is None else float(target_ratio(value, limit))


def target_percent(share: float) -> int:
    """Return a value as integer percent of its limit: at most 100 if the target is met, at least 101 if not.

    Args:
        share: the value as a fraction of its limit.
    """
    rounded = round(100 * share)
    return min(rounded, 100) if share <= 1 + MISS_TOLERANCE else max(rounded, 101)


def meets_target(
    value: FloatArray | float, limit: FloatArray | float, tolerance: float = MISS_TOLERANCE
) -> BoolArray:
    """Return a mask of values that are within their limits.

    Args:
        limit: limits, in the same unit.
        tolerance: relative excess that is tolerated.
    """
    return np.asarray(target_ratio(value, limit) - 1 <= tolerance)


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of R rows (replicas) on the same K measures."""

    measures: tuple[TargetMeasure, ...]
    limits: FloatArray
    """Limits in the units of the measures, shape (K, R); inf without a target."""
    tps: BoolArray
    """Mask of rows with a throughput target, which limits their rate; shape (R,)."""
    per_request: FloatArray | None = None
    """Limits on the latencies of each single request [ms], shape (3, R); given if the share of late requests
    is a target.
    """

    @classmethod
    def of_limits(
        cls,
        limits: Sequence[Mapping[TargetMeasure, float]],
        tps: BoolArray,
        per_request: Iterable[Mapping[LatencyName, float]] = (),
    ) -> "Targets":
        """Create targets on every measure that any row limits, means first.

        Args:
            limits: limits by measure, with one mapping for each row.
            tps: mask of rows with a throughput target, shape (R,).
            per_request: limits on single requests, with one mapping for each row; used if a share of late
                requests is a target.
        """
        asked = {measure for mine in limits for measure in mine}
        others = sorted(
            asked - set(MEANS),
            key=lambda item: (item.metric, item.percentile or 0.0, item.hit_rate, item.shape),
        )
        measures = (*MEANS, *others)
        table = [[mine.get(measure, np.inf) for mine in limits] for measure in measures]
        single = None
        if any(measure.is_missed for measure in asked):
            rows = [[mine.get(metric, np.inf) for metric in LATENCIES] for mine in per_request]
            single = frozen(np.array(rows).T)
        return cls(measures, frozen(np.array(table).reshape(len(measures), len(limits))), tps, single)

    @property
    def metrics(self) -> list[MetricName]:
        """Names of all metrics with a limit."""
        asked = {measure.metric for measure in self.measures}
        if self.per_request is not None:
            asked |= {*LATENCIES}
        return [metric for metric in METRICS if metric in asked]

    @property
    def has_percentile(self) -> BoolArray:
        """Mask of rows with a target on a percentile or on the share of late requests, shape (R,)."""
        return np.asarray((self.limits[len(MEANS) :] < np.inf).any(axis=0))

    def take(self, rows: IntArray) -> "Targets":
        """Return the targets of the rows with the given indices."""
        per_request = None if self.per_request is None else self.per_request[:, rows]
        return Targets(self.measures, self.limits[:, rows], self.tps[rows], per_request)

    def scaled(self, factor: float, metric: MetricName | None = None) -> "Targets":
        """Return the targets with limits multiplied by a factor: those on one metric, or all for None."""

        def factors(names: list[MetricName]) -> FloatArray:
            return np.array([[factor if metric in {None, name} else 1.0] for name in names])

        limits = frozen(self.limits * factors([measure.metric for measure in self.measures]))
        single = None if self.per_request is None else frozen(self.per_request * factors([*LATENCIES]))
        return Targets(self.measures, limits, self.tps, single)

    def before(self, offset_ms: FloatArray) -> "Targets":
        """Return the targets minus a network latency [ms], shape (R,), for latencies that include it."""
        if not offset_ms.any():
            return self
        single = self.per_request
        if single is not None:
            single = frozen(single - np.outer([metric in DELAYED for metric in LATENCIES], offset_ms))
        return Targets(self.measures, frozen(self.limits - self.delays(offset_ms)), self.tps, single)

    def delays(self, offset_ms: FloatArray) -> FloatArray:
        """Return the part of each measure that is network latency [ms], shape (K, R)."""
        delayed = [measure.metric in DELAYED for measure in self.measures]
        return np.asarray(np.outer(delayed, offset_ms), np.float64)

    def limit(self, metric: MetricName) -> FloatArray:
        """Return the smallest limit on a metric over all its statistics, shape (R,)."""
        mine = [k for k, measure in enumerate(self.measures) if measure.metric == metric]
        least = self.limits[mine].min(axis=0, initial=np.inf)
        if self.per_request is not None and metric in LATENCIES:
            least = np.minimum(least, self.per_request[[*LATENCIES].index(metric)])
        return np.asarray(least)

    def limits_of(self, row: int) -> dict[TargetMeasure, float]:
        """Return the finite limits of a row, by measure."""
        mine = self.limits[:, row].tolist()
        return {measure: limit for measure, limit in zip(self.measures, mine, strict=True) if limit < np.inf}

    def figures(self, performance: Performance) -> FloatArray:
        """Return the values of the measures in a performance, shape (K, R); 0 without a finite limit."""
        return self._figures(
            performance, lambda measure, limits: performance.figure(measure, np.isfinite(limits))
        )

    def judged(self, performance: Performance) -> FloatArray:
        """Return values that exceed their limits exactly where the measures do, shape (K, R) (eq. 260)."""
        return self._figures(performance, performance.judged)

    def _figures(
        self, performance: Performance, figure: Callable[[TargetMeasure, FloatArray], FloatArray]
    ) -> FloatArray:
        return np.array([self._figure(performance, k, figure) for k in range(len(self.measures))])

    def _figure(
        self,
        performance: Performance,
        k: int,
        figure: Callable[[TargetMeasure, FloatArray], FloatArray],
    ) -> FloatArray:
        measure = self.measures[k]
        if measure not in MEANS and np.isinf(self.limits[k]).all():
            return np.zeros(len(self.tps))  # the queue model might not support it
        if not measure.is_missed:
            return figure(measure, self.limits[k])
        assert self.per_request is not None
        return performance.missed_share(self.per_request) * (1 - measure.hit_rate)

    def ratios(self, performance: Performance) -> FloatArray:
        """Return the values of the measures divided by their limits, shape (K, R)."""
        return target_ratio(self.figures(performance), self.limits)

    def met(self, performance: Performance, asked: BoolArray | None = None) -> BoolArray:
        """Return a mask of rows that meet all their targets, up to rounding; shape (R,).

        Args:
            performance: performance of the rows.
            asked: mask of the rows for which the result is needed; None for all.
        """
        if not any(measure.is_missed for measure in self.measures):
            excess = performance.excess(self.limits_of(row) for row in range(len(self.tps)))
            if excess is not None:
                return np.asarray(excess <= MISS_TOLERANCE)
        # A percentile takes much longer than comparing it, and is only needed where it may be missed.
        met = np.asarray((self.judged(performance) <= self.limits).all(axis=0))
        left = ~met if asked is None else ~met & asked
        if left.any():
            figures = self._figures(
                performance, lambda measure, limits: performance.figure(measure, np.isfinite(limits) & left)
            )
            met[left] = np.asarray(meets_target(figures, self.limits).all(axis=0))[left]
        return met
