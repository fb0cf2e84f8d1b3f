"""Stationary distribution of a Markov chain with bounded jumps (compiled).

States are eliminated one by one from the highest, without subtractions, so every probability is exact to
rounding, even if it is tiny. Source: Grassmann, Taksar and Heyman, Regenerative analysis and steady state
distributions for Markov chains (1985).
"""

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled

NEVER = 1e-100
"""Probability of leaving a state downwards up to which it counts as zero."""
MAX_WEIGHT = 1e150
"""Largest ratio of weights to that of the lowest state before all weights are rescaled."""


@compiled
def fill_stationary(rows: FloatArray, down: int, up: int, chances: FloatArray) -> None:
    """Fill `chances` with the stationary distribution of a chain.

    Args:
        rows: probabilities of jumps by −`down` … `up` from each state; shape (states, down + up + 1).
            Overwritten.
        down: largest jump down.
        up: largest jump up.
        chances: filled with probabilities, shape (states,).
    """
    count, lowest = len(chances), 0
    for n in range(count - 1, 0, -1):
        # After state n the chain continues in a lower state, so jumps into n become jumps to that state.
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
                for j in range(len(mine)):  # the compiler vectorises slices
                    through[j] += share * mine[j]
    for n in range(lowest):
        chances[n] = 0.0
    chances[lowest] = 1.0
    # The weight of each state follows from the flow into it from lower states.
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
