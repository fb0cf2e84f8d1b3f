"""Unlimited plans: without capacities each server chooses for itself, and no solver is needed."""

import numpy as np

from optimizer.solvers.levels import proved_levels
from optimizer.solvers.problem import Problem, Solution, Status


def solve_separable(problem: Problem) -> Solution:
    """Give each server its column of least value, then fewest changes; ties go to the first in order."""
    table = problem.table
    order = np.lexsort((problem.changed, problem.value, table.server))
    _, first = np.unique(table.server[order], return_index=True)
    chosen = order[first]
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return Solution(replicas, Status.optimal, "separable", proved_levels(problem, replicas))
