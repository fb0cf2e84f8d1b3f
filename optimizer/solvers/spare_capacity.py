"""Ties: among answers that are equal at every level, one with more capacity to spare.

Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.problem import Problem


def with_more_spare_capacity(problem: Problem, replicas: IntArray) -> IntArray:
    """Return an answer in which no server can go to a candidate of the same value that leaves more room.

    Each server with one pool takes, in the order of the names, the candidate of most room among those of the
    same value that are a change, or none, as its own is, and that the limits allow. No level changes.

    Args:
        problem: what was chosen from.
        replicas: replicas of each candidate, shape (C,).
    """
    table, room = problem.table, problem.room
    own_cards = problem.own
    chosen = np.flatnonzero((replicas > 0) & problem.full & (replicas == table.num_replicas) & own_cards)
    pools = problem.by_server(replicas > 0)
    chosen = chosen[pools[table.server[chosen]] == 1]
    own = np.full(len(problem.priority), -1)
    own[table.server[chosen]] = chosen
    better = np.flatnonzero(problem.full & own_cards & (own[table.server] >= 0))
    mine = own[table.server[better]]
    keys = (problem.value, problem.changed, table.reserved, table.members, problem.off_preferred_total)
    same = [key[better] == key[mine] for key in (*keys, *problem.apart)]
    listed = (problem.discount[better] == 0) & (problem.discount[mine] == 0)
    better = better[np.logical_and.reduce([*same, listed, room[better] > room[mine]])]
    if not len(better):
        return replicas
    return _exchanged(
        problem, replicas.copy(), own, better[np.lexsort((-room[better], table.server[better]))]
    )


def _exchanged(problem: Problem, replicas: IntArray, own: IntArray, better: IntArray) -> IntArray:
    """Exchange candidates for better ones, of most room first, until none fits any more."""
    problem = problem.at_list_price
    table, room, left = problem.table, problem.room, problem.left_by(replicas)
    rows, use = problem.limits.row, problem.limits.use * table.num_replicas[:, None]
    improved = True
    while improved:
        improved = False
        for c in better.tolist():
            now = own[table.server[c]]
            after = left.copy()
            np.add.at(after, rows[now], use[now])
            np.subtract.at(after, rows[c], use[c])
            if room[c] <= room[now] or (after[rows[c]] < 0).any():
                continue
            left = after
            replicas[now], replicas[c], own[table.server[c]] = 0, table.num_replicas[c], c
            improved = True
    return replicas
