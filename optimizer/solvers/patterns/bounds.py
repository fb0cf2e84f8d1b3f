"""A bound of a level from multipliers, by plain arithmetic rounded to the safe side.

For any prices of the shared rows that are not below zero, no answer is less than what servers choose at these
prices, each for itself, less what the rows' limits are worth. Equation numbers refer to ``docs/math.md``.
"""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.solvers.patterns.program import Program

ULP = 2.0**-52


def bound_of(program: Program, prices: FloatArray, least: FloatArray) -> float:
    """Return the bound that prices prove.

    Args:
        program: the level.
        prices: one for each shared row, not below zero.
        least: the least reduced cost of each server that chooses, over all options that it has; infinity
            where it has none, so that there is no answer.
    """
    if np.isposinf(least).any():
        return math.inf
    worth = np.multiply(prices, program.limits, out=np.zeros(len(prices)), where=prices > 0)
    total = math.fsum([*least.tolist(), *(-worth).tolist()])
    # Each term is a sum of few products: what rounding can have added to them is taken off.
    terms = len(prices) + 8
    return total - terms * ULP * math.fsum([*np.abs(least).tolist(), *worth.tolist()])
