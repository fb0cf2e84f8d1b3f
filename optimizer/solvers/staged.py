"""Solutions with saturation policies: full service, then partial service, then reserves and value.

A stage plans the priorities down to the first one that cannot be served in full, or all of them with
``delayedBestEffort``, as if no server required a reserve. Then the pools of partial service are fixed.
Servers that are served in full stay served, but later stages can move them to free cards for lower
priorities. A last solve adds reserves and minimises the transition cost.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.candidates.arrays import ALL_MEMBERS
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import Reached, served
from optimizer.solvers.merging import not_worse_than
from optimizer.solvers.problem import Problem
from optimizer.solvers.saturation import share_leftover
from optimizer.solvers.solution import Solution, SolvedLevel, Status

SHARING_S = 0.5
"""Time to allocate the remaining capacity if the solver has used all of its time [s]."""

Solve = Callable[[Problem, Deadline], Solution]
"""Function that solves a problem by a deadline."""


def solve_in_stages(
    problem: Problem, solve: Solve, deadline: Deadline | None = None, *, repeats_first: bool = False
) -> Solution:
    """Solve a problem with limits, and allocate the remaining capacity by the saturation policy.

    Args:
        problem: the planning problem.
        solve: function that solves the problem of a stage.
        deadline: time at which the solution is due; default: now plus the time limit of the options.
        repeats_first: whether to solve the first stage again if servers wait. After a warm start, it can be
            another one of equal solutions, which leaves other capacity for partial service.
    """
    options, bare = problem.options, problem.without_reserves
    deadline = deadline or Deadline.after(options.time_limit_s)
    if options.saturation_policy == "None" or not problem.is_limited:
        return solve(problem, deadline)
    in_one = options.delayed_best_effort or len(np.unique(problem.priority)) == 1
    is_stage = bare is problem and not repeats_first
    first = solve(problem, deadline if in_one and is_stage else deadline.share(0.5))
    if not waiting_servers(problem, first.replicas).any():
        return first
    stages = _Stages(bare, solve, deadline)
    stages.settle_all(first if is_stage else None)
    if bare is not problem:
        stages.give_reserves(problem)
    return stages.solution


class _Stages:
    """Service that the stages have settled: servers served in full, whose pools can change, or in part."""

    def __init__(self, problem: Problem, solve: Solve, deadline: Deadline) -> None:
        self.problem, self.solve, self.deadline = problem, solve, deadline
        self.priority = _first_loaded(problem)
        self.due = deadline.later(SHARING_S)
        self.in_full = np.zeros(len(problem.priority), np.bool_)
        """Mask of the servers settled to be served in full, shape (S,); of queues, possibly only some
        members.
        """
        self.full, self.partial = np.zeros((2, len(problem.table)), np.int64)
        """Replicas of each candidate for servers in full, and for partial service, shapes (C,)."""
        self.service: list[SolvedLevel] = []
        """Service levels of the settled priorities."""
        self.solutions: list[Solution] = []
        self.finished = True

    def settle_all(self, first: Solution | None) -> None:
        """Settle the service of all priorities, stage by stage; `first`, if known, solves the first stage."""
        problem, unsettled = self.problem, np.ones(len(self.problem.priority), np.bool_)
        ranks = np.unique(problem.members.priority)
        while unsettled.any():
            if first is None:
                self._solve(self.in_full | unsettled)
            else:
                self.solutions, self.full, first = [first], first.replicas, None
            settled = self._settled(unsettled)
            now, known = unsettled & (self.priority <= settled), len(self.service)
            self.service += self.solutions[-1].levels[known : 2 * int((ranks <= settled).sum())]
            self.in_full |= now & served(problem, self.full)
            if (now != unsettled).any():
                self._solve(self.in_full)
            self._serve_in_part(now)
            unsettled &= ~now

    def _settled(self, unsettled: BoolArray) -> int:
        """Return the lowest priority that the current stage settles.

        `unsettled` is a mask of the servers that are not yet settled, shape (S,).
        """
        waiting = self.priority[unsettled & waiting_servers(self.problem, self.full)]
        in_one = self.problem.options.delayed_best_effort or self.problem.leaves_members
        return int(self.problem.members.priority.max() if in_one or not len(waiting) else waiting.min())

    def _solve(self, servers: BoolArray, among: BoolArray | None = None, share: float = 0.5) -> None:
        """Solve for some servers within the capacity that partial service leaves, keeping full service.

        Args:
            servers: mask of the servers, shape (S,).
            among: mask of the candidates that can be used, shape (C,); None: all.
            share: fraction of the remaining time.
        """
        rows = servers[self.problem.table.server]
        rows = rows if among is None else rows & among
        rest = self.problem.after(self.partial)
        stage = rest.take(np.flatnonzero(rows)).of_servers(servers)
        before = np.where(self.in_full[self.problem.table.server], self.full, 0)[rows]
        result = not_worse_than(stage, before, self.solve(stage, self.deadline.share(share)))
        self.solutions.append(result)
        self.full = np.zeros(len(rows), np.int64)
        self.full[rows] = result.replicas

    def _serve_in_part(self, now: BoolArray) -> None:
        """Allocate the capacity that full service leaves to the given servers, by the saturation policy."""
        problem = replace(self.problem.after(self.partial), to_serve=self.problem.to_serve & now)
        sharing = share_leftover(problem, self.full, self.due)
        self.finished &= sharing.finished
        rows = sharing.partly[problem.table.server]
        self.partial = self.partial + np.where(rows, sharing.replicas, 0)
        self.full = np.where(rows, 0, self.full)
        self.in_full &= ~sharing.partly

    def give_reserves(self, problem: Problem) -> None:
        """Give servers that are served in full their reserves, by priority, and minimise the transition cost.

        Args:
            problem: the problem with reserves.
        """
        rows, (full, partial) = problem.load_rows, np.zeros((2, len(problem.table)), np.int64)
        full[rows], partial[rows] = self.full, self.partial
        self.problem, among = _with_members_of(problem, full)
        self.full, self.partial = full, partial
        self._solve(self.in_full, among, share=1.0)

    @property
    def solution(self) -> Solution:
        """The solution.

        Its service levels are as settled; other levels, and all gaps, are those of the last solve.

        Partial service has no bound, because it results from a procedure instead of an objective.
        """
        problem, last, replicas = self.problem, self.solutions[-1], self.full + self.partial
        levels = [*self.service]
        for objective in problem.objectives[len(levels) :]:
            of = self.full if objective.is_goal else replicas
            value, level = Reached(problem, of).of(objective), last.level(objective.name)
            bound = None if level.bound is None else value - (level.value - level.bound)
            levels.append(SolvedLevel(objective.name, value, bound))
        order = [Status.heuristic, Status.feasible, Status.optimal]
        status = [each.status for each in self.solutions]
        status += [] if self.finished else [Status.feasible]
        return Solution(replicas, min(status, key=order.index), last.solver, tuple(levels))


def _first_loaded(problem: Problem) -> IntArray:
    """Return the priority of each server, shape (S,); for a queue, that of its first member with load."""
    members, idle = problem.members, np.iinfo(np.int64).max
    loaded, first = members.load_rps > 0, np.full(len(problem.priority), idle)
    np.minimum.at(first, members.server[loaded], members.priority[loaded])
    return np.where(first < idle, first, problem.priority)


def _with_members_of(problem: Problem, replicas: IntArray) -> tuple[Problem, BoolArray]:
    """Restrict the queues of a problem to the members that a solution serves, and to their candidates.

    On another accelerator, replicas could serve another member in part.
    """
    table, members = problem.table, problem.members
    taken = np.flatnonzero((replicas > 0) & problem.is_queue[table.server])
    taken = taken[table.members[taken] != ALL_MEMBERS]
    bits, here = np.full(len(problem.priority), ALL_MEMBERS), np.full(len(problem.priority), -1)
    bits[table.server[taken]], here[table.server[taken]] = table.members[taken], table.accelerator[taken]
    stays = bits[members.server] >> members.place & 1 > 0
    members = replace(members, load_rps=np.where(stays, members.load_rps, 0.0))
    moves = here[table.server] < 0
    among = (table.members == bits[table.server]) & (moves | (here[table.server] == table.accelerator))
    return replace(problem, members=members), among


def waiting_servers(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers with unserved load that a saturation policy can serve, shape (S,)."""
    has_candidate = problem.has_some_of(problem.table.meets_targets_below_max_rate)
    waiting: BoolArray = has_candidate & problem.to_serve & ~served(problem, replicas)
    return waiting
