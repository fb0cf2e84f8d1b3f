"""The long run of a Markov chain whose moves are bounded: compiled.

States are taken out one by one from the highest, and what passed through them is added to the others, without
a subtraction: every figure is right to rounding, however small. Source: Grassmann, Taksar and Heyman,
Regenerative analysis and steady state distributions for Markov chains (1985).
"""

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled

NEVER = 1e-100
"""Chance to leave a state for a lower one that counts as none."""
LARGEST = 1e150
"""Times that a state may be likelier than the lowest; beyond it all are scaled down."""


@compiled
def fill_stationary(rows: FloatArray, down: int, up: int, chances: FloatArray) -> None:
    """Fill how often each state is taken, as a share.

    Args:
        rows: how likely moves by −`down` … `up` are, by state; shape (states, down + up + 1). Used up.
        down: largest move down.
        up: largest move up.
        chances: filled; shape (states,).
    """
    count, lowest = len(chances), 0
    for n in range(count - 1, 0, -1):
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
                for j in range(len(mine)):  # over parts of rows, for several numbers to be added at once
                    through[j] += share * mine[j]
    for n in range(lowest):
        chances[n] = 0.0
    chances[lowest] = 1.0
    total = 1.0
    for n in range(lowest + 1, count):
        into = 0.0
        for i in range(max(n - up, lowest), n):
            into += chances[i] * rows[i, down + n - i]
        chances[n] = into / chances[n]
        total += chances[n]
        if total > LARGEST:
            for i in range(lowest, n + 1):
                chances[i] /= LARGEST
            total /= LARGEST
    for n in range(lowest, count):
        chances[n] /= total
