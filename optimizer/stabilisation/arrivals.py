"""Arrival rate of a server, estimated from the numbers of requests that arrived in single periods.

The rate is the mean of the last counts, or the line through them if its slope is significant. A count that
differs significantly from the others is a jump: the estimate starts anew with it. Counts are compared by
twice their square roots, whose standard deviation is the square root of the index of dispersion.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

JUMP = 5.0
"""Deviation of a count from the others from which it is a jump [standard deviations]."""
SLOPE = 4.0
"""Slope from which counts lie on a line [standard deviations]."""
LINE_COUNTS = 4
"""Minimum number of counts of a line."""
MIN_SPAN_S, MAX_SPAN_S = 120.0, 300.0
"""Bounds of the time over which counts are kept [s]; in between, it is two start-up times."""
MAX_COUNTS = 60
DISPERSION_S = 1800.0
"""Time over which the index of dispersion is averaged [s]."""
OUTLIER = 9.0
"""Largest squared difference of two counts that changes the dispersion, relative to the dispersion."""


@dataclass(frozen=True, slots=True)
class ArrivalCount:
    """Number of requests that arrived in a time span."""

    end_s: float
    """End of the time span [s since the epoch]."""
    span_s: float
    """Length of the time span [s]."""
    number: float
    has_hole: bool = False
    """Whether values are missing in the time span; the count is then never a jump."""

    @property
    def middle_s(self) -> float:
        """Middle of the time span [s since the epoch]."""
        return self.end_s - self.span_s / 2

    @property
    def rate_rps(self) -> float:
        """Arrival rate in the time span [requests/s]."""
        return self.number / self.span_s


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """Arrival rate at a time, with its slope and its standard deviation."""

    rate_rps: float = 0.0
    slope_rps_per_s: float = 0.0
    """Slope of the rate [requests/s²]; 0 unless it is significant."""
    deviation_rps: float = 0.0
    """Standard deviation of the estimated rate [requests/s]."""
    dispersion: float = 1.0
    """Index of dispersion of the arrivals."""
    jumped: bool = False
    """Whether the rate has just jumped."""


@dataclass(frozen=True, slots=True)
class CountHistory:
    """Counts since the last jump, and their dispersion."""

    counts: tuple[ArrivalCount, ...] = ()
    last: ArrivalCount | None = None
    dispersion: float = 1.0
    """Index of dispersion: variance of a count divided by its mean; at least 1, the value of a Poisson
    process.
    """
    compared: int = 0
    """Number of pairs of counts in the dispersion."""
    jumped: bool = False
    """Whether the last count was a jump."""

    def after(self, count: ArrivalCount, startup_s: float) -> "CountHistory":
        """Return the history with a count added.

        Args:
            count: the count.
            startup_s: time that a replica needs to become ready [s].
        """
        jumped = bool(self.counts) and self._jumps(count)
        if jumped and count.has_hole:
            return replace(self, jumped=False)
        since_s = count.end_s - min(MAX_SPAN_S, max(MIN_SPAN_S, 2 * startup_s))
        kept = () if jumped else tuple(item for item in self.counts if item.middle_s >= since_s)
        dispersion = self.dispersion if self.last is None else self._dispersion(self.last, count)
        compared = self.compared + (self.last is not None)
        return CountHistory((*kept[1 - MAX_COUNTS :], count), count, dispersion, compared, jumped)

    def _jumps(self, count: ArrivalCount) -> bool:
        expected = max(0.0, self.at(count.middle_s).rate_rps) * count.span_s
        # 2√N of a Poisson count has variance 1 at any mean; the expected count has an error of its own.
        variance = self.dispersion * (1 + count.span_s / sum(item.span_s for item in self.counts))
        return 2 * abs(sqrt(count.number) - sqrt(expected)) > JUMP * sqrt(variance)

    def _dispersion(self, last: ArrivalCount, count: ArrivalCount) -> float:
        """Return the index of dispersion, updated with the difference of two successive counts."""
        weight = max(1 / (self.compared + 5), min(1.0, count.span_s / DISPERSION_S))
        mean_rps = max(2.0, last.number + count.number) / (last.span_s + count.span_s)
        # The difference of two Poisson rates has the variance λ (1/t1 + 1/t2), so this ratio has the mean 1.
        squared = (count.rate_rps - last.rate_rps) ** 2 / (mean_rps * (1 / last.span_s + 1 / count.span_s))
        change = min(squared, OUTLIER * self.dispersion) - self.dispersion
        return max(1.0, self.dispersion + weight * change)

    def mean_rps(self, window_s: float) -> float:
        """Return the mean rate of the counts in the last `window_s` seconds [requests/s]."""
        since_s = self.counts[-1].end_s - window_s
        recent = [item for item in self.counts if item.middle_s > since_s]
        return _mean_rps(recent or self.counts[-1:])

    def at(self, time_s: float) -> ArrivalRate:
        """Return the rate at a time: the mean of the counts, or their line if its slope is significant."""
        if not self.counts:
            return ArrivalRate()
        spans_s, numbers, middles_s = np.array([(c.span_s, c.number, c.middle_s) for c in self.counts]).T
        span_s = float(spans_s.sum())
        mean_rps = float(numbers.sum()) / span_s
        variance = self.dispersion * max(mean_rps, 1 / span_s)  # of a count, per second of its time span
        rate = ArrivalRate(mean_rps, 0.0, sqrt(variance / span_s), self.dispersion, self.jumped)
        if len(numbers) < LINE_COUNTS:
            return rate
        # Weighted least squares through the centre of the counts; weights are their time spans.
        from_center_s = middles_s - spans_s @ middles_s / span_s
        spread = float(spans_s @ from_center_s**2)
        slope = float(numbers @ from_center_s) / spread
        rest = spans_s @ (numbers / spans_s - mean_rps - slope * from_center_s) ** 2 / (len(numbers) - 2)
        # The slope has the standard error √(variance / Σ t x²); the residuals may show a larger variance.
        if abs(slope) <= SLOPE * sqrt(max(variance, rest) / spread):
            return rate
        now_rps = mean_rps + slope * (time_s - middles_s[-1] + from_center_s[-1])
        return replace(rate, rate_rps=max(0.0, float(now_rps)), slope_rps_per_s=slope)


def _mean_rps(counts: Sequence[ArrivalCount]) -> float:
    return sum(count.number for count in counts) / sum(count.span_s for count in counts)
