"""The largest arrival rate at which a replica meets its targets.

The rates at which figures cross their targets are sought for all rows at once; the smallest of a row's is its
answer. Where latencies step with the rate, all targets are one function, the largest of the ratios. Equation
numbers refer to ``docs/math.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.intervals import highest_intervals
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.roots import closed_brackets
from optimizer.queueing.targets import TARGET_TOLERANCE, Targets, target_ratio

TPS_STABILITY_SHARE = 0.9
"""With a throughput target, the share of the largest stable rate that may be used (the reference's)."""
RATE_TOLERANCE = 1e-10
"""Relative width of the bracket around the largest rate."""
CUTS = np.array([0.05, 0.25, 0.5, 0.75])
"""Where a bracket is cut into parts before the search begins; small batches cross close to its lower end."""
_WORST = -1
"""Row of `_ratios` that has the worst of them."""
LOADS_BELOW_MAX_RATE = 32
"""Loads, in equal steps up to the largest rate, at which targets are looked at where chunks step."""
SMALLEST_RATIO = 1e-30
"""Stands for a latency of zero (no prompt, no wait) where its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """What sizing found for R rows, shapes (R,)."""

    max_rate_rps: FloatArray
    """Largest rate that meets every target; NaN where none does."""
    least: FloatArray
    """What each target measures at the lower end of the rates, the best that a row can do; shape (K, R)."""
    lowest_rate_rps: FloatArray
    """Lower end of the rates up to the largest that meet every target; below it windows are too long."""

    @property
    def attainable(self) -> BoolArray:
        """Whether any rate meets the targets, shape (R,)."""
        return ~np.isnan(self.max_rate_rps)


def largest_rate(replicas: QueueModel, targets: Targets) -> Sizing:
    """Return the largest rate of each row that meets all its targets (eq. 22, 23).

    Latencies grow with the rate, except where they step (with the number of prefill chunks): there the answer
    meets its targets but need not be the largest such rate.
    """
    if replicas.judges_shares:
        return _highest_interval(replicas, targets)
    low = replicas.least_rate_rps
    high = np.where(targets.tps, TPS_STABILITY_SHARE, 1.0) * replicas.stable_rate_rps
    alike = _Alike.of(replicas, targets.tps)
    figures = alike.figures(targets, np.stack((low, high)))
    at_low, at_high = _ratios(figures, targets)
    attainable = at_low[_WORST] - 1 <= TARGET_TOLERANCE
    rate = np.where(attainable, high, np.nan)
    together = np.zeros(at_high.shape, np.bool_)
    together[_WORST] = True
    sought = (at_high - 1 > TARGET_TOLERANCE) & attainable & (together == replicas.steps)
    which, row = np.nonzero(sought)
    if len(row):
        # A target met to the last bit at the least rate needs the tolerance again, for a sign to change.
        slack = np.where(at_low[which, row] - 1 > -TARGET_TOLERANCE, 2 * TARGET_TOLERANCE, 0.0)
        crossed = _Crossed(row, which, slack)
        ends, at_ends = _narrowed(crossed, targets, np.stack((low, high)), np.stack((at_low, at_high)), alike)
        # What is crossed after another target of the row is, is of no account.
        first = np.full(len(rate), np.inf)
        np.minimum.at(first, row, ends.max(axis=0))
        kept = np.flatnonzero(ends.min(axis=0) < first[row])
        mine = row[kept]
        excess = _Excess(replicas.take(mine), targets.take(mine), which[kept], slack[kept])
        np.minimum.at(rate, mine, _crossing(excess, ends[:, kept], at_ends[:, kept]))
    return Sizing(rate, figures[0], np.zeros(len(rate)))


def meet_targets_below(replicas: QueueModel, targets: Targets, max_rate_rps: FloatArray) -> BoolArray:
    """Return whether the targets hold at loads below the largest rate as well, shape (R,).

    Where latencies step (with the number of prefill chunks), a lower load may miss what the largest rate
    meets; such rows are checked at `LOADS_BELOW_MAX_RATE` loads.
    """
    meets = np.ones(len(max_rate_rps), np.bool_)
    rows = np.flatnonzero(replicas.steps & ~np.isnan(max_rate_rps))
    if len(rows):
        some, wanted = replicas.take(rows), targets.take(rows)
        for share in np.arange(1, LOADS_BELOW_MAX_RATE) / LOADS_BELOW_MAX_RATE:
            found = some.analyze(share * max_rate_rps[rows])
            meets[rows] &= wanted.met(found)
    return meets


def _highest_interval(replicas: QueueModel, targets: Targets) -> Sizing:
    """Return the highest rates of each row between which its targets hold, by one probability a rate."""
    alone, same = _same_rows([*replicas.columns(), *targets.limits])
    if len(alone) < len(same):
        sized = _highest_interval(replicas.take(alone), targets.take(alone))
        return Sizing(sized.max_rate_rps[same], sized.least[:, same], sized.lowest_rate_rps[same])
    found, lowest, best = highest_intervals(replicas, targets)
    least = np.zeros((len(targets.measures), len(found)))
    for row in np.flatnonzero(np.isnan(found)):  # one by one: others may have targets on other percentiles
        one = np.array([row])
        least[:, one] = targets.take(one).figures(replicas.take(one).analyze(best[one]))
    return Sizing(found, least, lowest)


def _same_rows(columns: Sequence[NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Return the first row of each kind, and for every row which of these it is like to the last bit.

    Args:
        columns: all that tells rows apart, shapes (R, ...).
    """
    count = len(columns[0])
    parts = [np.ascontiguousarray(column).view(np.uint8).reshape(count, -1) for column in columns]
    keys = np.ascontiguousarray(np.hstack(parts))
    whole = keys.view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, kind = np.unique(whole, return_index=True, return_inverse=True)
    return first, kind


def _ratios(figures: FloatArray, targets: Targets) -> FloatArray:
    """Return every figure over its target, and last the worst of them; shapes (..., K + 1, R)."""
    ratios = target_ratio(figures, targets.limits)
    return np.concatenate([ratios, ratios.max(axis=-2, keepdims=True)], axis=-2)


@dataclass(frozen=True, slots=True)
class _Alike:
    """R replicas of which many may be the same: of the same profile and shape of requests."""

    replicas: QueueModel
    first: IntArray
    """The first row that is like each, shape (R,)."""

    @classmethod
    def of(cls, replicas: QueueModel, capped: BoolArray) -> Self:
        """Find them: rows that are equal to the last bit in all that their figures depend on.

        Args:
            replicas: the rows.
            capped: whether a row's rates end earlier, shape (R,).
        """
        if not replicas.knows_means_only:
            return cls(replicas, np.arange(len(capped)))
        first, kind = _same_rows([*replicas.columns(), capped])
        return cls(replicas, first[kind])

    def figures(self, targets: Targets, rates: FloatArray, rows: IntArray | None = None) -> FloatArray:
        """Return what the targets of some rows measure, or of all, at several rates each, shape (n, K, R').

        Args:
            targets: those of the rows.
            rates: equal where rows are alike, shape (n, R').
            rows: the rows, shape (R',).
        """
        if not self.replicas.knows_means_only:
            replicas = self.replicas if rows is None else self.replicas.take(rows)
            return np.stack([targets.figures(replicas.analyze(rate)) for rate in rates])
        first = self.first if rows is None else self.first[rows]
        own, chosen, place = np.unique(first, return_index=True, return_inverse=True)
        found = self.replicas.take(np.tile(own, len(rates))).analyze(rates[:, chosen].ravel())
        figures = targets.take(np.tile(chosen, len(rates))).figures(found)
        return figures.reshape(-1, len(rates), len(own)).swapaxes(0, 1)[..., place]


@dataclass(frozen=True, slots=True)
class _Crossed:
    """Targets that are met at the lower end of a row's rates and not at the upper; all shapes (K,)."""

    row: IntArray
    which: IntArray
    """The ratio that crosses, an index into `_ratios`."""
    slack: FloatArray
    """Relative excess over the target that is allowed."""


@dataclass(frozen=True, slots=True)
class _Excess:
    """By how much figures exceed their targets: K functions of the rate, at most zero where they hold."""

    replicas: QueueModel
    targets: Targets
    which: IntArray
    """The ratio that each looks at, an index into `_ratios`; shape (K,)."""
    slack: FloatArray
    """Relative excess over the target that is allowed, shape (K,)."""

    def take(self, rows: IntArray) -> Self:
        some, wanted = self.replicas.take(rows), self.targets.take(rows)
        return type(self)(some, wanted, self.which[rows], self.slack[rows])

    def __call__(self, rate_rps: FloatArray) -> FloatArray:
        ratios = _ratios(self.targets.figures(self.replicas.analyze(rate_rps)), self.targets)
        return _excess_of(ratios[self.which, np.arange(len(self.which))], self.slack)


def _excess_of(ratio: FloatArray, slack: FloatArray) -> FloatArray:
    """Return the excess at a figure over its target, shapes (..., K)."""
    # The logarithm of the ratio has the same sign, and is closer to a straight line near saturation.
    return np.log(np.maximum(ratio, SMALLEST_RATIO)) - slack


def _crossing(excess: _Excess, rates: FloatArray, values: FloatArray) -> FloatArray:
    """Return the feasible end of the bracket that the search closes around each crossing, shape (K,).

    Args:
        excess: what crosses zero.
        rates: one below and one above each crossing [requests/s], shape (2, K).
        values: the excess there, shape (2, K).
    """
    rates, values = closed_brackets(excess, rates, values, RATE_TOLERANCE)
    # The search also ends where it hits the crossing to the last bit: both ends are then feasible.
    crossing: FloatArray = np.where(values <= 0, rates, -np.inf).max(axis=0)
    return crossing


def _narrowed(
    crossed: _Crossed,
    targets: Targets,
    rates: FloatArray,
    ratios: FloatArray,
    alike: _Alike,
) -> tuple[FloatArray, FloatArray]:
    """Return the part of each bracket that is crossed first: cheaper than rounds of the search.

    All targets of a row, and all rows whose replicas are alike, look at the same rates: these are analysed
    once.

    Args:
        crossed: K targets.
        targets: of all rows.
        rates: lower and upper end of each row's rates, shape (2, R).
        ratios: all ratios at either end, shape (2, K', R).
        alike: the rows.
    """
    low, high = rates
    row, which = crossed.row, crossed.which
    rows, place = np.unique(row, return_inverse=True)
    inner = low[rows] * (1 - CUTS)[:, np.newaxis] + high[rows] * CUTS[:, np.newaxis]
    wanted = targets.take(rows)
    at_low, at_high = ratios[:, which, row]
    between = _ratios(alike.figures(wanted, inner, rows), wanted)[:, which, place]
    at_ends = _excess_of(np.vstack((at_low, between, at_high)), crossed.slack)
    over = at_ends[1:-1] > 0
    part = np.where(over.any(axis=0), over.argmax(axis=0), len(CUTS))[np.newaxis]
    sides = np.vstack((part, part + 1))
    ends = np.vstack((low[row], inner[:, place], high[row]))
    return np.take_along_axis(ends, sides, axis=0), np.take_along_axis(at_ends, sides, axis=0)
