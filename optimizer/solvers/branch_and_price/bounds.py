"""Lagrangian bound of a level from dual values (eq. 91).

It is computed without a solver and rounded to the safe side.
"""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.solvers.branch_and_price.master import MasterProblem

ULP = 2.0**-52


def lagrangian_bound(master: MasterProblem, duals: FloatArray, least: FloatArray) -> float:
    """Return the Lagrangian bound that dual values prove for a level.

    Args:
        master: the level.
        duals: dual value of each shared row, at least 0.
        least: the least reduced cost of each active server over all its columns; inf for a server without
            columns, so that there is no solution.
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
    # Each term is a sum of a few products, so its rounding error is a few ULP.
    terms = len(worth) + 8
    return math.fsum(parts) - terms * ULP * math.fsum(np.abs(parts).tolist())
