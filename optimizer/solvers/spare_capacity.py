"""Tie-breaking between solutions that are equal at every level.

Fewer cards in nodes are preferred, then more spare capacity.

Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.problem import Problem
from optimizer.tolerances import ROUNDING


def with_reserves_found(problem: Problem, replicas: IntArray) -> IntArray:
    """Replace pools by candidates with a reserve if they have the same number of replicas."""
    table, result = problem.table, replicas.copy()
    sized = np.flatnonzero(problem.repeats & table.reserved & ~problem.divisible)
    alone = problem.by_server(replicas > 0) == 1
    large = (replicas[sized - 1] > 0) & (replicas[sized - 1] >= table.num_replicas[sized])
    sized = sized[large & alone[table.server[sized]]]
    result[sized], result[sized - 1] = replicas[sized - 1], 0
    return result


def with_more_spare_capacity(problem: Problem, replicas: IntArray) -> IntArray:
    """Return an equally good solution in which no server can switch to a candidate with more spare capacity.

    In the order of names, each server with one pool switches to the candidate with the most spare capacity;
    of candidates in nodes, to the one with the fewest cards, so that other servers can use the free ones.
    Only candidates within the limits count that have the same value, are equally a change, and cost no more
    at the prices of what all servers use together. No level changes.

    Args:
        problem: the planning problem.
        replicas: replicas of each candidate, shape (C,).
    """
    table = problem.table
    own_cards = problem.table.alone
    chosen = np.flatnonzero((replicas > 0) & problem.full & (replicas == table.num_replicas) & own_cards)
    pools = problem.by_server(replicas > 0)
    chosen = chosen[pools[table.server[chosen]] == 1]
    own = np.full(len(problem.priority), -1)
    own[table.server[chosen]] = chosen
    better = np.flatnonzero(problem.full & own_cards & (own[table.server] >= 0))
    now = own[table.server[better]]
    keys = (problem.value, problem.changed, table.reserved, table.members, problem.off_preferred_total)
    same = [key[better] == key[now] for key in (*keys, *problem.dominance_groups)]
    listed = (problem.discount[better] == 0) & (problem.discount[now] == 0)
    rank = _ranks(problem)
    better = better[np.logical_and.reduce([*same, listed, rank[better] < rank[now]])]
    if not len(better):
        return replicas
    return _exchanged(problem, replicas, own, better[np.lexsort((rank[better], table.server[better]))])


def _ranks(problem: Problem) -> IntArray:
    """Return the rank of each candidate by its usual cost in nodes, then by spare capacity, shape (C,)."""
    usual = problem.ranking_value - problem.value
    keys = np.column_stack([usual, -problem.spare_share])
    _, rank = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(rank.ravel(), np.int64)


def _exchanged(problem: Problem, replicas: IntArray, own: IntArray, better: IntArray) -> IntArray:
    """Exchange candidates for better ones, those with the most spare capacity first, until none fits.

    Args:
        problem: the planning problem.
        replicas: replicas of each candidate, shape (C,).
        own: current candidate of each possible exchange.
        better: candidate that would replace it.
    """
    problem = problem.at_list_price
    table, rank, left = problem.table, _ranks(problem), problem.left_by(replicas)
    rows, use = problem.limits.row, problem.limits.use * table.num_replicas[:, None]
    improved = True
    while improved:
        improved = False
        for c in better.tolist():
            now = own[table.server[c]]
            after = left.copy()
            np.add.at(after, rows[now], use[now])
            np.subtract.at(after, rows[c], use[c])
            if rank[c] >= rank[now] or (after[rows[c]] < 0).any():
                continue
            exchanged = replicas.copy()
            exchanged[now], exchanged[c] = 0, table.num_replicas[c]
            if _costs_more(problem, exchanged, replicas):
                continue
            replicas, left, own[table.server[c]], improved = exchanged, after, c, True
    return replicas


def _costs_more(problem: Problem, replicas: IntArray, before: IntArray) -> bool:
    """Return whether replicas cost more than others at the prices of what all servers use together."""
    if not problem.prices:
        return False
    cost, than = (problem.prices.difference(problem.limits.used(each)) for each in (replicas, before))
    return cost > than + ROUNDING * max(1.0, abs(than))
