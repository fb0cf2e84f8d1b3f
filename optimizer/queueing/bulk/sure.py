"""Bounds on rates up to which a batch server certainly meets its targets, without computing steady states.

At such rates, a request almost never finds B others waiting, and all others complete in time. Equation
numbers refer to docs/math.md.
"""

from collections.abc import Mapping

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.simulation.batches import CLOCK, OLDEST, BatchServer

RATES = 33
"""Number of loads that are tested, in geometric progression."""
MIN_LOAD, MAX_LOAD = 1e-3, 0.95
TERMS = 16
"""Number of terms of the sum in eq. 130 that are computed; the remainder is bounded."""
ROUNDING = 1e-9


def surely_met_below(server: BatchServer, limits: Mapping[TargetMeasure, float]) -> float:
    """Return a rate [1/ms] up to which all targets are met at every rate; 0 if none is known."""
    if any(measure != LOSS and measure.percentile is None for measure in limits):
        return 0.0
    places = server.queue_limit - server.size * server.counts_system
    if places < server.size and LOSS in limits:
        return 0.0
    loads = np.geomspace(MAX_LOAD, MIN_LOAD, RATES)
    rates = loads * server.full_rate
    least_excess = _found_full(server, rates)
    # A cycle completes at least one request; with `clock`, all requests that are not rejected.
    answered = (
        np.maximum(rates * server.window_ms - least_excess, 0.0)
        if server.trigger == CLOCK
        else np.ones(RATES)
    )
    met = np.ones(RATES, np.bool_)
    for measure, limit in limits.items():
        allowed, late = limit, least_excess
        if measure.percentile is not None:
            allowed = 1 - measure.percentile / 100
            late = least_excess + rates * _late_ms(server, limit)
        met &= late < allowed * (1 - ROUNDING) * answered
    return float(rates[met.argmax()]) if met.any() else 0.0


def _found_full(server: BatchServer, rates: FloatArray) -> FloatArray:
    """Return an upper bound on the requests per cycle that find B others waiting, for each rate (eq. 130).

    It is the mean number of requests that full services leave, with a bound on the last terms.
    """
    from scipy.special import pdtrc

    size, mean = server.size, rates * server.spacing_ms
    m = np.arange(1, TERMS + 1)[:, np.newaxis]
    full = m * size
    over = m * mean * pdtrc(full - 1, m * mean) - full * pdtrc(full, m * mean)
    theta = np.log(size / mean)
    ratio = np.exp(size - mean - size * theta)
    rest = ratio ** (TERMS + 1) / ((TERMS + 1) * (1 - ratio) * np.e * theta)
    return np.asarray((over / m).sum(axis=0) + rest)


def _late_ms(server: BatchServer, limit_ms: float) -> float:
    """Return the part of a service [ms] in which arrivals with fewer than B requests ahead can be late.

    It is inf if requests that find the server free can be late.
    """
    window, full_ms = server.window_ms, server.base_ms + server.slope_ms * server.size
    spare_ms = limit_ms * (1 - ROUNDING) - window - full_ms
    if spare_ms < 0:
        return np.inf
    if server.trigger == CLOCK:
        return 0.0
    if server.trigger == OLDEST:  # the window continues during the service
        spare_ms += window
    return max(full_ms - spare_ms, 0.0)
