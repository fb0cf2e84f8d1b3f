"""The largest arrival rate at which a replica meets its targets.

One root is sought for every row at once: both latency targets are one function, the larger of the two
ratios minus one, which is negative where both hold. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize.elementwise import find_root

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.performance import Performance, ReplicaQueues

TPS_STABILITY_SHARE = 0.9
"""With a throughput target, the share of the largest stable rate that may be used (the reference's)."""
TARGET_TOLERANCE = 1e-9
"""A target counts as met up to this relative excess, which absorbs rounding."""


RATE_TOLERANCE = 1e-10
"""Relative width of the bracket around the largest rate."""
SMALLEST_RATIO = 1e-30
"""Stands for a latency of zero (no prompt, no wait) where its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Latency targets of R rows, shapes (R,); infinity where there is none."""

    ttft_ms: FloatArray
    itl_ms: FloatArray
    tps: BoolArray
    """Whether the row has a throughput target, which caps its rate."""

    def take(self, rows: IntArray) -> "Targets":
        """Return the targets of the chosen rows, in their order."""
        return Targets(self.ttft_ms[rows], self.itl_ms[rows], self.tps[rows])

    def excess(self, performance: Performance) -> FloatArray:
        """Return the larger of the two ratios to the targets, minus one: positive where one is missed."""
        with np.errstate(over="ignore"):
            return np.maximum(performance.ttft_ms / self.ttft_ms, performance.itl_ms / self.itl_ms) - 1


@dataclass(frozen=True, slots=True)
class Sizing:
    """What sizing found for R rows, shapes (R,)."""

    max_rate_rps: FloatArray
    """Largest rate that meets every target; NaN where none does."""
    least_ttft_ms: FloatArray
    """TTFT at the lower end of the rates, the best that this row can do."""
    least_itl_ms: FloatArray

    @property
    def attainable(self) -> BoolArray:
        """Whether any rate meets the targets, shape (R,)."""
        return ~np.isnan(self.max_rate_rps)


def largest_rate(replicas: ReplicaQueues, targets: Targets) -> Sizing:
    """Return the largest rate of each row that meets all its targets (eq. 22, 23).

    TTFT and ITL grow with the rate, except where the number of prefill chunks steps: there the answer
    meets its targets but need not be the largest such rate.
    """
    low = replicas.least_rate_rps
    high = np.where(targets.tps, TPS_STABILITY_SHARE, 1.0) * replicas.stable_rate_rps
    least = replicas.analyze(low)
    at_low = targets.excess(least)
    at_high = targets.excess(replicas.analyze(high))
    rate = np.where(at_low > TARGET_TOLERANCE, np.nan, np.where(at_high > TARGET_TOLERANCE, low, high))
    search = np.flatnonzero((at_low <= TARGET_TOLERANCE) & (at_high > TARGET_TOLERANCE))
    if len(search):
        # A target met to the last bit at the least rate needs the tolerance again, for a sign to change.
        slack = np.where(at_low[search] > -TARGET_TOLERANCE, 2 * TARGET_TOLERANCE, 0.0)
        rate[search] = _crossing(
            replicas.take(search), targets.take(search), slack, low[search], high[search]
        )
    return Sizing(rate, least.ttft_ms, least.itl_ms)


def _crossing(
    replicas: ReplicaQueues, targets: Targets, slack: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return the feasible end of the bracket that the root-finder closes around the crossing."""

    def excess(rate_rps: FloatArray, row: FloatArray) -> FloatArray:
        rows = row.astype(np.int64)
        whole = len(rows) == len(low)
        some, wanted = (replicas, targets) if whole else (replicas.take(rows), targets.take(rows))
        # The logarithm of the ratio has the same sign, and is closer to a straight line near saturation.
        ratio = np.maximum(wanted.excess(some.analyze(rate_rps)) + 1, SMALLEST_RATIO)
        return np.log(ratio) - slack[rows]

    rows = np.arange(len(low), dtype=np.float64)
    root = find_root(excess, (low, high), args=(rows,), tolerances={"xrtol": RATE_TOLERANCE})
    # The search also ends where it hits the crossing to the last bit: both ends are then feasible.
    ends, excesses = np.stack(root.bracket), np.stack(root.f_bracket)
    crossing: FloatArray = np.where(excesses <= 0, ends, -np.inf).max(axis=0)
    return crossing
