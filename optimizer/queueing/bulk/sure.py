"""Rates at which a batch server keeps its targets for sure, and at all below them, without its long run.

At such rates a request hardly ever finds B others waiting, and whoever does not is answered in time. Equation
numbers refer to docs/math.md.
"""

from collections.abc import Mapping

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.simulation.batches import CLOCK, GAP, OLDEST, BatchServer

RATES = 33
"""Loads that are looked at, each less than the one before by the same factor:"""
MIN_LOAD, LARGEST_LOAD = 1e-3, 0.95
TERMS = 16
"""Terms of the sum; what follows is bounded."""
ROUNDING = 1e-9


def surely_met_below(server: BatchServer, limits: Mapping[TargetMeasure, float]) -> float:
    """Return a rate [1/ms] up to which all targets hold, whatever the rate; 0 where none is known."""
    if any(measure != LOSS and measure.percentile is None for measure in limits):
        return 0.0
    beside = server.room - server.size * server.counts_system
    if beside < server.size and LOSS in limits:
        return 0.0
    loads = np.geomspace(LARGEST_LOAD, MIN_LOAD, RATES)
    rates = loads * server.full_rate
    found = _found_full(server, rates)
    # Of a cycle at least one request is answered; of a tick all that come but for those that are lost.
    answered = (
        np.maximum(rates * server.window_ms - found, 0.0) if server.trigger == CLOCK else np.ones(RATES)
    )
    met = np.ones(RATES, np.bool_)
    for measure, limit in limits.items():
        allowed, late = limit, found
        if measure.percentile is not None:
            allowed = 1 - measure.percentile / 100
            late = found + rates * _late_ms(server, limit)
        met &= late < allowed * (1 - ROUNDING) * answered
    return float(rates[met.argmax()]) if met.any() else 0.0


def _found_full(server: BatchServer, rates: FloatArray) -> FloatArray:
    """Return a bound on how many requests of a cycle find B others waiting, by rate (eq. 130).

    It is the mean of what full services leave over, whose last terms are bounded in turn.
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
    """Return of how much of a service those who come in it are late though fewer than B wait before them.

    Infinity where those may be late who find the server free.
    """
    window, full_ms = server.window_ms, server.base_ms + server.slope_ms * server.size
    after = (server.size - 1) * window if server.trigger == GAP else window
    spare_ms = limit_ms * (1 - ROUNDING) - after - full_ms
    if spare_ms < 0:
        return np.inf
    if server.trigger == CLOCK:
        return 0.0
    if server.trigger == OLDEST:  # the window goes on during the service
        spare_ms += after
    return max(full_ms - spare_ms, 0.0)
