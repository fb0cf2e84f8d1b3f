"""The highest rates between which targets hold, where each is judged by one probability a rate.

Without a window latencies grow with the rate. With one they are long at low rates as well, so that rates are
looked at downwards, and the first that hold are the answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import QueueModel, TargetChecker
from optimizer.queueing.roots import closed_brackets, zeros_or
from optimizer.queueing.targets import Targets

RATES_SCANNED = 24
"""Rates at which targets are looked at, from the largest down, where windows make answers late."""
SHARE_TOLERANCE = 1e-7
"""Relative width of the bracket around a rate that is found by probabilities."""
MIN_SHARE = 1e-12
"""Stands for less of what a target allows, where its logarithm is taken."""


def highest_intervals(replicas: QueueModel, targets: Targets) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the ends of the highest interval of each row; where there is none, the rate that misses least.

    Args:
        replicas: R replicas that tell how much single targets are exceeded.
        targets: what they are to keep to.

    Returns:
        Largest rates (NaN where there is none), lowest rates and best rates, shapes (R,).
    """
    count = len(targets.tps)
    low, high = replicas.least_rate_rps, replicas.stable_rate_rps
    largest, lowest, best = np.full(count, np.nan), np.zeros(count), np.zeros(count)
    tops, bottoms = _Edges(), _Edges()
    for row in range(count):
        judged = _Judged(replicas.judge(row), [*targets.limits_of(row).items()])
        scanned = RATES_SCANNED if replicas.is_non_monotone[row] else 2
        rates = np.geomspace(high[row], low[row], scanned).tolist()
        first = next((i for i, rate in enumerate(rates) if judged.excess(rate) <= 0), None)
        if first is None:
            best[row] = judged.best(rates)
            continue
        largest[row], lowest[row] = rates[first], rates[-1]
        if first > 0:
            tops.add(row, judged, rates[first], rates[first - 1])
        last = judged.last_met(rates, first)
        if last < len(rates) - 1:
            bottoms.add(row, judged, rates[last], rates[last + 1])
    largest[tops.rows] = tops.found()
    lowest[bottoms.rows] = bottoms.found()
    return largest, lowest, best


@dataclass(slots=True)
class _Judged:
    """One replica and its targets, those first that were missed last: at most rates one of them tells it."""

    judge: TargetChecker
    limits: list[tuple[TargetMeasure, float]]
    known: dict[float, float] = field(default_factory=dict)
    """The excess over the first target that was found to be missed, else over the worst, by rate."""

    def excess(self, rate_rps: float) -> float:
        """Return by how much a target is exceeded, at most 0 where all hold."""
        if rate_rps not in self.known:
            worst, at = -1.0, self.judge.at(rate_rps)
            for place, target in enumerate(self.limits):
                worst = max(worst, at(*target))
                if worst > 0:
                    self.limits.insert(0, self.limits.pop(place))
                    break
            self.known[rate_rps] = worst
        return self.known[rate_rps]

    def last_met(self, rates: Sequence[float], first: int) -> int:
        """Return the last of descending rates up to which all hold, from one on that does."""
        sure = self.judge.safe_rate_rps(dict(self.limits)) if first < len(rates) - 1 else 0.0
        for i in range(first + 1, len(rates)):
            if rates[i] <= sure:
                break
            if self.excess(rates[i]) > 0:
                return i - 1
        return len(rates) - 1

    def best(self, rates: Sequence[float]) -> float:
        """Return the rate at which the worst target is exceeded least; none is met by all."""
        worst: dict[float, float] = {}
        for rate in sorted(rates, key=self.excess):
            if worst and self.excess(rate) >= min(worst.values()):
                break
            at = self.judge.at(rate)
            worst[rate] = max(at(*target) for target in self.limits)
        return min(sorted(worst, reverse=True), key=worst.__getitem__)


@dataclass(slots=True)
class _Edges:
    """Where targets begin to be missed, between a rate that meets them and one that does not; R rows."""

    rows: list[int] = field(default_factory=list)
    judged: list[_Judged] = field(default_factory=list)
    ends: list[tuple[float, float]] = field(default_factory=list)

    def add(self, row: int, judged: _Judged, inside: float, outside: float) -> None:
        """Add a row."""
        self.rows.append(row)
        self.judged.append(judged)
        self.ends.append((inside, outside))

    def take(self, rows: IntArray) -> Self:
        """Return the chosen rows."""
        chosen = rows.tolist()
        return type(self)(*([some[row] for row in chosen] for some in (self.rows, self.judged, self.ends)))

    def __call__(self, rates: FloatArray) -> FloatArray:
        """Return the logarithm of what counts over what is allowed, which is close to a straight line."""
        found = zip(self.judged, rates.tolist(), strict=True)
        return np.array([math.log1p(max(one.excess(rate), MIN_SHARE - 1)) for one, rate in found])

    def found(self) -> FloatArray:
        """Return the end of each bracket that meets the targets, once it is closed."""
        if not self.rows:
            return np.zeros(0)
        ends = np.array(self.ends).T
        ends, values = closed_brackets(self, ends, np.array([self(ends[0]), self(ends[1])]), SHARE_TOLERANCE)
        return zeros_or(np.where(values[0] < 0, ends[0], ends[1]), ends, values)
