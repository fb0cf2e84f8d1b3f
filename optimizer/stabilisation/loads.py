"""What a counted load says about the true one: its mean since it last changed, and when it did change.

Arrivals that are counted over a window scatter by the square root of their number (eq. 94-96). Two sums (one
for more, one for less) tell a change from that: a small one after some windows, a large one at once. After a
change the mean begins anew with the windows since. What is planned for is a level: the mean when it was last
known to be another one, so that a plan stays as it is while nothing is known to have changed.
"""

from dataclasses import dataclass, replace
from math import sqrt

SLACK = 0.5
"""What a cumulative sum forgets with every window [standard deviations]."""
ALARM = 7.0
"""Cumulative sum that is a change [standard deviations]: by chance about once in two days of minutes."""
KNOWN = 2.0
"""Difference between mean and level from which on they are known to differ [standard deviations]."""
MOST_WINDOWS = 240.0
"""Windows that a mean goes back at most."""
SECONDS_PER_MIN = 60.0


@dataclass(frozen=True, slots=True)
class Sum:
    """A cumulative sum of deviations to one side, and the loads since it began."""

    value: float = 0.0
    windows: float = 0.0
    total_rpm: float = 0.0

    def after(self, load_rpm: float, deviation: float, weight: float) -> "Sum":
        """Return the sum with a load that deviates to its side; below zero it begins anew."""
        value = self.value + weight * (deviation - SLACK)
        if value <= 0:
            return Sum()
        return Sum(value, self.windows + weight, self.total_rpm + weight * load_rpm)


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """The mean of a load since it last changed."""

    seen_s: float
    """When it was last counted."""
    windows: float
    """Over how many windows."""
    mean_rpm: float
    level_rpm: float
    """What to plan for."""
    more: Sum = Sum()
    less: Sum = Sum()

    def deviation_rpm(self, window_s: float, variation: float) -> float:
        """Return the standard deviation of the mean [requests/min]."""
        return counting_deviation_rpm(self.mean_rpm, window_s * self.windows, variation)


def counting_deviation_rpm(rate_rpm: float, time_s: float, variation: float) -> float:
    """Return by how much a rate that is counted over some time scatters [requests/min].

    Args:
        rate_rpm: the true rate.
        time_s: how long it is counted.
        variation: coefficient of variation of the times between arrivals; 1: a Poisson process.
    """
    minutes = time_s / SECONDS_PER_MIN
    return variation * sqrt(max(rate_rpm, 1 / minutes) / minutes)


def with_load(
    last: LoadEstimate | None, load_rpm: float, now_s: float, window_s: float, variation: float, chance: float
) -> LoadEstimate:
    """Return the estimate with a load that was counted just now.

    Args:
        last: the estimate before; none: this is the first load.
        load_rpm: the load [requests/min].
        now_s: when it was counted; windows that overlap count as far as they are new [s].
        window_s: over which time it was counted [s].
        variation: coefficient of variation of the times between arrivals.
        chance: deviation up to which more load is taken for chance [standard deviations].
    """
    if last is None or not last.windows:
        return LoadEstimate(now_s, 1.0, load_rpm, load_rpm)
    weight = min(1.0, max(0.0, now_s - last.seen_s) / window_s)
    scatter = counting_deviation_rpm(last.mean_rpm, window_s, variation) * sqrt(1 + 1 / last.windows)
    deviation = (load_rpm - last.mean_rpm) / scatter
    more, less = last.more.after(load_rpm, deviation, weight), last.less.after(load_rpm, -deviation, weight)
    for changed in (more, less):
        if changed.value > ALARM and abs(deviation) > chance:
            return LoadEstimate(now_s, 1.0, load_rpm, load_rpm)
        if changed.value > ALARM:
            mean = changed.total_rpm / changed.windows
            return LoadEstimate(now_s, changed.windows, mean, mean)
    windows = last.windows + weight
    mean = (last.mean_rpm * last.windows + load_rpm * weight) / windows
    found = LoadEstimate(now_s, min(windows, MOST_WINDOWS), mean, last.level_rpm, more, less)
    if deviation > chance:
        return replace(found, level_rpm=load_rpm)
    known = abs(mean - found.level_rpm) > KNOWN * found.deviation_rpm(window_s, variation)
    return replace(found, level_rpm=mean) if known else found
