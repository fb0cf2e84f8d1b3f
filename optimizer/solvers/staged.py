"""From one solve to a whole answer: saturation policies, level by level or at the end.

With ``delayedBestEffort`` all levels are solved first and the leftover is given out then. Without it the
first priority that cannot be served in full is settled, with those before it, at least value; the leftover
is given out among its servers; and the lower priorities are solved with what then remains.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.levels import CHANGES, VALUE, changes_of, value_of
from optimizer.solvers.problem import Level, Problem, Solution, Status, units_used
from optimizer.solvers.saturation import share_leftover, waiting_servers

Solve = Callable[[Problem, float], Solution]
"""Solves a problem within a time limit [s]."""


def solve_in_stages(problem: Problem, solve: Solve) -> Solution:
    """Solve a problem with capacities, and give out what is left by the saturation policy."""
    options = problem.options
    if options.saturation_policy == "None" or problem.capacity is None or not len(problem.priority):
        return solve(problem, options.time_limit_s)
    if options.delayed_best_effort:
        whole = solve(problem, options.time_limit_s)
        return _joined(problem, share_leftover(problem, whole.replicas), [whole])

    deadline = time.perf_counter() + options.time_limit_s
    replicas = np.zeros(len(problem.table), np.int64)
    stages: list[Solution] = []
    open_servers = np.ones(len(problem.priority), np.bool_)
    while open_servers.any():
        stage = _remaining(problem, open_servers, replicas)
        last = len(np.unique(problem.priority[open_servers])) == 1
        solution = solve(stage, max(deadline - time.perf_counter(), 0.0) * (1.0 if last else 0.5))
        waiting = waiting_servers(stage, solution.replicas)
        settled = problem.priority[waiting].min() if waiting.any() else problem.priority.max()
        now = open_servers & (problem.priority <= settled)
        if (now != open_servers).any():
            stage = _remaining(problem, now, replicas)
            solution = solve(stage, max(deadline - time.perf_counter(), 0.0) * 0.5)
        replicas[np.isin(problem.table.server, np.flatnonzero(now))] = share_leftover(
            stage, solution.replicas
        )
        stages.append(solution)
        open_servers &= ~now
    return _joined(problem, replicas, stages)


def _remaining(problem: Problem, servers: BoolArray, replicas: IntArray) -> Problem:
    """Return the problem of some servers with the units that an answer leaves."""
    capacity = problem.capacity if problem.capacity is not None else np.zeros(0)
    left = capacity - units_used(problem, replicas, len(capacity))
    return replace(problem.of_servers(servers), capacity=left)


def _joined(problem: Problem, replicas: IntArray, stages: list[Solution]) -> Solution:
    """Return one answer: levels of service as the stages settled them, value and changes of the whole.

    What the stages leave open of the value is what is open of the whole; partial service has no bound of
    its own, as it follows from a procedure and not from an objective.
    """
    levels = []
    for name in [level.name for level in stages[0].levels]:
        parts = [stage.level(name) for stage in stages]
        value = {VALUE: value_of, CHANGES: changes_of}.get(name)
        reached = sum(part.value for part in parts) if value is None else float(value(problem, replicas))
        open_part = [None if part.bound is None else part.value - part.bound for part in parts]
        bound = None if None in open_part else reached - sum(part for part in open_part if part)
        levels.append(Level(name, reached, bound))
    order = [Status.heuristic, Status.feasible, Status.optimal]
    status = min((stage.status for stage in stages), key=order.index)
    return Solution(replicas, status, stages[0].solver, tuple(levels))
