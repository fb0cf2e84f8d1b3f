"""Targets: what a figure of a replica must not exceed, and the one judgement of whether it does.

A target is a metric, a statistic of it (the mean, or a percentile) and a limit. Sizing, verification, prices,
tables and pictures all compare a figure with its limit here.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.queueing.measures import MEANS, Measure, MetricName
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

    measures: tuple[Measure, ...]
    limits: FloatArray
    """In the unit of each measure, shape (K, R); infinity where there is no target."""
    tps: BoolArray
    """Whether the row has a throughput target, which caps its rate; shape (R,)."""

    @classmethod
    def of_means(cls, limits: dict[MetricName, FloatArray], tps: BoolArray) -> "Targets":
        """Return targets on means, from limits by metric, each of shape (R,)."""
        none = np.full(len(tps), np.inf)
        return cls(MEANS, np.array([limits.get(measure.metric, none) for measure in MEANS]), tps)

    def take(self, rows: IntArray) -> "Targets":
        """Return the targets of the chosen rows, in their order."""
        return Targets(self.measures, self.limits[:, rows], self.tps[rows])

    def scaled(self, factor: float, metric: MetricName | None = None) -> "Targets":
        """Return the targets with the limits on one metric, or on all, times a factor."""
        concerned = [metric in {None, measure.metric} for measure in self.measures]
        factors = np.where(concerned, factor, 1.0)[:, np.newaxis]
        return Targets(self.measures, frozen(self.limits * factors), self.tps)

    def limit(self, metric: MetricName) -> FloatArray:
        """Return the least limit on a metric, whatever the statistic; shape (R,)."""
        mine = [k for k, measure in enumerate(self.measures) if measure.metric == metric]
        return np.asarray(self.limits[mine].min(axis=0, initial=np.inf))

    def figures(self, performance: Performance) -> FloatArray:
        """Return the measured figures, shape (K, R)."""
        return np.array([performance.figure(measure) for measure in self.measures])

    def ratios(self, performance: Performance) -> FloatArray:
        """Return the figures over their limits, shape (K, R)."""
        return target_ratio(self.figures(performance), self.limits)

    def met(self, performance: Performance) -> BoolArray:
        """Return whether a row keeps to all its latency targets, up to rounding; shape (R,)."""
        return np.asarray(meets_target(self.figures(performance), self.limits).all(axis=0))
