"""The Lagrangian bound of a level from dual values, by plain arithmetic rounded to the safe side (eq. 91)."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.solvers.branch_and_price.master import MasterProblem

ULP = 2.0**-52


def lagrangian_bound(master: MasterProblem, duals: FloatArray, least: FloatArray) -> float:
    """Return the bound that dual values prove.

    Args:
        master: the level.
        duals: one for each shared row, not below zero.
        least: the least reduced cost of each active server, over all its columns; infinity for a server
            without any, so that there is no solution.
    """
    if np.isposinf(least).any():
        return math.inf
    worth = np.multiply(duals, master.limits, out=np.zeros(len(duals)), where=duals > 0)
    parts = [
        master.objective.outside,
        *least.tolist(),
        *(-worth).tolist(),
        *master.step_bound(duals).tolist(),
    ]
    # Each term is a sum of few products.
    terms = len(worth) + 8
    return math.fsum(parts) - terms * ULP * math.fsum(np.abs(parts).tolist())
