"""Single-accelerator plans without limits, in which servers are independent."""

import numpy as np

from optimizer.solvers.greedy import best_first
from optimizer.solvers.levels import levels_of
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution, Status


def solve_separable(problem: Problem) -> Solution:
    """Choose each server's candidate by least value, fewest changes, most spare capacity, then order."""
    table = problem.table
    order = best_first(problem, np.flatnonzero(problem.full), ~table.reserved)
    _, first = np.unique(table.server[order], return_index=True)
    chosen = order[first]
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return Solution(replicas, Status.optimal, "separable", levels_of(problem, replicas, proved=True))
