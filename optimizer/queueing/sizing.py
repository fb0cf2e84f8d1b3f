"""The largest arrival rate at which a replica meets its targets.

The rates at which figures cross their targets are sought for all rows at once; the smallest of a row's is its
answer. Where latencies step with the rate, all targets are one function, the largest of the ratios. Equation
numbers refer to ``docs/math.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize.elementwise import find_root

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.performance import Performance, QueueModel
from optimizer.queueing.targets import TARGET_TOLERANCE, Targets

TPS_STABILITY_SHARE = 0.9
"""With a throughput target, the share of the largest stable rate that may be used (the reference's)."""
RATE_TOLERANCE = 1e-10
"""Relative width of the bracket around the largest rate."""
CUTS = np.array([0.0, 0.05, 0.25, 0.5, 0.75, 1.0])
"""Where a bracket is cut into parts before the search begins; small batches cross close to its lower end."""
_WORST = -1
"""Row of `_ratios` that has the worst of them."""
SMALLEST_RATIO = 1e-30
"""Stands for a latency of zero (no prompt, no wait) where its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """What sizing found for R rows, shapes (R,)."""

    max_rate_rps: FloatArray
    """Largest rate that meets every target; NaN where none does."""
    least: FloatArray
    """What each target measures at the lower end of the rates, the best that a row can do; shape (K, R)."""

    @property
    def attainable(self) -> BoolArray:
        """Whether any rate meets the targets, shape (R,)."""
        return ~np.isnan(self.max_rate_rps)


def largest_rate(replicas: QueueModel, targets: Targets) -> Sizing:
    """Return the largest rate of each row that meets all its targets (eq. 22, 23).

    Latencies grow with the rate, except where they step (with the number of prefill chunks): there the answer
    meets its targets but need not be the largest such rate.
    """
    low = replicas.least_rate_rps
    high = np.where(targets.tps, TPS_STABILITY_SHARE, 1.0) * replicas.stable_rate_rps
    least, most = replicas.analyze(low), replicas.analyze(high)
    at_low, at_high = _ratios(targets, least), _ratios(targets, most)
    attainable = at_low[_WORST] - 1 <= TARGET_TOLERANCE
    rate = np.where(attainable, high, np.nan)
    together = np.zeros(at_high.shape, np.bool_)
    together[_WORST] = True
    sought = (at_high - 1 > TARGET_TOLERANCE) & attainable & (together == replicas.steps)
    which, row = np.nonzero(sought)
    if len(row):
        # A target met to the last bit at the least rate needs the tolerance again, for a sign to change.
        slack = np.where(at_low[which, row] - 1 > -TARGET_TOLERANCE, 2 * TARGET_TOLERANCE, 0.0)
        crossing = _crossing(replicas, targets, row, which, slack, (low[row], high[row]))
        np.minimum.at(rate, row, crossing)
    return Sizing(rate, targets.figures(least))


def _ratios(targets: Targets, performance: Performance) -> FloatArray:
    """Return every figure over its target, and last the worst of them; shape (K + 1, R)."""
    ratios = targets.ratios(performance)
    return np.vstack([ratios, ratios.max(axis=0)])


def _crossing(
    replicas: QueueModel,
    targets: Targets,
    row: IntArray,
    which: IntArray,
    slack: FloatArray,
    bracket: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return the feasible end of the bracket that the root-finder closes around each crossing.

    Args:
        replicas: R replicas.
        targets: their targets.
        row: replica of each crossing, shape (K,).
        which: the ratio that crosses one, an index into `_ratios`; shape (K,).
        slack: relative excess over the target that is allowed, shape (K,).
        bracket: rates below and above the crossing [requests/s], shapes (K,).
    """
    every, wanted = replicas.take(row), targets.take(row)

    def excess(rate_rps: FloatArray, crossing: FloatArray) -> FloatArray:
        k = crossing.astype(np.int64)
        whole = len(k) == len(row)
        some, some_wanted = (every, wanted) if whole else (every.take(k), wanted.take(k))
        ratios = _ratios(some_wanted, some.analyze(rate_rps))
        ratio = np.maximum(ratios[which[k], np.arange(len(k))], SMALLEST_RATIO)
        # The logarithm of the ratio has the same sign, and is closer to a straight line near saturation.
        return np.log(ratio) - slack[k]

    numbers = np.arange(len(row), dtype=np.float64)
    bracket = _narrowed(excess, bracket, numbers)
    root = find_root(excess, bracket, args=(numbers,), tolerances={"xrtol": RATE_TOLERANCE})
    # The search also ends where it hits the crossing to the last bit: both ends are then feasible.
    ends, excesses = np.stack(root.bracket), np.stack(root.f_bracket)
    crossing: FloatArray = np.where(excesses <= 0, ends, -np.inf).max(axis=0)
    return crossing


def _narrowed(
    excess: Callable[[FloatArray, FloatArray], FloatArray],
    bracket: tuple[FloatArray, FloatArray],
    numbers: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the part of each bracket that is crossed first: cheaper than rounds of the root-finder."""
    low, high = bracket
    ends = low[:, np.newaxis] * (1 - CUTS) + high[:, np.newaxis] * CUTS
    inner = ends[:, 1:-1]
    cuts = inner.shape[1]
    over = excess(inner.ravel(), np.repeat(numbers, cuts)).reshape(inner.shape) > 0
    part = np.where(over.any(axis=1), over.argmax(axis=1), cuts)[:, np.newaxis]
    left, right = (np.take_along_axis(ends, part + step, axis=1)[:, 0] for step in (0, 1))
    return left, right
