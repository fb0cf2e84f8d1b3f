"""The largest arrival rate at which a replica meets its targets.

The last rate at which no figure exceeds its target is sought for all rows at once. Rows that are alike begin
with the same rates. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, same_rows
from optimizer.queueing.intervals import highest_intervals
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.roots import largest_feasible
from optimizer.queueing.targets import TARGET_TOLERANCE, Targets, target_ratio

TPS_STABILITY_SHARE = 0.9
"""With a throughput target, the share of the largest stable rate that may be used (the reference's)."""
RATES_BEFORE = 8
"""Rates at which all rows that are alike are looked at together before each is searched by itself."""
_SHARES = 1 - np.linspace(1.0, 0.0, RATES_BEFORE) ** 3
"""Where they lie between the ends, more of them close to saturation, where latencies turn upwards."""
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
    meets its targets but need not be the largest such rate. A percentile may fall again close to saturation,
    where the variance grows faster than the mean: rates beyond the first that misses a target do not count.
    """
    if replicas.judges_shares:
        return _highest_interval(replicas, targets)
    low = replicas.least_rate_rps
    high = np.where(targets.tps, TPS_STABILITY_SHARE, 1.0) * replicas.stable_rate_rps
    alike = _Alike.of(replicas, targets.tps)
    at_ends = alike.figures(targets, np.stack((low, high)))
    at_low, at_high = target_ratio(at_ends, targets.limits)
    attainable = (at_low - 1 <= TARGET_TOLERANCE).all(axis=0)
    rate, missed = np.where(attainable, high, np.nan), (at_high - 1 > TARGET_TOLERANCE).any(axis=0)
    rows = np.flatnonzero(attainable & (missed | targets.beyond_means))
    if len(rows):
        wanted, share = targets.take(rows), _SHARES[:, np.newaxis]
        rates = low[rows] * (1 - share) + high[rows] * share
        between = alike.figures(wanted, rates[1:-1], rows)
        figures = np.concatenate((at_ends[:1, :, rows], between, at_ends[1:, :, rows]))
        # A target met to the last bit at the least rate needs the tolerance again, for a sign to change.
        slack = np.where(at_low[:, rows] - 1 > -TARGET_TOLERANCE, 2 * TARGET_TOLERANCE, 0.0)
        excess = _TargetExcess(replicas.take(rows), wanted, slack)
        above = excess.of(figures)
        some = np.flatnonzero(missed[rows] | (above[:-1] > TARGET_TOLERANCE).any(axis=(0, 1)))
        if len(some):
            rate[rows[some]] = largest_feasible(excess.take(some), rates[:, some], above[..., some])
    return Sizing(rate, at_ends[0], np.zeros(len(rate)))


def meet_targets_below(replicas: QueueModel, targets: Targets, max_rate_rps: FloatArray) -> BoolArray:
    """Return whether the targets hold at loads below the largest rate as well, shape (R,).

    Where latencies step (with the number of prefill chunks), a lower load may miss what the largest rate
    meets; such rows are checked at `LOADS_BELOW_MAX_RATE` loads.
    """
    meets = np.ones(len(max_rate_rps), np.bool_)
    rows = np.flatnonzero(replicas.is_non_monotone & ~np.isnan(max_rate_rps))
    if len(rows):
        some, wanted = replicas.take(rows), targets.take(rows)
        for share in np.arange(1, LOADS_BELOW_MAX_RATE) / LOADS_BELOW_MAX_RATE:
            found = some.analyze(share * max_rate_rps[rows])
            meets[rows] &= wanted.met(found)
    return meets


def _highest_interval(replicas: QueueModel, targets: Targets) -> Sizing:
    """Return the highest rates of each row between which its targets hold, by one probability a rate."""
    alone, same = same_rows([*replicas.columns(), *targets.limits])
    if len(alone) < len(same):
        sized = _highest_interval(replicas.take(alone), targets.take(alone))
        return Sizing(sized.max_rate_rps[same], sized.least[:, same], sized.lowest_rate_rps[same])
    found, lowest, best = highest_intervals(replicas, targets)
    least = np.zeros((len(targets.measures), len(found)))
    for row in np.flatnonzero(np.isnan(found)):  # one by one: others may have targets on other percentiles
        one = np.array([row])
        least[:, one] = targets.take(one).figures(replicas.take(one).analyze(best[one]))
    return Sizing(found, least, lowest)


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
        if not replicas.means_only:
            return cls(replicas, np.arange(len(capped)))
        first, kind = same_rows([*replicas.columns(), capped])
        return cls(replicas, first[kind])

    def figures(self, targets: Targets, rates: FloatArray, rows: IntArray | None = None) -> FloatArray:
        """Return what the targets of some rows measure, or of all, at several rates each, shape (n, K, R').

        Args:
            targets: those of the rows.
            rates: equal where rows are alike, shape (n, R').
            rows: the rows, shape (R',).
        """
        if not self.replicas.means_only:
            replicas = self.replicas if rows is None else self.replicas.take(rows)
            return np.stack([targets.figures(replicas.analyze(rate)) for rate in rates])
        first = self.first if rows is None else self.first[rows]
        own, chosen, place = np.unique(first, return_index=True, return_inverse=True)
        found = self.replicas.take(np.tile(own, len(rates))).analyze(rates[:, chosen].ravel())
        figures = targets.take(np.tile(chosen, len(rates))).figures(found)
        return figures.reshape(-1, len(rates), len(own)).swapaxes(0, 1)[..., place]


@dataclass(frozen=True, slots=True)
class _TargetExcess:
    """By how much the figures of R rows exceed their targets: at most zero where they hold."""

    replicas: QueueModel
    targets: Targets
    slack: FloatArray
    """Relative excess over each target that is allowed, shape (K, R)."""

    def take(self, rows: IntArray) -> Self:
        return type(self)(self.replicas.take(rows), self.targets.take(rows), self.slack[:, rows])

    def __call__(self, rate_rps: FloatArray, /) -> FloatArray:
        return self.of(self.targets.figures(self.replicas.analyze(rate_rps)))

    def of(self, figures: FloatArray) -> FloatArray:
        """Return the excess of given figures, shapes (..., K, R)."""
        # The logarithm of the ratio has the same sign, and is closer to a straight line near saturation.
        ratio = np.maximum(target_ratio(figures, self.targets.limits), SMALLEST_RATIO)
        return np.asarray(np.log(ratio) - self.slack)
