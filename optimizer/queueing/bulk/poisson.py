"""Probabilities of Poisson counts (compiled)."""

import math

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled

MIN_CHANCE = 1e-18
"""Probability below which a count is cut off."""


@compiled
def fill_chances(mean: float, chances: FloatArray) -> None:
    """Fill P(N = j) for j = 0 … of a Poisson count."""
    count = len(chances)
    if mean <= 0:
        chances[:] = 0.0
        chances[0] = 1.0
        return
    mode = min(int(mean), count - 1)
    chances[mode] = math.exp(mode * math.log(mean) - mean - math.lgamma(mode + 1.0))
    for j in range(mode, 0, -1):
        chances[j - 1] = chances[j] * (j / mean)
    for j in range(mode + 1, count):
        chances[j] = chances[j - 1] * (mean / j)


@compiled
def fill_step(mean: float, chances: FloatArray) -> int:
    """Fill P(N = j) of a small Poisson count, up to the count returned, above which it is negligible."""
    chances[0] = math.exp(-mean)
    for j in range(1, len(chances)):
        chances[j] = chances[j - 1] * (mean / j)
        if j > mean and chances[j] < MIN_CHANCE:
            return j
    return len(chances) - 1


@compiled
def fill_at_most(mean: float, at_most: FloatArray) -> None:
    """Fill P(N ≤ j) for j = 0 … of a Poisson count."""
    fill_chances(mean, at_most)
    for j in range(1, len(at_most)):
        at_most[j] = min(at_most[j] + at_most[j - 1], 1.0)


@compiled
def largest_count(mean: float) -> int:
    """Return a count that is exceeded with probability below 1e-15."""
    return int(mean + 8.0 * math.sqrt(mean) + 10.0)
