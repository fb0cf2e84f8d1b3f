"""Baseline heuristic by priority and regret, as in llm-inferno (docs/glossary.md) but deterministic.

Servers are processed by priority, then by the cost of missing their best candidate (regret), then by value.
Each gets its best candidate if that still fits; otherwise it is queued again with its next candidate. Ties
are broken by spare capacity, then by order. Known defects of llm-inferno's greedy solver are corrected.
"""

import heapq
from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from optimizer.arrays import BoolArray, IntArray, runs
from optimizer.solvers.levels import levels_of
from optimizer.solvers.limit_rows import Remaining
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution, Status


def solve_greedy(problem: Problem) -> Solution:
    """Solve a problem greedily: choose one candidate per server within the limits."""
    replicas = greedy_replicas(problem)
    return Solution(replicas, Status.heuristic, "greedy", levels_of(problem, replicas, proved=False))


def greedy_replicas(problem: Problem) -> IntArray:
    """Return the replicas of each candidate in the greedy solution, shape (C,)."""
    problem = problem.at_list_price
    table = problem.table
    choices, left = _choices(problem, ~problem.repeats), Remaining(problem.limits)
    chosen = _placed(problem, choices, left)
    # Servers move for their reserves only if all are served, because the cards that they leave could serve
    # another server.
    chosen = _give_reserves(problem, chosen, left, moving=len(chosen) == len(choices))
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return replicas


def _placed(problem: Problem, choices: Mapping[int, Sequence[int]], left: Remaining) -> list[int]:
    """Choose a candidate for one server after the other, and subtract its use from the remaining capacity.

    Args:
        problem: the planning problem.
        choices: candidates of each server, best first.
        left: remaining capacity; changed.

    Returns:
        The chosen candidates.
    """
    # Python lists, because each step reads only one or two items.
    value, priority = problem.ranking_value.tolist(), problem.priority.tolist()
    each = problem.table.num_replicas.tolist()
    chosen, taken = list[int](), dict.fromkeys(choices, 0)

    def entry(server: int) -> tuple[int, float, float, int]:
        first, *rest = choices[server][taken[server] :]
        regret = value[rest[0]] - value[first] if rest else inf
        return priority[server], -regret, -value[first], server

    waiting = [entry(server) for server in choices]
    heapq.heapify(waiting)
    while waiting:
        server = heapq.heappop(waiting)[-1]
        candidate = choices[server][taken[server]]
        taken[server] += 1
        if left.most(candidate) >= each[candidate]:
            chosen.append(candidate)
            left.take(candidate, each[candidate])
        elif taken[server] < len(choices[server]):
            heapq.heappush(waiting, entry(server))
    return chosen


def rows_by_server(problem: Problem, rows: IntArray) -> dict[int, list[int]]:
    """Group candidates, which must be sorted by server, by their server."""
    server = problem.table.server[rows]
    return {int(server[begin]): rows[begin:end].tolist() for begin, end in runs(server)}


def _choices(problem: Problem, among: BoolArray) -> dict[int, list[int]]:
    """Return the given candidates that serve in full, by server, best first."""
    return rows_by_server(problem, best_first(problem, np.flatnonzero(problem.full & among)))


def best_first(problem: Problem, rows: IntArray, *goals: BoolArray) -> IntArray:
    """Sort candidates by server, and for each server from best to worst in the order of all levels.

    Args:
        problem: the planning problem.
        rows: the candidates, shape (N,).
        goals: further criteria, which rank after the members that candidates serve, shapes (C,).
    """
    keys = (
        *problem.unserved_parts,
        *goals,
        problem.off_preferred_total,
        problem.ranking_value,
        problem.changed,
        -problem.spare_share,
    )
    return rows[np.lexsort((*(key[rows] for key in keys[::-1]), problem.table.server[rows]))]


def best_of_each(problem: Problem, rows: IntArray) -> IntArray:
    """Return the best of the given candidates for each server, preferring those with its reserve."""
    order = best_first(problem, rows, ~problem.table.reserved)
    return order[np.unique(problem.table.server[order], return_index=True)[1]]


def solve_separable(problem: Problem) -> Solution:
    """Solve a single-accelerator problem without limits, in which servers are independent."""
    replicas = np.zeros(len(problem.table), np.int64)
    chosen = best_of_each(problem, np.flatnonzero(problem.full))
    replicas[chosen] = problem.table.num_replicas[chosen]
    return Solution(replicas, Status.optimal, "separable", levels_of(problem, replicas, proved=True))


def _give_reserves(problem: Problem, chosen: list[int], left: Remaining, *, moving: bool) -> list[int]:
    """Replace candidates by ones that include the reserve of their server, as far as they fit.

    Servers get reserves in the order in which they were served, and no server loses replicas for the reserve
    of another. Servers can change accelerators only with `moving`.
    """
    table = problem.table
    if not problem.reserve.wanted.any():
        return chosen
    choices, each = _choices(problem, table.reserved), table.num_replicas.tolist()
    reserved, members, place = (each.tolist() for each in (table.reserved, table.members, table.accelerator))
    give_reserves = []
    for candidate in chosen:
        options = [] if reserved[candidate] else choices.get(int(table.server[candidate]), [])
        options = [option for option in options if members[option] == members[candidate]]
        options = [option for option in options if moving or place[option] == place[candidate]]
        left.take(candidate, -each[candidate])
        fitting = (option for option in options if left.most(option) >= each[option])
        give_reserves.append(next(fitting, candidate))
        left.take(give_reserves[-1], each[give_reserves[-1]])
    return give_reserves
