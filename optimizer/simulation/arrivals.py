"""Random arrival times with a given mean rate and variability."""

import numpy as np

from optimizer.arrays import FloatArray

POISSON_CV = 1.0


def arrival_times_ms(
    rate_rps: float, count: int, rng: np.random.Generator, cv: float = POISSON_CV
) -> FloatArray:
    """Return the times [ms] of `count` arrivals, shape (count,).

    Args:
        rate_rps: mean rate [req/s], above 0.
        count: number of arrivals.
        rng: source of randomness.
        cv: coefficient of variation of the interarrival times: 0 even, 1 Poisson, otherwise gamma.
    """
    mean_ms = 1000 / rate_rps
    if cv == 0:
        gaps = np.full(count, mean_ms)
    elif cv == POISSON_CV:
        gaps = rng.exponential(mean_ms, count)
    else:
        shape = 1 / (cv * cv)
        gaps = rng.gamma(shape, mean_ms / shape, count)
    return np.cumsum(gaps)
