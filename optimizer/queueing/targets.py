"""Targets: what a figure of a replica must not exceed, and the one judgement of whether it does.

A target is a metric, a statistic of it (the mean, or a percentile) and a limit. Sizing, verification, prices,
tables and pictures all compare a figure with its limit here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.queueing.measures import (
    LATENCIES,
    MEANS,
    METRICS,
    MISSED,
    LatencyName,
    MetricName,
    TargetMeasure,
)
from optimizer.queueing.performance import Performance

TARGET_TOLERANCE = 1e-9
"""Sizing counts a target as met up to this relative excess, which absorbs rounding."""
MISS_TOLERANCE = 1e-6
"""Relative excess over a target at the load per replica that rounding may cause."""


def target_ratio(value: FloatArray | float, limit: FloatArray | float) -> FloatArray:
    """Return figures over their limits: above one a target is missed; 0 where the limit is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.divide(value, limit))


def target_share(value: float, limit: float | None) -> float | None:
    """Return a figure as a share of its limit, none where there is no limit."""
    return None if limit is None else float(target_ratio(value, limit))


def meets_target(
    value: FloatArray | float, limit: FloatArray | float, tolerance: float = MISS_TOLERANCE
) -> BoolArray:
    """Return whether figures keep to their limits, up to a relative tolerance."""
    return np.asarray(target_ratio(value, limit) - 1 <= tolerance)


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of R rows, over the same K measures."""

    measures: tuple[TargetMeasure, ...]
    limits: FloatArray
    """In the unit of each measure, shape (K, R); infinity where there is no target."""
    tps: BoolArray
    """Whether the row has a throughput target, which caps its rate; shape (R,)."""
    per_request: FloatArray | None = None
    """What a single request must not exceed to count as served in time: limits in ms by latency, shape
    (3, R); given where a share of requests is a target."""

    @classmethod
    def of_limits(
        cls,
        limits: Sequence[Mapping[TargetMeasure, float]],
        tps: BoolArray,
        per_request: Iterable[Mapping[LatencyName, float]] = (),
    ) -> "Targets":
        """Return targets over every measure that one of the rows has a limit on, means first.

        Args:
            limits: by measure, one mapping for each row.
            tps: whether the row has a throughput target, shape (R,).
            per_request: what single requests must keep to, one mapping for each row; used where a share of
                requests is a target.
        """
        asked = {measure for mine in limits for measure in mine}
        others = sorted(asked - set(MEANS), key=lambda item: (item.metric, item.percentile or 0.0))
        measures = (*MEANS, *others)
        table = [[mine.get(measure, np.inf) for mine in limits] for measure in measures]
        single = None
        if MISSED in asked:
            rows = [[mine.get(metric, np.inf) for metric in LATENCIES] for mine in per_request]
            single = frozen(np.array(rows).T)
        return cls(measures, frozen(np.array(table).reshape(len(measures), len(limits))), tps, single)

    @property
    def metrics(self) -> list[MetricName]:
        """All metrics that limits are on."""
        asked = {measure.metric for measure in self.measures}
        if self.per_request is not None:
            asked |= {*LATENCIES}
        return [metric for metric in METRICS if metric in asked]

    @property
    def beyond_means(self) -> BoolArray:
        """Whether a row has a limit on a percentile or on a share of requests; shape (R,)."""
        return np.asarray((self.limits[len(MEANS) :] < np.inf).any(axis=0))

    def take(self, rows: IntArray) -> "Targets":
        """Return the targets of the chosen rows, in their order."""
        per_request = None if self.per_request is None else self.per_request[:, rows]
        return Targets(self.measures, self.limits[:, rows], self.tps[rows], per_request)

    def scaled(self, factor: float, metric: MetricName | None = None) -> "Targets":
        """Return the targets with the limits on one metric, or on all, times a factor."""

        def factors(names: list[MetricName]) -> FloatArray:
            return np.array([[factor if metric in {None, name} else 1.0] for name in names])

        limits = frozen(self.limits * factors([measure.metric for measure in self.measures]))
        if self.per_request is None:
            return Targets(self.measures, limits, self.tps)
        return Targets(self.measures, limits, self.tps, frozen(self.per_request * factors([*LATENCIES])))

    def limit(self, metric: MetricName) -> FloatArray:
        """Return the least limit on a metric, whatever the statistic; shape (R,)."""
        mine = [k for k, measure in enumerate(self.measures) if measure.metric == metric]
        least = self.limits[mine].min(axis=0, initial=np.inf)
        if self.per_request is not None and metric in LATENCIES:
            least = np.minimum(least, self.per_request[LATENCIES.index(metric)])
        return np.asarray(least)

    def limits_of(self, row: int) -> dict[TargetMeasure, float]:
        """Return the limits of a row that bind, by what they are on."""
        mine = self.limits[:, row].tolist()
        return {measure: limit for measure, limit in zip(self.measures, mine, strict=True) if limit < np.inf}

    def figures(self, performance: Performance) -> FloatArray:
        """Return the measured figures, shape (K, R); 0 for what others of the fleet have limits on."""
        return np.array([self._figure(performance, k) for k in range(len(self.measures))])

    def _figure(self, performance: Performance, k: int) -> FloatArray:
        measure = self.measures[k]
        if measure not in MEANS and np.isinf(self.limits[k]).all():
            return np.zeros(len(self.tps))  # which the queue model need not know
        if measure != MISSED:
            return performance.figure_of(measure, np.isfinite(self.limits[k]))
        assert self.per_request is not None
        return performance.missed_share(self.per_request)

    def ratios(self, performance: Performance) -> FloatArray:
        """Return the figures over their limits, shape (K, R)."""
        return target_ratio(self.figures(performance), self.limits)

    def met(self, performance: Performance) -> BoolArray:
        """Return whether a row keeps to all its latency targets, up to rounding; shape (R,)."""
        if MISSED not in self.measures:
            excess = performance.excess(self.limits_of(row) for row in range(len(self.tps)))
            if excess is not None:
                return np.asarray(excess <= MISS_TOLERANCE)
        return np.asarray(meets_target(self.figures(performance), self.limits).all(axis=0))
