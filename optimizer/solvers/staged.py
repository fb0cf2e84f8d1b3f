"""Complete solutions with saturation policies, applied per priority or at the end.

With ``delayedBestEffort``, all levels are solved before the remaining capacity is allocated. Without it, the
priorities down to the first that cannot be served in full are solved at minimum value, the remaining capacity
is allocated to the servers of that priority, and lower priorities are solved with the rest.
"""

from collections.abc import Callable

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import Reached, served_in_full
from optimizer.solvers.merging import not_worse_than
from optimizer.solvers.problem import Problem
from optimizer.solvers.saturation import share_leftover, waiting_servers
from optimizer.solvers.solution import Solution, SolvedLevel, Status

SHARING_S = 0.5
"""Time to allocate the remaining capacity if the solver used all of its time [s]."""

Solve = Callable[[Problem, Deadline], Solution]
"""Function that solves a problem by a deadline."""


def solve_in_stages(problem: Problem, solve: Solve, deadline: Deadline | None = None) -> Solution:
    """Solve a problem with limits, and allocate the remaining capacity by the saturation policy.

    Args:
        problem: the planning problem.
        solve: function that solves the problem of a stage.
        deadline: time at which the solution is due; default: now plus the time limit of the options.
    """
    options = problem.options
    deadline = deadline or Deadline.after(options.time_limit_s)
    if options.saturation_policy == "None" or not len(problem.limits) or not len(problem.priority):
        return solve(problem, deadline)
    due = deadline.later(SHARING_S)
    if options.delayed_best_effort or problem.leaves_members:  # members have several priorities
        full = solve(problem, deadline)
        sharing = share_leftover(problem, full.replicas, due)
        return _joined(problem, sharing.replicas, [full], finished=sharing.finished)

    replicas, finished = np.zeros(len(problem.table), np.int64), True
    stages: list[Solution] = []
    open_servers = np.ones(len(problem.priority), np.bool_)
    while open_servers.any():
        stage = _remaining(problem, open_servers, replicas)
        last = len(np.unique(problem.priority[open_servers])) == 1
        solution = solve(stage, deadline.share(1.0 if last else 0.5))
        waiting = waiting_servers(stage, solution.replicas)
        settled = problem.priority[waiting].min() if waiting.any() else problem.priority.max()
        now = open_servers & (problem.priority <= settled)
        if (now != open_servers).any():
            stage, before = _remaining(problem, now, replicas), solution.replicas[now[stage.table.server]]
            # An interrupted solver can serve less for these servers alone than it did for all.
            solution = not_worse_than(stage, before, solve(stage, deadline.share(0.5)))
        sharing = share_leftover(stage, solution.replicas, due)
        replicas[np.isin(problem.table.server, np.flatnonzero(now))] = sharing.replicas
        finished &= sharing.finished
        stages.append(solution)
        open_servers &= ~now
    return _joined(problem, replicas, stages, finished=finished)


def _remaining(problem: Problem, servers: BoolArray, replicas: IntArray) -> Problem:
    """Return the problem of some servers with the units that a solution of the others leaves."""
    if servers.all():
        return problem
    return problem.after(replicas).of_servers(servers)


def _joined(problem: Problem, replicas: IntArray, stages: list[Solution], *, finished: bool) -> Solution:
    """Return the combined solution: service levels from the stages, value and changes of the plan.

    The gap of the value is the sum of the stages' gaps. Partial service has no bound, because it results from
    a procedure instead of an objective.
    """
    levels = []
    full = np.where(served_in_full(problem, replicas)[problem.table.server], replicas, 0)
    for objective in problem.objectives:
        parts = [stage.level(objective.name) for stage in stages]
        by_stages = sum(part.value for part in parts)
        of = full if objective.is_goal else replicas
        reached = by_stages if objective.is_service else Reached(problem, of).of(objective)
        open_part = [None if part.bound is None else part.value - part.bound for part in parts]
        bound = None if None in open_part else reached - sum(part for part in open_part if part)
        levels.append(SolvedLevel(objective.name, reached, bound))
    order = [Status.heuristic, Status.feasible, Status.optimal]
    found = [stage.status for stage in stages] + [Status.optimal if finished else Status.feasible]
    status = min(found, key=order.index)
    return Solution(replicas, status, stages[0].solver, tuple(levels))
