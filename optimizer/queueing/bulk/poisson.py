"""Counts of Poisson arrivals, for compiled code."""

import math

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled


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
        chances[j - 1] = chances[j] * j / mean
    for j in range(mode + 1, count):
        chances[j] = chances[j - 1] * mean / j


@compiled
def fill_at_most(mean: float, at_most: FloatArray) -> None:
    """Fill P(N ≤ j) for j = 0 … of a Poisson count."""
    fill_chances(mean, at_most)
    for j in range(1, len(at_most)):
        at_most[j] = min(at_most[j] + at_most[j - 1], 1.0)


@compiled
def largest_count(mean: float) -> int:
    """Return a count that is exceeded with a probability below 1e-15."""
    return int(mean + 9.0 * math.sqrt(mean) + 25.0)


@compiled
def fill_up_to(mean: float, first: int, top: int, chances: FloatArray, out: FloatArray) -> None:
    """Fill P(first + N = j) for j ≤ `top` of a Poisson count, where whatever is beyond `top` counts as it."""
    fill_chances(mean, chances[: top - first + 1])
    out[: top + 1] = 0.0
    rest = 1.0
    for c in range(top - first):
        out[first + c] = chances[c]
        rest -= chances[c]
    out[top] = max(rest, 0.0)
