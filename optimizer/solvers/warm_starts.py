"""Initial solutions: the current allocations as far as feasible, and the greedy plan.

They need no solver, and a solver that is stopped early returns nothing worse.
"""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.greedy import greedy_replicas
from optimizer.solvers.levels import is_better, served
from optimizer.solvers.limit_rows import Remaining
from optimizer.solvers.model_columns import keepable
from optimizer.solvers.problem import Problem
from optimizer.solvers.related import completed


def best_initial_solution(problem: Problem) -> IntArray:
    """Return the better, over all levels, of the current allocations completed greedily and the greedy plan.

    Returns:
        Replicas of each candidate, shape (C,).
    """
    problem = problem.without_sharing
    greedy, staying = problem.without_idle(greedy_replicas(problem)), _staying(problem)
    return staying if is_better(problem, staying, greedy) else greedy


def _staying(problem: Problem) -> IntArray:
    """Keep servers on their accelerators, first those that need no more units there; then serve the rest.

    If the current allocations fit, servers that need no more units also fit together.
    """
    problem = problem.at_list_price
    table, now = problem.table, problem.current_replicas[problem.table.server]
    here = problem.full | keepable(problem) if problem.options.heterogeneous else problem.full
    replicas = np.where(problem.full, table.num_replicas, now)
    rows = np.flatnonzero(problem.on_current & here & ~problem.repeats)
    order = rows[np.lexsort((problem.priority[table.server[rows]], (replicas > now)[rows]))]
    staying, left = np.zeros(len(table), np.int64), Remaining(problem.limits.take(order))
    for place, (row, count) in enumerate(zip(order.tolist(), replicas[order].tolist(), strict=True)):
        if left.fits(place, count):
            staying[row] = count
            left.take(place, count)
    return completed(problem, staying, served(problem, staying))


def in_columns(columns: IntArray, problem: Problem, replicas: IntArray) -> IntArray:
    """Return a single-pool solution expressed in the columns of a model, which are rows of the table.

    A candidate missing from the model is replaced by the better one of its server with the same limits, as
    sized.
    """
    table, answer, groups = problem.table, replicas.copy(), problem.limits.groups()
    use = problem.limits.use
    columns = np.sort(columns)
    _to_twins(problem, columns, answer)
    outside = answer > 0
    outside[columns] = False
    rows = np.flatnonzero(outside)
    first, end = (
        np.searchsorted(table.server[columns], table.server[rows], side) for side in ("left", "right")
    )
    for c, begin, after in zip(rows, first, end, strict=True):
        mine = columns[begin:after]
        mine = mine[(groups[mine] == groups[c]) & problem.full[mine]]
        mine = mine[table.reserved[mine] >= table.reserved[c]]
        mine = mine[table.members[mine] & table.members[c] == table.members[c]]
        more = use[mine] * table.num_replicas[mine][:, None] > answer[c] * use[c]
        mine = mine[~more.any(axis=1)]
        answer[c] = 0
        if len(mine):
            best = mine[np.argmin(problem.value[mine])]
            answer[best] = table.num_replicas[best]
    return answer


def _to_twins(problem: Problem, columns: IntArray, replicas: IntArray) -> None:
    """Move pools of any size to the model's row for the same pair, in place."""
    if not problem.options.heterogeneous or not problem.repeats.any():
        return
    kept = np.isin(np.arange(len(replicas)), columns)
    for c in np.flatnonzero(problem.repeats & problem.divisible & (replicas > 0) & ~kept).tolist():
        if kept[c - 1]:
            replicas[c - 1], replicas[c] = replicas[c], 0
