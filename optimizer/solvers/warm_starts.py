"""Answers to start from: what runs now, as far as it can stay, and the greedy plan.

A solver that is stopped early answers no worse than these. They are plain arithmetic: no solver is asked.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.formulation import keepable
from optimizer.solvers.greedy import greedy_replicas
from optimizer.solvers.levels import is_better
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to serve servers in full, each with one pool; all shapes (W,)."""

    row: IntArray
    """Row of the candidate table."""
    replicas: IntArray
    server: IntArray
    value: FloatArray
    """What the server then adds to the value [cents/h]."""
    changed: BoolArray
    """Whether that is not what the server runs on now."""

    def best(self) -> "Ways":
        """Return one way for each server: that of least value, then without a change, then the first."""
        order = np.lexsort((self.changed, self.value, self.server))
        _, first = np.unique(self.server[order], return_index=True)
        return self.take(order[first])

    def take(self, ways: IntArray | BoolArray) -> "Ways":
        """Return some of the ways."""
        return Ways(
            self.row[ways], self.replicas[ways], self.server[ways], self.value[ways], self.changed[ways]
        )


def ways_of_one_pool(problem: Problem) -> Ways:
    """Return every candidate as sized and, for mixed plans, what runs now where that serves in full."""
    table, mixed = problem.table, problem.options.heterogeneous
    sized = np.flatnonzero(problem.full)
    kept = np.flatnonzero(keepable(problem)) if mixed else sized[:0]
    row = np.concatenate([sized, kept])
    server, on_current = table.server[row], problem.on_current[row]
    replicas = np.concatenate([table.num_replicas[sized], problem.current_replicas[table.server[kept]]])
    changed = ~(on_current & (replicas == problem.current_replicas[server]))
    cost = replicas * table.cost_per_replica[row]
    elsewhere = np.where(on_current, 0.0, cost)
    value = problem.transition_value(server, cost, elsewhere, on_current, ~changed)
    return Ways(row, replicas, server, value, changed)


def best_initial_solution(problem: Problem) -> IntArray:
    """Return the better, over all levels, of what runs now with the rest served greedily, and of greedy.

    Returns:
        Replicas of each candidate, shape (C,).
    """
    if not len(problem.limits):
        return _taken(problem, ways_of_one_pool(problem).best())
    greedy, staying = greedy_replicas(problem), _staying(problem)
    return staying if is_better(problem, staying, greedy) else greedy


def _taken(problem: Problem, ways: Ways) -> IntArray:
    replicas = np.zeros(len(problem.table), np.int64)
    replicas[ways.row] = ways.replicas
    return replicas


def _staying(problem: Problem) -> IntArray:
    """Leave servers on their accelerators, first those that need no more units there, and serve the rest.

    Those that need no more units all fit beside each other wherever what runs fits.
    """
    problem = problem.at_list_price
    table = problem.table
    ways = ways_of_one_pool(problem)
    ways = ways.take(problem.on_current[ways.row]).best()
    entries, left = problem.limits.take(ways.row).entries(), problem.limits.amount.tolist()
    grows = ways.replicas > problem.current_replicas[ways.server]
    stays = np.zeros(len(ways.row), np.bool_)
    for i in np.lexsort((problem.priority[ways.server], grows)).tolist():
        use = [(row, one * int(ways.replicas[i])) for row, one in entries[i]]
        if all(left[row] >= taken for row, taken in use):
            stays[i] = True
            for row, taken in use:
                left[row] -= taken
    replicas = _taken(problem, ways.take(stays))
    others = ~np.isin(np.arange(len(problem.priority)), ways.server[stays])
    rows = others[table.server]
    replicas[rows] = greedy_replicas(problem.after(replicas).of_servers(others))
    return replicas


def in_columns(columns: IntArray, problem: Problem, replicas: IntArray) -> IntArray:
    """Return an answer of one pool per server in the columns that a model has, rows of the candidate table.

    A candidate that the model leaves out for a better one of its server that uses the same limits is taken
    over by that, as it was sized.
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
        more = use[mine] * table.num_replicas[mine][:, None] > answer[c] * use[c]
        mine = mine[~more.any(axis=1)]
        answer[c] = 0
        if len(mine):
            best = mine[np.argmin(problem.value[mine])]
            answer[best] = table.num_replicas[best]
    return answer


def _to_twins(problem: Problem, columns: IntArray, replicas: IntArray) -> None:
    """Move pools of any size to the row of their pair that a model has, in place."""
    if not problem.options.heterogeneous or not problem.repeats.any():
        return
    kept = np.isin(np.arange(len(replicas)), columns)
    for c in np.flatnonzero(problem.repeats & problem.divisible & (replicas > 0) & ~kept).tolist():
        if kept[c - 1]:
            replicas[c - 1], replicas[c] = replicas[c], 0
