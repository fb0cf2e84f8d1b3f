"""Plans of one accelerator per server without limits: each server chooses for itself."""

import numpy as np

from optimizer.solvers.levels import levels_of
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution, Status


def solve_separable(problem: Problem) -> Solution:
    """Give each server its candidate of least value, then fewest changes, then most room, then the first."""
    table = problem.table
    rows = np.flatnonzero(problem.full)
    goals = ~table.reserved[rows], problem.off_preferred_total[rows]
    levels = (*goals[::-1], *(part[rows] for part in problem.unserved_parts[::-1]))
    keys = (-problem.room[rows], problem.changed[rows], problem.value[rows], *levels, table.server[rows])
    order = rows[np.lexsort(keys)]
    _, first = np.unique(table.server[order], return_index=True)
    chosen = order[first]
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return Solution(replicas, Status.optimal, "separable", levels_of(problem, replicas, proved=True))
