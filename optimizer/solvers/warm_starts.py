"""Initial solutions: the current allocations as far as feasible, and the greedy plan.

They need no solver. A solver that is stopped early never returns a worse solution.
"""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.greedy import best_of_each
from optimizer.solvers.level_solver import Incumbent
from optimizer.solvers.levels import is_better
from optimizer.solvers.model_columns import current_allocations
from optimizer.solvers.problem import Problem
from optimizer.solvers.related import RelatedSolution, repaired


def best_initial_solution(problem: Problem) -> IntArray:
    """Return the better of two solutions: the current allocations completed greedily, and the greedy plan.

    Returns:
        Replicas of each candidate, shape (C,).
    """
    nothing = np.zeros(len(problem.table), np.int64)
    greedy, staying = (repaired(problem, replicas) for replicas in (nothing, _staying(problem)))
    return staying if is_better(problem, staying, greedy) else greedy


def initial_incumbent(problem: Problem, columns: IntArray, related: RelatedSolution | None) -> Incumbent:
    """Return the best initial solution that the columns of a model can express.

    Args:
        problem: the planning problem.
        columns: candidates that are columns of the model.
        related: solution of a problem that differs in one change, which is used if it is better.
    """
    starts = [best_initial_solution(problem)]
    starts += [] if related is None else [repaired(problem, related.replicas)]
    return Incumbent(problem, [in_columns(columns, problem, start) for start in starts])


def _staying(problem: Problem) -> IntArray:
    """Return the current replicas of servers that need no more units on their accelerators, shape (C,).

    If the current allocations fit, these replicas also fit together.
    """
    table = problem.table
    enough = problem.on_current & (table.num_replicas <= problem.current_count)
    staying = np.zeros(len(table), np.int64)
    if problem.options.heterogeneous:
        pools, _ = current_allocations(problem, np.flatnonzero(problem.current_pools[table.server] > 1))
        staying[pools] = problem.current_count[pools]
        enough &= ~problem.has_some_of(pools)[table.server]
    rows = best_of_each(problem, np.flatnonzero(problem.full & problem.table.alone & enough))
    staying[rows] = table.num_replicas[rows]
    return staying


def in_columns(columns: IntArray, problem: Problem, replicas: IntArray) -> IntArray:
    """Express a solution with one pool per server in the columns of a model.

    A candidate that is missing from the model is replaced by the better one of its server with the same
    limits, as sized.

    Args:
        columns: candidates that are columns of the model.
        problem: the planning problem.
        replicas: replicas of each candidate, shape (C,).
    """
    table, answer, groups = problem.table, replicas.copy(), problem.limits.groups()
    use, columns = problem.limits.use, np.sort(columns)
    outside = np.ones(len(table), np.bool_)
    outside[columns] = False
    if problem.options.heterogeneous:  # use the model's candidate of the same server and accelerator
        twins = np.flatnonzero(outside & problem.repeats & problem.divisible & (answer > 0))
        twins = twins[~outside[twins - 1]]
        answer[twins - 1] = answer[twins]
        answer[twins] = 0
    server = table.server[columns]
    for c in np.flatnonzero(outside & (answer > 0)).tolist():
        of_server = columns[slice(*np.searchsorted(server, (table.server[c], table.server[c] + 1)))]
        can = (
            (groups[of_server] == groups[c])
            & problem.full[of_server]
            & (table.reserved[of_server] >= table.reserved[c])
        )
        can &= table.members[of_server] & table.members[c] == table.members[c]
        can &= table.alone[of_server] == table.alone[c]  # other candidates need more than their own replicas
        can &= (use[of_server] * table.num_replicas[of_server][:, None] <= answer[c] * use[c]).all(axis=1)
        answer[c] = 0
        if can.any():
            best = of_server[can][np.argmin(problem.ranking_value[of_server[can]])]
            answer[best] = table.num_replicas[best]
    return answer
