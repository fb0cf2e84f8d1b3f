"""Arrivals with gamma-distributed interarrival times: counts in a time window, and the load that they find.

All shapes are (R,). Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray

MIN_SCV = 0.05
"""Minimum squared coefficient of variation in formulas that divide by it."""
NEARLY_EVEN = 0.5
"""Squared coefficient of variation below which arrivals are treated as evenly spaced."""
BURST_POWER = 0.28
REGULAR_SLOPE = 1.6
NEWTON_STEPS = 14


def dispersion(count: FloatArray, scv: FloatArray) -> FloatArray:
    """Return the index of dispersion (variance/mean) of the number of arrivals in a time window (eq. 64).

    It is 1 in a short window, and approaches the squared coefficient of variation in a long one. Both
    exponents were fitted to the renewal function of gamma times; the largest error is about 0.3.

    Args:
        count: mean number of arrivals in the window.
        scv: squared coefficient of variation of the interarrival times.
    """
    if (scv == 1).all():
        return np.ones_like(count)
    burst = (scv - 1) * (count / (count + scv)) ** BURST_POWER
    root = np.sqrt(np.maximum(1 - scv, MIN_SCV**2))
    regular = (scv - 1) * (1 - 1 / (1 + REGULAR_SLOPE * count / root))
    return 1 + np.where(scv > 1, burst, regular)


def none_arrive(count: FloatArray, scv: FloatArray) -> FloatArray:
    """Return the probability of no arrival in a time window that starts at a random time (eq. 65).

    It is the survival function of the residual interarrival time: for gamma times with shape κ, in units of
    their mean, Q(κ+1, κy) − y·Q(κ, κy).
    """
    from scipy.special import gammaincc

    if (scv == 1).all():
        return np.exp(-count)
    shape = 1 / np.maximum(scv, MIN_SCV)
    arrived = gammaincc(shape + 1, shape * count) - count * gammaincc(shape, shape * count)
    return np.where(scv == 1, np.exp(-count), np.clip(arrived, 0.0, 1.0))


def load_found(load: FloatArray, scv: FloatArray) -> FloatArray:
    """Return the probability that an arrival finds the server of a GI/M/1 queue busy (eq. 66).

    It is the root σ < 1 of σ = (1 + (1 − σ)·c/ρ)^(−1/c), found by Newton's method. The difference of both
    sides is concave, so the iteration converges from any start below the root.

    Args:
        load: ρ in (0, 1).
        scv: squared coefficient of variation of the interarrival times.
    """
    shape = np.maximum(scv, MIN_SCV)
    if (shape == 1).all():
        return load.copy()
    sigma = np.where(shape >= 1, load, 0.0)
    for _ in range(NEWTON_STEPS):
        inner = 1 + (1 - sigma) * shape / load
        right = np.exp(-np.log(inner) / shape)
        slope = 1 - right / (load * inner)
        sigma = np.where(slope > 0, sigma - (sigma - right) / np.where(slope > 0, slope, 1.0), sigma)
    return np.where(shape == 1, load, np.clip(sigma, 0.0, 1.0))
