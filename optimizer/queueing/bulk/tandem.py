"""Approximate steady state of a batch server with processing stages before and after it.

Arrivals are Poisson, and are assumed to be Poisson after the stages before the server. The server's batches
reach the next stage as groups. The times at the stages and the server are assumed to be independent (eq.
111).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.lattice import Excess, Lattice, exceeded_by
from optimizer.queueing.bulk.stations import Wait, departures_scv, in_groups, one_by_one
from optimizer.queueing.bulk.steady import ServerSteadyState, server_steady_state
from optimizer.simulation.tandem import Tandem

CURVE_POINTS = 16
"""Number of points at which the server's latency distribution is computed."""
CURVE_END = 1e-4
"""Share of requests with latencies beyond the last point."""
ROUNDING = 1e-9
"""Relative distance of the first point below the minimum latency, which many requests can have."""


@dataclass(frozen=True)
class TandemSteadyState:
    """Steady state of a server with stages (a tandem) at an arrival rate."""

    line: Tandem
    inner: ServerSteadyState
    """Steady state of the server alone."""
    waits: tuple[Wait, ...]
    """Queueing at the stages, in the order in which requests pass them."""

    @property
    def rejected(self) -> float:
        """Share of requests that the server rejects."""
        return self.inner.rejected

    @property
    def busy(self) -> float:
        """Share of time in which the server is busy."""
        return self.inner.busy

    @property
    def mean_batch(self) -> float:
        """Mean number of requests per batch."""
        return self.inner.mean_batch

    @property
    def service_ms(self) -> float:
        """Mean service time of a request: at all stages and in its batch [ms]."""
        return self.inner.service_ms + sum(station.mean_ms for station in self.line.stations)

    @property
    def mean_ms(self) -> float:
        """Mean time from arrival to the end of the last stage [ms]."""
        return self.inner.mean_ms + sum(wait.mean_ms for wait in self.waits)

    @property
    def queue(self) -> float:
        """Mean number of waiting requests, at all stages and the server together."""
        return self.inner.rate * (1 - self.rejected) * (self.mean_ms - self.service_ms)

    def late_share(self, limit_ms: float) -> float:
        """Return the share of completed requests whose latency exceeds a limit [ms] (eq. 111)."""
        least = self.line.server.base_ms + self.line.server.slope_ms
        if limit_ms <= least:
            return 1.0
        lattice = Lattice(limit_ms)
        law = lattice.law(self._curve)
        for wait in self.waits:
            law = law * wait.law(lattice)
        return 1 - lattice.within(law)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of completed requests does not exceed [ms]."""
        return exceeded_by(self.late_share, 1 - share, self.mean_ms)

    @cached_property
    def _curve(self) -> Excess:
        """Function that returns the expected excess of the server's latency over a time."""
        from scipy.interpolate import PchipInterpolator

        least = self.line.server.base_ms + self.line.server.slope_ms
        end = max(2 * self.inner.mean_ms, 1.5 * least)
        while self.inner.late_share(end) > CURVE_END:
            end *= 1.5
        nodes = least * (1 - ROUNDING) + (end - least) * np.linspace(0, 1, CURVE_POINTS) ** 2
        shares = np.array([1.0, *(self.inner.late_share(x) for x in nodes[1:-1]), 0.0])
        curve = PchipInterpolator(nodes, np.minimum.accumulate(shares)).antiderivative()
        whole = float(curve(end))
        shift = self.inner.mean_ms - nodes[0] - whole  # the mean is exact

        def excess(x: FloatArray) -> FloatArray:
            rest = whole - curve(np.clip(x - shift, nodes[0], end))
            return np.asarray(rest + np.maximum(nodes[0] + shift - x, 0.0))

        return excess


def tandem_steady_state(line: Tandem, rate: float) -> TandemSteadyState:
    """Return the steady state of a server with stages (a tandem).

    Args:
        line: the server and its stages; each stage must be able to serve the rate.
        rate: arrival rate [1/ms].

    Raises:
        AnalysisError: the queue of the server is unlimited and grows without bound.
    """
    inner = server_steady_state(line.server, rate)
    waits, scv = [], 1.0
    for station in line.before:
        waits.append(one_by_one(station, rate, scv))
        scv = departures_scv(station, rate, scv)
    answered, scv = rate * (1 - inner.rejected), 1.0
    for place, station in enumerate(line.after):
        if place == 0:
            waits.append(in_groups(station, answered, _batches(inner), _gaps_scv(inner)))
        else:
            waits.append(one_by_one(station, answered, scv))
        scv = departures_scv(station, answered, scv)
    return TandemSteadyState(line, inner, tuple(waits))


def _batches(inner: ServerSteadyState) -> FloatArray:
    """Return the distribution of the batch size, shape (B + 1,)."""
    size = inner.server.size
    chances = np.zeros(size + 1)
    most = min(size, len(inner.starts))
    chances[1:most] = inner.starts[1:most]
    chances[size] += inner.starts[size:].sum()
    return chances / chances.sum()


def _gaps_scv(inner: ServerSteadyState) -> float:
    """Return the squared coefficient of variation of the times between batches.

    The time between batches is one service time, plus an exponential idle time if the server was free.
    """
    server, batches = inner.server, _batches(inner)
    times = server.base_ms + server.slope_ms * np.arange(len(batches))
    mean = float(batches @ times)
    free = float(inner.behind.sum() if server.window_ms > 0 else inner.behind[0])
    cycle = inner.cycle_ms / (1 - float(inner.starts[0]))
    idle = max(cycle - mean, 0.0)
    spread = float(batches @ times**2) - mean**2
    if free > 0:
        spread += idle**2 * (2 / min(free, 1.0) - 1)
    return spread / cycle**2
