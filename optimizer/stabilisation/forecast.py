"""Forecast of an arrival rate: level, trend and daily pattern.

Until an entire day is known it is Holt's linear method: the level continues with the trend. After that it is
the rate at the same time of day, averaged over the last days, times the ratio of the current level to the
usual one. Holt, *Forecasting seasonals and trends by exponentially weighted moving averages* (1957).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Seconds

DAY_S = 86_400.0
BINS = 96
"""Number of intervals into which a day is divided."""
BIN_S = DAY_S / BINS
MAX_RATIO = 2.0
"""Maximum ratio of a forecast to the current level, and of the current level to the usual one."""


class ForecastSettings(Document):
    """Settings of the forecast of arrival rates."""

    level_s: Seconds = Field(120.0, alias="level")
    """Time constant of the average that estimates the level of the rate [s]."""
    trend_s: Seconds = Field(900.0, alias="trend")
    """Time constant of the average that estimates the trend of the rate [s]."""
    days: Annotated[float, Field(ge=1, le=365)] = 3.0
    """Number of days over which the daily pattern is averaged."""


@dataclass(frozen=True, slots=True)
class RateForecast:
    """State of the forecast of one arrival rate."""

    seen_s: float | None = None
    """Time of the last measured rate [s since the epoch]; None if there was none."""
    level_rps: float = 0.0
    trend_rps_per_s: float = 0.0
    season_rps: Mapping[int, float] = field(default_factory=dict)
    """Usual rate in each known interval of the day [requests/s]."""
    sum_rps: float = 0.0
    """Sum of the measured rates in the current interval of the day [requests/s]."""
    count: int = 0

    def after(self, rate_rps: float, now_s: float, settings: ForecastSettings) -> "RateForecast":
        """Return the state updated with a measured rate."""
        if self.seen_s is None:
            return RateForecast(now_s, rate_rps, sum_rps=rate_rps, count=1)
        passed_s = now_s - self.seen_s
        if passed_s <= 0:
            return self
        predicted_rps = self.level_rps + self.trend_rps_per_s * passed_s
        # Exponential smoothing with a time constant: the weight of a rate falls by e in each constant, so
        # irregular intervals between measurements do not matter.
        weight = 1 - exp(-passed_s / settings.level_s)
        level_rps = max(0.0, predicted_rps + weight * (rate_rps - predicted_rps))
        weight = 1 - exp(-passed_s / settings.trend_s)
        slope = (level_rps - self.level_rps) / passed_s
        trend = self.trend_rps_per_s + weight * (slope - self.trend_rps_per_s)
        result = self._with_season(rate_rps, now_s, settings)
        return replace(result, seen_s=now_s, level_rps=level_rps, trend_rps_per_s=trend)

    def _with_season(self, rate_rps: float, now_s: float, settings: ForecastSettings) -> "RateForecast":
        """Add a rate to its interval of the day; an interval that has ended updates the daily pattern."""
        assert self.seen_s is not None
        last = _bin(self.seen_s)
        if _bin(now_s) == last:
            return replace(self, sum_rps=self.sum_rps + rate_rps, count=self.count + 1)
        mean_rps = self.sum_rps / self.count
        usual_rps = self.season_rps.get(last, mean_rps)
        changed_rps = usual_rps + (mean_rps - usual_rps) / settings.days
        return replace(self, season_rps={**self.season_rps, last: changed_rps}, sum_rps=rate_rps, count=1)

    def at(self, ahead_s: float) -> float:
        """Return the forecast of the rate `ahead_s` seconds from now [requests/s]."""
        if self.seen_s is None:
            return 0.0
        now_rps, then_rps = self._usual(self.seen_s), self._usual(self.seen_s + ahead_s)
        if now_rps is None or then_rps is None:
            forecast_rps = self.level_rps + self.trend_rps_per_s * ahead_s
        else:
            # The shape of the usual day, scaled to the level of today.
            ratio = self.level_rps / now_rps if now_rps else 1.0
            forecast_rps = then_rps * min(MAX_RATIO, max(1 / MAX_RATIO, ratio))
        return min(max(0.0, forecast_rps), MAX_RATIO * self.level_rps)

    def _usual(self, time_s: float) -> float | None:
        """Return the usual rate at a time of day, interpolated between intervals [requests/s].

        None if unknown.
        """
        place = time_s / BIN_S - 0.5
        first = int(place // 1)
        share = place - first
        low, high = self.season_rps.get(first % BINS), self.season_rps.get((first + 1) % BINS)
        return None if low is None or high is None else low + share * (high - low)


def _bin(time_s: float) -> int:
    return int(time_s // BIN_S) % BINS
