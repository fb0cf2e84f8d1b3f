"""Unlimited plans: without capacities each server chooses for itself.

One column per server needs no solver; a mixture of columns is a small problem for each server.
"""

import time

import numpy as np

from optimizer.solvers.levels import CHANGES, VALUE, levels_of
from optimizer.solvers.milp import SessionFactory, solve_milp
from optimizer.solvers.problem import Level, Problem, Solution, Status


def solve_separable(problem: Problem) -> Solution:
    """Give each server its column of least value, then fewest changes; ties go to the first in order."""
    table = problem.table
    rows = np.flatnonzero(problem.full)
    order = rows[np.lexsort((problem.changed[rows], problem.value[rows], table.server[rows]))]
    _, first = np.unique(table.server[order], return_index=True)
    chosen = order[first]
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return Solution(replicas, Status.optimal, "separable", levels_of(problem, replicas, proved=True))


def solve_separable_mixed(problem: Problem, session: SessionFactory) -> Solution:
    """Give each server its mixture of least value, then fewest changes, one server at a time.

    Raises:
        SolverError: the solver failed.
    """
    deadline = time.perf_counter() + problem.options.time_limit_s
    replicas = np.zeros(len(problem.table), np.int64)
    open_value = open_changes = 0.0
    status = Status.optimal
    for server in np.unique(problem.table.server):
        alone = problem.of_servers(np.arange(len(problem.priority)) == server)
        solution = solve_milp(alone, session, max(deadline - time.perf_counter(), 0.1))
        replicas[problem.table.server == server] = solution.replicas
        status = status if solution.status is Status.optimal else solution.status
        value, changes = solution.level(VALUE), solution.level(CHANGES)
        open_value += value.value - (value.bound or 0.0)
        open_changes += changes.value - (changes.bound or 0.0)
    levels = [
        Level(
            level.name,
            level.value,
            level.value - {VALUE: open_value, CHANGES: open_changes}.get(level.name, 0.0),
        )
        for level in levels_of(problem, replicas, proved=True)
    ]
    return Solution(replicas, status, "separable", tuple(levels))
