"""Stationary distribution of a Markov chain with bounded jumps (compiled).

States are eliminated one by one from the highest, without subtractions: every probability is exact to
rounding, however small. Source: Grassmann, Taksar and Heyman, Regenerative analysis and steady state
distributions for Markov chains (1985).
"""

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled

NEVER = 1e-100
"""Probability of leaving a state downwards that counts as zero."""
MAX_WEIGHT = 1e150
"""Largest ratio to the lowest state before all weights are rescaled."""


@compiled
def fill_stationary(rows: FloatArray, down: int, up: int, chances: FloatArray) -> None:
    """Fill the stationary distribution.

    Args:
        rows: probabilities of jumps by −`down` … `up`, by state; shape (states, down + up + 1). Overwritten.
        down: largest jump down.
        up: largest jump up.
        chances: filled; shape (states,).
    """
    count, lowest = len(chances), 0
    for n in range(count - 1, 0, -1):
        # Leaving state n, the chain continues below it: jumps into n become jumps to where it goes next.
        first = max(n - down, 0)
        mine = rows[n, down + first - n : down]
        leaving = 0.0
        for j in range(len(mine)):
            leaving += mine[j]
        if leaving <= NEVER:
            lowest = n
            break
        chances[n] = leaving
        for i in range(max(n - up, 0), n):
            share = rows[i, down + n - i] / leaving
            if share > 0:
                through = rows[i, down + first - i : down + n - i]
                for j in range(len(mine)):  # over slices, which the compiler vectorises
                    through[j] += share * mine[j]
    for n in range(lowest):
        chances[n] = 0.0
    chances[lowest] = 1.0
    # Each weight follows from the flow into it from the states below.
    total = 1.0
    for n in range(lowest + 1, count):
        into = 0.0
        for i in range(max(n - up, lowest), n):
            into += chances[i] * rows[i, down + n - i]
        chances[n] = into / chances[n]
        total += chances[n]
        if total > MAX_WEIGHT:
            for i in range(lowest, n + 1):
                chances[i] /= MAX_WEIGHT
            total /= MAX_WEIGHT
    for n in range(lowest, count):
        chances[n] /= total
