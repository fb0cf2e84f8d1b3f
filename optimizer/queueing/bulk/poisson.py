"""Probabilities of Poisson-distributed counts (compiled)."""

import math

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled

MIN_CHANCE = 1e-18
"""Probability below which counts are ignored."""


@compiled
def fill_chances(mean: float, chances: FloatArray) -> None:
    """Fill `chances` with P(N = j), j = 0, 1, …, of a Poisson count with a mean."""
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
    """Fill `chances` with P(N = j) of a Poisson count with a small mean; return the largest count filled.

    Larger counts are negligible.
    """
    chances[0] = math.exp(-mean)
    for j in range(1, len(chances)):
        chances[j] = chances[j - 1] * (mean / j)
        if j > mean and chances[j] < MIN_CHANCE:
            return j
    return len(chances) - 1


@compiled
def fill_at_most(mean: float, at_most: FloatArray) -> None:
    """Fill `at_most` with P(N ≤ j), j = 0, 1, …, of a Poisson count with a mean."""
    fill_chances(mean, at_most)
    for j in range(1, len(at_most)):
        at_most[j] = min(at_most[j] + at_most[j - 1], 1.0)


@compiled
def largest_count(mean: float) -> int:
    """Return a count that a Poisson count with the mean exceeds with a probability below 1e-15."""
    return int(mean + 8.0 * math.sqrt(mean) + 10.0)
