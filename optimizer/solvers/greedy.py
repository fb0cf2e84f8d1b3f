"""The reference's priority-and-regret heuristic, made deterministic: the baseline.

Servers are taken in the order of their priority, then of what missing their best candidate would cost them
(regret), then of their value. Each takes its best candidate that still fits; one that finds none waits with
its next. Ties go to more capacity to spare, then to the first in order. Source: the greedy solver of
the reference, llm-inferno's optimizer (docs/glossary.md), without its defects.
"""

import heapq
from math import inf

import numpy as np

from optimizer.arrays import IntArray, runs
from optimizer.solvers.levels import levels_of
from optimizer.solvers.problem import Problem, Solution, Status


def solve_greedy(problem: Problem) -> Solution:
    """Choose one candidate per server, greedily, within the capacities."""
    replicas = greedy_replicas(problem)
    return Solution(replicas, Status.heuristic, "greedy", levels_of(problem, replicas, proved=False))


def greedy_replicas(problem: Problem) -> IntArray:
    """Return the replicas of each candidate that are chosen greedily, shape (C,)."""
    table = problem.table
    rows = np.flatnonzero(problem.full)
    keys = (-problem.room[rows], problem.changed[rows], problem.value[rows], table.server[rows])
    order = rows[np.lexsort(keys)]
    choices = {int(table.server[order[a]]): order[a:b].tolist() for a, b in runs(table.server[order])}
    # In plain numbers, as each turn looks at one or two of them.
    value, units, kind = problem.value.tolist(), table.units.tolist(), table.kind.tolist()
    priority = problem.priority.tolist()
    left = None if problem.capacity is None else problem.capacity.tolist()
    chosen: list[int] = []

    def entry(server: int) -> tuple[int, float, float, int]:
        first, *rest = choices[server]
        regret = value[rest[0]] - value[first] if rest else inf
        return priority[server], -regret, -value[first], server

    waiting = [entry(server) for server in choices]
    heapq.heapify(waiting)
    while waiting:
        server = heapq.heappop(waiting)[-1]
        candidate = choices[server].pop(0)
        if left is None or left[kind[candidate]] >= units[candidate]:
            chosen.append(candidate)
            if left is not None:
                left[kind[candidate]] -= units[candidate]
        elif choices[server]:
            heapq.heappush(waiting, entry(server))
    replicas = np.zeros(len(table), np.int64)
    replicas[chosen] = table.num_replicas[chosen]
    return replicas
