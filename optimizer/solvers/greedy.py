"""The reference's priority-and-regret heuristic, made deterministic: the baseline.

Servers are taken in the order of their priority, then of what missing their best candidate would cost them
(regret), then of their value. Each takes its best candidate that still fits; one that finds none waits with
its next. Ties go to more capacity to spare, then to the first in order. Source: the greedy solver of
the reference, llm-inferno's optimizer (docs/glossary.md), without its defects.
"""

import heapq

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
    table, value, changed = problem.table, problem.value, problem.changed
    units = problem.table.units
    replicas = np.zeros(len(table), np.int64)
    rows = np.flatnonzero(problem.full)
    order = rows[np.lexsort((-problem.room[rows], changed[rows], value[rows], table.server[rows]))]
    choices = {int(table.server[order[a]]): order[a:b].tolist() for a, b in runs(table.server[order])}
    left = None if problem.capacity is None else problem.capacity.copy()

    def entry(server: int) -> tuple[int, float, float, int]:
        first, *rest = choices[server]
        regret = value[rest[0]] - value[first] if rest else np.inf
        return int(problem.priority[server]), -float(regret), -float(value[first]), server

    waiting = [entry(server) for server in choices]
    heapq.heapify(waiting)
    while waiting:
        server = heapq.heappop(waiting)[-1]
        candidate = choices[server].pop(0)
        if left is None or left[table.kind[candidate]] >= units[candidate]:
            replicas[candidate] = table.num_replicas[candidate]
            if left is not None:
                left[table.kind[candidate]] -= units[candidate]
        elif choices[server]:
            heapq.heappush(waiting, entry(server))
    return replicas
