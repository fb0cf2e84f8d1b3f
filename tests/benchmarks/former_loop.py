"""The rule by which the control loop scaled one server before it counted single periods.

Rates are counted over 60 s and smoothed with CUSUM statistics; queues should be served within a drain time.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from service_days import PERIOD_S, Seen, Service

from optimizer.stabilisation.forecast import ForecastSettings, RateForecast
from optimizer.stabilisation.loads import LoadEstimate, with_load
from optimizer.stabilisation.rules import RECOMMENDED
from optimizer.units import SECONDS_PER_MINUTE

WINDOW_S, DRAIN_S, EVERY = 60.0, 60.0, 2
"""Counting window and drain time [s], and the number of periods between two plans."""


@dataclass
class FormerLoop:
    """The former rule, with its state."""

    form: Service
    headroom: float = 0.0
    counts_completions: bool = False
    """Whether completions count as arrivals, without a queue."""
    counts: deque[float] = field(default_factory=lambda: deque(maxlen=round(WINDOW_S / PERIOD_S)))
    waiting: int = 0
    calls: int = 0
    estimate: LoadEstimate | None = None
    forecast: RateForecast = field(default_factory=RateForecast)
    past: list[tuple[float, float, int, int]] = field(default_factory=list)
    """First and last time of the same numbers, recommended and desired replicas."""

    def __call__(self, seen: Seen) -> int:
        """Return the desired replicas."""
        growth, self.waiting = seen.waiting - self.waiting, seen.waiting
        self.counts.append(seen.completed if self.counts_completions else seen.started + growth)
        self.calls += 1
        if self.calls % EVERY:
            return seen.desired
        now_s, form = seen.now_s, self.form
        counted_rps = max(0.0, sum(self.counts)) / (len(self.counts) * PERIOD_S)
        self.forecast = self.forecast.after(counted_rps, now_s, ForecastSettings())
        rate_rps = max(counted_rps, self.forecast.at(form.startup_s + EVERY * PERIOD_S))
        self.estimate = with_load(self.estimate, rate_rps * SECONDS_PER_MINUTE, 1.0, now_s, RECOMMENDED)
        queued = 0 if self.counts_completions else seen.waiting
        drained_rps = (rate_rps + queued / DRAIN_S) * form.within_rps / form.most_rps
        factor = max(rate_rps, drained_rps) / rate_rps if rate_rps else 1.0
        wanted = self._stabilised(seen, self.estimate.level_rpm / SECONDS_PER_MINUTE * factor)
        while len(self.past) > 1 and self.past[1][0] <= now_s - 300:
            self.past.pop(0)
        return wanted

    def _plan(self, rate_rps: float) -> int:
        number = math.ceil(rate_rps * (1 + self.headroom) / self.form.within_rps - 1e-9)
        return max(1, min(self.form.most, number))

    def _stabilised(self, seen: Seen, load_rps: float) -> int:
        """Return the desired replicas after the recommended rules."""
        assert self.estimate is not None
        now_s, before, wanted = seen.now_s, seen.desired, self._plan(load_rps)
        if wanted < before:
            known = self.estimate.deviation_rpm(WINDOW_S, 1.0) / self.estimate.mean_rpm
            wanted = min(before, max(wanted, self._plan(load_rps * min(1.15, 1 + known))))
        recommended = wanted
        if wanted > before:
            base = max(self._desired_at(now_s - 60, before), before)
            wanted = min(wanted, base + max(4, 3 * base))
        elif wanted < before:
            upper = min(before, max(seen.ready, wanted))
            held = min(
                upper, max([wanted, *(number for _, at_s, number, _ in self.past if at_s > now_s - 300)])
            )
            base = self._desired_at(now_s - 120, before)
            wanted = max(held, min(upper, base - max(1, math.floor(base * 0.1 + 1e-9))))
        if self.past and self.past[-1][2:] == (recommended, wanted):
            self.past[-1] = (self.past[-1][0], now_s, recommended, wanted)
        else:
            self.past.append((now_s, now_s, recommended, wanted))
        return wanted

    def _desired_at(self, then_s: float, now: int) -> int:
        known = [desired for first_s, _, _, desired in self.past if first_s <= then_s]
        return known[-1] if known else self.past[0][3] if self.past else now
