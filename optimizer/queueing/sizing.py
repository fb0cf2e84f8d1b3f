"""Sizing: the maximum arrival rate at which a replica meets its targets.

The limiting rates of all rows are searched at once; identical rows share their first evaluations. Equation
numbers refer to ``docs/math.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, same_rows
from optimizer.queueing.intervals import highest_intervals
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.roots import largest_feasible
from optimizer.queueing.targets import TARGET_TOLERANCE, Targets, target_ratio

TPS_STABILITY_SHARE = 0.9
"""Usable share of the maximum stable rate if there is a throughput target (as in llm-inferno)."""
RATES_BEFORE = 8
"""Number of rates at which identical rows are evaluated together before each row is searched separately."""
_SHARES = 1 - np.linspace(1.0, 0.0, RATES_BEFORE) ** 3
"""Positions of the `RATES_BEFORE` rates between the ends of the search, 0 to 1; denser near saturation, where
latencies rise steeply.
"""
LOADS_BELOW_MAX_RATE = 32
"""Number of equally spaced loads below the maximum rate at which targets are checked if latencies are not
monotone.
"""
MANY_ROWS = 512
"""Rows that are evaluated at once before the overhead of an evaluation is negligible."""
MIN_RATIO = 1e-30
"""Lower bound on the ratio of a latency to its target, before its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Result of sizing R rows, shapes (R,)."""

    max_rate_rps: FloatArray
    """Maximum rate that meets every target [requests/s]; NaN if none does."""
    least: FloatArray
    """Value of each target measure at the lowest rate of the search, shape (K, R); if a row meets its
    targets, a percentile is only on the right side of its limit.
    """
    lowest_rate_rps: FloatArray
    """Lower end of the interval of rates that meet every target [requests/s]; below it, batching windows
    delay requests too long.
    """

    @property
    def attainable(self) -> BoolArray:
        """Mask of rows that meet all targets at some rate, shape (R,)."""
        return ~np.isnan(self.max_rate_rps)


def largest_rate(replicas: QueueModel, targets: Targets, stated_rps: FloatArray | None = None) -> Sizing:
    """Return the maximum rate at which each row meets all its targets (eq. 22, 23).

    Latencies grow with the rate, except at chunk-count jumps; with these, the result meets all targets but
    need not be the largest such rate. Rates above the first one that misses a target do not count, although a
    percentile can fall again near saturation, where the variance grows faster than the mean.

    Args:
        replicas: R replicas.
        targets: targets of the rows.
        stated_rps: rates to confirm, as for `highest_intervals`; not used by other queue models.
    """
    if replicas.judges_shares:
        return _highest_interval(replicas, targets, stated_rps)
    low = replicas.least_rate_rps
    high = np.where(targets.tps, TPS_STABILITY_SHARE, 1.0) * replicas.stable_rate_rps
    alike = _Alike.of(replicas, targets.tps)
    at_ends = alike.judged(targets, np.stack((low, high)))
    at_low, at_high = target_ratio(at_ends, targets.limits)
    attainable = (at_low - 1 <= TARGET_TOLERANCE).all(axis=0)
    rate, missed = np.where(attainable, high, np.nan), (at_high - 1 > TARGET_TOLERANCE).any(axis=0)
    rows = np.flatnonzero(attainable & (missed | targets.has_percentile))
    if len(rows):
        wanted, share = targets.take(rows), _SHARES[:, np.newaxis]
        rates = low[rows] * (1 - share) + high[rows] * share
        between = alike.judged(wanted, rates[1:-1], rows)
        figures = np.concatenate((at_ends[:1, :, rows], between, at_ends[1:, :, rows]))
        # If a target is just met at the lowest rate, twice the tolerance ensures a change of sign.
        slack = np.where(at_low[:, rows] - 1 > -TARGET_TOLERANCE, 2 * TARGET_TOLERANCE, 0.0)
        excess = _TargetExcess(replicas.take(rows), wanted, slack)
        above = excess.of(figures)
        some = np.flatnonzero(missed[rows] | (above[:-1] > TARGET_TOLERANCE).any(axis=(0, 1)))
        if len(some):
            rate[rows[some]] = largest_feasible(excess.take(some), rates[:, some], above[..., some])
    least = at_ends[0]
    rows = np.flatnonzero(~attainable & targets.has_percentile)
    if len(rows):
        least[:, rows] = targets.take(rows).figures(replicas.take(rows).analyze(low[rows]))
    return Sizing(rate, least, np.zeros(len(rate)))


def meet_targets_below(replicas: QueueModel, targets: Targets, max_rate_rps: FloatArray) -> BoolArray:
    """Return a mask of rows that also meet their targets at all rates below the maximum, shape (R,).

    If latencies are not monotone, a lower rate can miss a target that the maximum rate meets; such rows are
    checked at `LOADS_BELOW_MAX_RATE` rates.

    Args:
        replicas: R replicas.
        targets: targets of the rows.
        max_rate_rps: maximum rates [requests/s]; NaN if no rate meets the targets.
    """
    meets = np.ones(len(max_rate_rps), np.bool_)
    limited = np.isfinite(targets.limits).any(axis=0)
    rows = np.flatnonzero(replicas.is_non_monotone & ~np.isnan(max_rate_rps) & limited)
    if len(rows):
        some, wanted = replicas.take(rows), targets.take(rows)
        for share in np.arange(1, LOADS_BELOW_MAX_RATE) / LOADS_BELOW_MAX_RATE:
            performance = some.analyze(share * max_rate_rps[rows])
            meets[rows] &= wanted.met(performance)
    return meets


def _highest_interval(replicas: QueueModel, targets: Targets, stated_rps: FloatArray | None) -> Sizing:
    """Return the highest interval of rates at which each row meets its targets, checking single targets."""
    alone, same = same_rows([*replicas.columns(), *targets.limits])
    if len(alone) < len(same):
        stated = None if stated_rps is None else stated_rps[alone]
        sized = _highest_interval(replicas.take(alone), targets.take(alone), stated)
        return Sizing(sized.max_rate_rps[same], sized.least[:, same], sized.lowest_rate_rps[same])
    highest_interval, lowest, best = highest_intervals(replicas, targets, stated_rps)
    least = np.zeros((len(targets.measures), len(highest_interval)))
    for row in np.flatnonzero(
        np.isnan(highest_interval)
    ):  # one by one: rows can have targets on different percentiles
        one = np.array([row])
        least[:, one] = targets.take(one).figures(replicas.take(one).analyze(best[one]))
    return Sizing(highest_interval, least, lowest)


@dataclass(frozen=True, slots=True)
class _Alike:
    """R replicas, of which groups can be identical: they have equal profiles and requests."""

    replicas: QueueModel
    first: IntArray
    """Index of the first row that is identical to each row, shape (R,)."""

    @classmethod
    def of(cls, replicas: QueueModel, capped: BoolArray) -> Self:
        """Group rows for which all values that determine their metrics are equal to the last bit.

        Args:
            replicas: the rows.
            capped: mask of rows whose highest rate a throughput target lowers, shape (R,).
        """
        first, which = same_rows([*replicas.columns(), capped])
        return cls(replicas, first[which])

    def judged(self, targets: Targets, rates: FloatArray, rows: IntArray | None = None) -> FloatArray:
        """Return values of the target measures to judge at several rates of each row, shape (n, K, R').

        Args:
            targets: targets of the rows.
            rates: arrival rates [requests/s], equal for identical rows; shape (n, R').
            rows: indices of the rows, shape (R',); None for all.
        """
        first = self.first if rows is None else self.first[rows]
        own, chosen, place = np.unique(first, return_index=True, return_inverse=True)
        if not self.replicas.means_only:  # targets on percentiles differ even if the rows are identical
            few = max(MANY_ROWS // len(own), 1)
            parts = [rates[k : k + few] for k in range(0, len(rates), few)]
            return np.concatenate([self._judged(targets, part, own, chosen, place) for part in parts])
        performance = self.replicas.take(np.tile(own, len(rates))).analyze(rates[:, chosen].ravel())
        figures = targets.take(np.tile(chosen, len(rates))).judged(performance)
        return figures.reshape(-1, len(rates), len(own)).swapaxes(0, 1)[..., place]

    def _judged(
        self, targets: Targets, rates: FloatArray, own: IntArray, chosen: IntArray, place: IntArray
    ) -> FloatArray:
        """Return values as `judged`, with one evaluation of the distinct rows at all rates.

        Args:
            own: distinct rows.
            chosen: the first of the given rows that is identical to each of them.
            place: index in `own` of each given row.
        """
        count = len(rates)
        performance = self.replicas.take(np.tile(own, count)).analyze(rates[:, chosen].ravel())
        every = (np.arange(count)[:, np.newaxis] * len(own) + place).ravel()
        figures = targets.take(np.tile(np.arange(len(place)), count)).judged(performance.spread(every))
        return figures.reshape(-1, count, len(place)).swapaxes(0, 1)


@dataclass(frozen=True, slots=True)
class _TargetExcess:
    """Function of the rate: relative excess of R rows over their targets, ≤ 0 if they are met."""

    replicas: QueueModel
    targets: Targets
    slack: FloatArray
    """Allowed relative excess over each target, shape (K, R)."""

    def take(self, rows: IntArray) -> Self:
        return type(self)(self.replicas.take(rows), self.targets.take(rows), self.slack[:, rows])

    def __call__(self, rate_rps: FloatArray, /) -> FloatArray:
        return self.of(self.targets.judged(self.replicas.analyze(rate_rps)))

    def of(self, figures: FloatArray) -> FloatArray:
        """Return the excess of given values of the target measures over their limits, shapes (..., K, R)."""
        # The logarithm of the ratio has the same sign as the excess, and is closer to linear near saturation.
        ratio = np.maximum(target_ratio(figures, self.targets.limits), MIN_RATIO)
        return np.asarray(np.log(ratio) - self.slack)


@dataclass(frozen=True, slots=True)
class SizedRows:
    """Sizing of R rows, which does not depend on their loads."""

    sizing: Sizing
    meets_below: BoolArray
    """Mask of rows that also meet their targets at all lower rates, shape (R,)."""

    @classmethod
    def of(cls, replicas: QueueModel, targets: Targets) -> Self:
        """Size replicas for their targets."""
        sizing = largest_rate(replicas, targets)
        if replicas.judges_shares:
            return cls(sizing, sizing.lowest_rate_rps <= replicas.least_rate_rps)
        return cls(sizing, meet_targets_below(replicas, targets, sizing.max_rate_rps))

    def values(self) -> list[bytes]:
        """Return the values of each row as bytes, for caches."""
        sizing = self.sizing
        table = np.vstack((sizing.max_rate_rps, sizing.lowest_rate_rps, self.meets_below, sizing.least))
        return [row.tobytes() for row in table.T]

    @classmethod
    def of_values(cls, values: Sequence[bytes]) -> Self:
        """Create rows from the bytes of one or more rows (see `values`)."""
        table = np.frombuffer(b"".join(values)).reshape(len(values), -1).T
        max_rate_rps, lowest_rate_rps, meets_below, *least = table.copy()
        return cls(Sizing(max_rate_rps, np.array(least), lowest_rate_rps), meets_below > 0)
