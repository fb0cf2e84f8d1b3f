"""Estimates the true load from counted requests: the mean since the last detected change.

The standard deviation of an arrival count is the square root of its mean (eq. 94-96). Two CUSUM statistics,
one for increases and one for decreases, distinguish changes from this noise: small changes after several
windows, large ones at once. After a change, the mean restarts with the windows since the change. Plans use a
level that is updated only if the mean differs significantly from it, so plans are stable without a real
change. From a level of 0 any counted request is significant, because at a rate of 0 none arrives.
"""

from dataclasses import dataclass, replace
from math import sqrt

from optimizer.stabilisation.rules import Rules
from optimizer.units import SECONDS_PER_MINUTE

SLACK = 0.5
"""Amount subtracted from a CUSUM statistic in each window [standard deviations]."""
ALARM = 7.0
"""CUSUM threshold [standard deviations]; with one-minute windows, it gives about one false alarm in two days.
"""
KNOWN = 2.0
"""Difference between mean and level from which it is significant [standard deviations]."""
MAX_WINDOWS = 240.0
"""Maximum number of windows in a mean."""


@dataclass(frozen=True, slots=True)
class CusumStatistic:
    """A one-sided CUSUM statistic, and the sum of the loads since it started."""

    value: float = 0.0
    windows: float = 0.0
    total_rpm: float = 0.0

    def after(self, load_rpm: float, deviation: float, weight: float) -> "CusumStatistic":
        """Return the statistic updated with a load; it starts again if it would be negative.

        Args:
            load_rpm: the load [requests/min].
            deviation: deviation of the load in the direction of the statistic [standard deviations].
            weight: weight of the counting window, 0 to 1.
        """
        value = self.value + weight * (deviation - SLACK)
        if value <= 0:
            return CusumStatistic()
        return CusumStatistic(value, self.windows + weight, self.total_rpm + weight * load_rpm)


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """Estimate of a load: its mean since the last detected change, and the level used for planning."""

    seen_s: float
    """Time of the last count [s since the epoch]."""
    windows: float
    """Number of counting windows in the mean."""
    mean_rpm: float
    level_rpm: float
    """Load used for planning [requests/min]."""
    more: CusumStatistic = CusumStatistic()
    less: CusumStatistic = CusumStatistic()

    def deviation_rpm(self, window_s: float, variation: float) -> float:
        """Return the standard deviation of the mean [requests/min]."""
        return counting_deviation_rpm(self.mean_rpm, window_s * self.windows, variation)


def scaled_load(estimate: LoadEstimate, factor: float) -> LoadEstimate:
    """Return the estimate of a load that is `factor` times another load."""
    return replace(
        estimate,
        mean_rpm=estimate.mean_rpm * factor,
        level_rpm=estimate.level_rpm * factor,
        more=replace(estimate.more, total_rpm=estimate.more.total_rpm * factor),
        less=replace(estimate.less, total_rpm=estimate.less.total_rpm * factor),
    )


def counting_deviation_rpm(rate_rpm: float, time_s: float, variation: float) -> float:
    """Return the standard deviation of a rate estimated by counting over a window [requests/min].

    Args:
        rate_rpm: the true rate.
        time_s: length of the counting window [s].
        variation: coefficient of variation of the interarrival times; 1 for a Poisson process.
    """
    # A count n = λT has the standard deviation c√n, so a rate has c√(λ/T); at least one request is assumed.
    minutes = time_s / SECONDS_PER_MINUTE
    return variation * sqrt(max(rate_rpm, 1 / minutes) / minutes)


def with_load(
    last: LoadEstimate | None, load_rpm: float, variation: float, now_s: float, rules: Rules
) -> LoadEstimate:
    """Return the estimate updated with a counted load.

    Args:
        last: the previous estimate; None for the first load.
        load_rpm: the load [requests/min].
        variation: coefficient of variation of the interarrival times.
        now_s: time of the count [s]; only the new part of overlapping windows is used.
        rules: the rules, with the length of the counting window, and the maximum deviation that is treated
            as noise.
    """
    window_s, noise = rules.load_window_s, rules.noise
    assert noise is not None
    if last is None or not last.windows or (load_rpm and not last.level_rpm):  # a count of 0 has no noise
        return LoadEstimate(now_s, 1.0, load_rpm, load_rpm)
    # Overlapping windows repeat requests; only the new part of the window counts.
    weight = min(1.0, max(0.0, now_s - last.seen_s) / window_s)
    # Both the new count and the mean of n windows have noise: σ√(1 + 1/n).
    scatter = counting_deviation_rpm(last.mean_rpm, window_s, variation) * sqrt(1 + 1 / last.windows)
    deviation = (load_rpm - last.mean_rpm) / scatter
    more, less = last.more.after(load_rpm, deviation, weight), last.less.after(load_rpm, -deviation, weight)
    # Two CUSUM statistics, for a higher and a lower load. A clear jump starts a new mean; a slow drift takes
    # the mean since the statistic left zero.
    for changed in (more, less):
        if changed.value > ALARM and abs(deviation) > noise:
            return LoadEstimate(now_s, 1.0, load_rpm, load_rpm)
        if changed.value > ALARM:
            mean = changed.total_rpm / changed.windows
            return LoadEstimate(now_s, changed.windows, mean, mean)
    windows = last.windows + weight
    # The mean of all windows since the last change; old ones are forgotten beyond `MAX_WINDOWS`.
    mean = (last.mean_rpm * last.windows + load_rpm * weight) / windows
    load_estimate = LoadEstimate(now_s, min(windows, MAX_WINDOWS), mean, last.level_rpm, more, less)
    if deviation > noise:
        return replace(load_estimate, level_rpm=load_rpm)
    # The planned level follows the mean only if they differ by more than the noise of the mean.
    known = abs(mean - load_estimate.level_rpm) > KNOWN * load_estimate.deviation_rpm(window_s, variation)
    return replace(load_estimate, level_rpm=mean) if known else load_estimate
