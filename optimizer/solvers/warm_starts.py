"""Answers to start from: what runs now, as far as it can stay, and the greedy plan.

A solver that is stopped early answers no worse than these. They are plain arithmetic: no solver is asked.
"""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.greedy import best_of_each
from optimizer.solvers.levels import is_better
from optimizer.solvers.problem import Problem
from optimizer.solvers.related import repaired


def best_initial_solution(problem: Problem) -> IntArray:
    """Return the better, over all levels, of the current allocations completed greedily and the greedy plan.

    Returns:
        Replicas of each candidate, shape (C,).
    """
    nothing = np.zeros(len(problem.table), np.int64)
    greedy, staying = (repaired(problem, replicas) for replicas in (nothing, _staying(problem)))
    return staying if is_better(problem, staying, greedy) else greedy


def _staying(problem: Problem) -> IntArray:
    """Return the replicas of servers that need no more units where they run now, shape (C,).

    They all fit together wherever the current allocations fit.
    """
    table = problem.table
    enough = problem.on_current & (table.num_replicas <= problem.current_replicas[table.server])
    rows = best_of_each(problem, np.flatnonzero(problem.full & problem.own & enough))
    staying = np.zeros(len(table), np.int64)
    staying[rows] = table.num_replicas[rows]
    return staying


def in_columns(columns: IntArray, problem: Problem, replicas: IntArray) -> IntArray:
    """Return an answer of one pool per server in the columns that a model has, rows of the candidate table.

    A candidate that the model leaves out for a better one of its server that uses the same limits is taken
    over by that, as it was sized.
    """
    table, answer, groups = problem.table, replicas.copy(), problem.limits.groups()
    use, columns = problem.limits.use, np.sort(columns)
    outside = np.ones(len(table), np.bool_)
    outside[columns] = False
    if problem.options.heterogeneous:  # a pool of any size goes to the row of its pair that the model has
        twins = np.flatnonzero(outside & problem.repeats & problem.divisible & (answer > 0))
        twins = twins[~outside[twins - 1]]
        answer[twins - 1] = answer[twins]
        answer[twins] = 0
    server = table.server[columns]
    for c in np.flatnonzero(outside & (answer > 0)).tolist():
        mine = columns[slice(*np.searchsorted(server, (table.server[c], table.server[c] + 1)))]
        can = (groups[mine] == groups[c]) & problem.full[mine] & (table.reserved[mine] >= table.reserved[c])
        can &= table.members[mine] & table.members[c] == table.members[c]
        can &= (use[mine] * table.num_replicas[mine][:, None] <= answer[c] * use[c]).all(axis=1)
        answer[c] = 0
        if can.any():
            best = mine[can][np.argmin(problem.value[mine[can]])]
            answer[best] = table.num_replicas[best]
    return answer
