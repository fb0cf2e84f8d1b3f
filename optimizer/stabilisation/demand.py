"""Demand of a server: its arrival rate now and when a replica that is ordered now is ready."""

from dataclasses import dataclass, field, replace

from optimizer.stabilisation.arrivals import ArrivalCount, ArrivalRate, CountHistory
from optimizer.stabilisation.forecast import MAX_RATIO, ForecastSettings, RateForecast

FORECAST_WINDOW_S = 60.0
"""Time over which rates are averaged for the forecast [s]."""
CERTAIN = 3.0
"""Deviation of the rate beyond which a fall is significant [standard deviations]."""


@dataclass(frozen=True, slots=True)
class ServerDemand:
    """Arrival rate of a server, now and when a replica that is ordered now is ready."""

    now: ArrivalRate
    ahead_s: float
    """Time from now for which plans are made: start-up time and period [s]."""
    forecast_rps: float | None = None
    """Forecast rate after `ahead_s` [requests/s]; None without a forecast."""
    hold_s: float | None = None
    """Time that replicas stay after a significant fall [s], and replicas for a backlog leave at once; None if
    the rules on reductions apply to both.
    """

    @property
    def rate_rps(self) -> float:
        """Rate for which plans are made [requests/s].

        The largest of the rate, its line at the time `ahead_s`, and the forecast (docs/loop.md, eq. L2).
        """
        now_rps = self.now.rate_rps
        line_rps = min(MAX_RATIO * now_rps, now_rps + self.now.slope_rps_per_s * self.ahead_s)
        return max(now_rps, line_rps, self.forecast_rps or 0.0)

    @property
    def at_most_rps(self) -> float:
        """Rate that the true rate hardly exceeds [requests/s]; a fall below it is significant."""
        high_rps = self.now.rate_rps + CERTAIN * self.now.deviation_rps
        return max(high_rps, self.forecast_rps or 0.0)

    @property
    def deviation(self) -> float:
        """Standard deviation of the rate, as a share of the rate."""
        return self.now.deviation_rps / self.now.rate_rps if self.now.rate_rps else 0.0


@dataclass(frozen=True, slots=True)
class DemandMemory:
    """State of the estimation of a demand."""

    history: CountHistory = field(default_factory=CountHistory)
    forecast: RateForecast = field(default_factory=RateForecast)

    def after(
        self, count: ArrivalCount, startup_s: float, settings: ForecastSettings | None
    ) -> "DemandMemory":
        """Return the state with a count added; a jump also sets the level of the forecast.

        Args:
            count: the count.
            startup_s: time that a replica needs to become ready [s].
            settings: settings of the forecast; None for no forecast.
        """
        history = self.history.after(count, startup_s)
        if settings is None or history.counts == self.history.counts:
            return replace(self, history=history)
        rate_rps = history.mean_rps(FORECAST_WINDOW_S)
        forecast = self.forecast.after(rate_rps, count.end_s, settings)
        return DemandMemory(history, replace(forecast, level_rps=rate_rps) if history.jumped else forecast)

    def at(
        self, ahead_s: float, settings: ForecastSettings | None, hold_s: float | None = None
    ) -> ServerDemand:
        """Return the demand at the last count, for plans that look `ahead_s` seconds ahead."""
        history, forecast_rps = self.history, None if settings is None else self.forecast.at(ahead_s)
        now = history.at(history.last.end_s if history.last else 0.0)
        return ServerDemand(now, ahead_s, forecast_rps, hold_s)
