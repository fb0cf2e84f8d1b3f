"""Finds the highest interval of rates at which all targets are met, by checking one target at a time.

Without a batching window, latencies grow with the rate. With a window they are also long at low rates, so
rates are scanned from high to low, and the first interval that meets the targets is returned.
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
"""Number of rates that are scanned in descending order if there is a batching window."""
SHARE_TOLERANCE = 1e-7
"""Relative width of the bracket at which the search for a limiting rate stops."""
DRAFT_TOLERANCE = 2e-3
"""The same if a draft is searched, whose excess is a step function of the rate."""
SLOPE_SHARE = 0.97
"""Share of the limiting rate at which a draft is evaluated for the slope of its excess."""
MIN_SLOPE = 1.0
"""Smallest slope of the logarithm of the excess over that of the rate."""
STEPS = 6
"""Maximum number of steps from the rate of a draft to one that meets the targets."""
STEP_BELOW = 2e-3
"""Share by which a step is longer than the slope says."""
MIN_SHARE = 1e-12
"""Lower bound on the ratio of late share to allowed share, before its logarithm is taken."""


def highest_intervals(
    replicas: QueueModel, targets: Targets, stated_rps: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the highest interval of rates at which each row meets all targets, or its best rate.

    Args:
        replicas: R replicas that can check single targets.
        targets: targets of the rows.
        stated_rps: highest rates to confirm [requests/s], shape (R,); a confirmed rate is returned unchanged.
            If they are given, lowest rates are not searched and are 0.

    Returns:
        Highest rates (NaN if no rate meets the targets), lowest rates, and for rows without such rates the
        rate with the smallest excess; shapes (R,) [requests/s].
    """
    count = len(targets.tps)
    low, high = replicas.least_rate_rps, replicas.stable_rate_rps
    largest, lowest, best = np.full(count, np.nan), np.zeros(count), np.zeros(count)
    for row in range(count):
        limits = [*targets.limits_of(row).items()]
        if not limits:  # every rate up to the highest is stable
            largest[row] = high[row]
            continue
        draft = replicas.draft(row)
        judged = _Judged(draft or replicas.judge(row), limits, DRAFT_TOLERANCE if draft else SHARE_TOLERANCE)
        scanned = RATES_SCANNED if replicas.is_non_monotone[row] else 2
        rates = np.geomspace(high[row], low[row], scanned).tolist()
        first = next((i for i, rate in enumerate(rates) if judged.excess(rate) <= 0), None)
        if first is None:
            best[row] = judged.best(rates)
            continue
        largest[row] = rates[first]
        if stated_rps is not None and draft is None:
            if first > 0:
                largest[row] = _confirmed(judged, rates[first], rates[first - 1], stated_rps[row])
            continue
        if first > 0:
            largest[row] = _edge(judged, rates[first], rates[first - 1])
        if draft is not None:
            largest[row] = _settled(_Judged(replicas.judge(row), limits), judged, largest[row])
            if math.isnan(largest[row]):
                best[row] = judged.best(rates)
                continue
        lowest[row] = rates[-1]
        last = judged.last_met(rates, first)
        if last < len(rates) - 1:
            lowest[row] = _edge(judged, rates[last], rates[last + 1])
    return largest, lowest, best


def _settled(judged: "_Judged", drafted: "_Judged", rate_rps: float) -> float:
    """Lower the limiting rate of a draft until the targets are met; NaN if they are not in a few steps.

    Each step takes the slope of the draft's excess.
    """
    log_excess, log_draft = _LogExcess(judged), _LogExcess(drafted)
    below, at = log_draft(np.array([rate_rps * SLOPE_SHARE, rate_rps]))
    slope = max((at - below) / -math.log(SLOPE_SHARE), MIN_SLOPE)
    for _ in range(STEPS):
        (over,) = log_excess(np.array([rate_rps])).tolist()
        if over <= 0:
            return rate_rps
        rate_rps *= math.exp(-over / slope) * (1 - STEP_BELOW)
    return math.nan


@dataclass(slots=True)
class _Judged:
    """Checks the targets of one replica, starting with the last one missed, which is often missed again."""

    judge: TargetChecker
    limits: list[tuple[TargetMeasure, float]]
    tolerance: float = SHARE_TOLERANCE
    """Relative width of the bracket at which the search for a limiting rate stops."""
    known: dict[float, float] = field(default_factory=dict)
    """Cache of the excess by rate [requests/s]: over a missed target, or over the worst one if all are met.
    """

    def excess(self, rate_rps: float) -> float:
        """Return the relative excess at a rate over a missed target; ≤ 0 if all targets are met."""
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
        """Return the index of the last rate, in descending order from `first`, until a target is missed."""
        sure = self.judge.safe_rate_rps(dict(self.limits)) if first < len(rates) - 1 else 0.0
        for i in range(first + 1, len(rates)):
            if rates[i] <= sure:
                break
            if self.excess(rates[i]) > 0:
                return i - 1
        return len(rates) - 1

    def best(self, rates: Sequence[float]) -> float:
        """Return the rate with the smallest excess over its worst target, if no rate meets all targets."""
        worst: dict[float, float] = {}
        for rate in sorted(rates, key=self.excess):
            if worst and self.excess(rate) >= min(worst.values()):
                break
            at = self.judge.at(rate)
            worst[rate] = max(at(*target) for target in self.limits)
        return min(sorted(worst, reverse=True), key=worst.__getitem__)


@dataclass(frozen=True, slots=True)
class _LogExcess:
    """Function of the rate whose root is a limiting rate: log(1 + excess), which is almost linear."""

    judged: _Judged

    def take(self, _rows: IntArray) -> Self:
        return self

    def __call__(self, rates: FloatArray, /) -> FloatArray:
        excesses = (self.judged.excess(rate) for rate in rates.tolist())
        return np.array([math.log1p(max(excess, MIN_SHARE - 1)) for excess in excesses])


def _confirmed(judged: _Judged, inside: float, outside: float, stated: float) -> float:
    """Return a stated limiting rate [requests/s] if targets are met just below and missed just above it.

    Otherwise return the limiting rate that is found.
    """
    below, above = stated * (1 - SHARE_TOLERANCE), stated * (1 + SHARE_TOLERANCE)
    holds = inside <= below and above <= outside and judged.excess(below) <= 0 < judged.excess(above)
    return stated if holds else _edge(judged, inside, outside)


def _edge(judged: _Judged, inside: float, outside: float) -> float:
    """Return the limiting rate between one that meets the targets and one that does not [requests/s]."""
    ends, log_excess = np.array([[inside], [outside]]), _LogExcess(judged)
    values = np.array([log_excess(ends[0]), log_excess(ends[1])])
    ends, values = closed_brackets(log_excess, ends, values, judged.tolerance)
    return float(zeros_or(np.where(values[0] < 0, ends[0], ends[1]), ends, values)[0])
