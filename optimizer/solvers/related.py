"""The solution of a related problem that differs in one change: a warm start, and possibly bounds.

What-if questions about a plan use its solution as a warm start. If a question only restricts the problem, the
bounds of the plan also hold.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.greedy import greedy_replicas
from optimizer.solvers.levels import served, served_in_full
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import SolvedLevel


@dataclass(frozen=True, slots=True)
class RelatedSolution:
    """Solution of a related problem with the same servers and loads."""

    replicas: IntArray
    """Replicas in the candidates of the current problem, possibly infeasible there; shape (C,)."""
    left_out: BoolArray
    """Mask of the servers that it does not serve, shape (S,)."""
    levels: tuple[SolvedLevel, ...]
    """Levels of the solution, with bounds."""
    restricts: bool = False
    """Whether every solution of the current problem is one of the related problem, so that its bounds
    hold.
    """
    with_less: Problem | None = None
    """The related problem, if candidates of the current one can carry more; otherwise None."""

    def unserved(self, weight: FloatArray) -> float:
        """Return the sum of a weight of servers, shape (S,), that the solution does not serve."""
        return float(weight[self.left_out].sum())

    def is_proved(self, name: str) -> bool:
        """Return whether the level of that name is proved to be optimal."""
        return any(each.name == name and each.is_proved(0.0) for each in self.levels)

    @property
    def least_value(self) -> float:
        """Bound of the value, for solutions that are equally good at the earlier levels."""
        bound = next(level.bound for level in self.levels if level.name == VALUE)
        return -np.inf if bound is None else bound

    def carried_before(self, problem: Problem) -> FloatArray:
        """Return the maximum rate per replica of a candidate in the other problem [requests/s], shape (C,).

        -inf if the other problem lacks the candidate, or allows it only with a fixed number of replicas.
        """
        carried = np.full(len(problem.table), -np.inf)
        if self.with_less is None:
            return carried
        less, now = self.with_less.table, problem.table
        divisible = np.flatnonzero(less.meets_targets_below_max_rate)
        pairs = zip(less.server[divisible].tolist(), less.accelerator[divisible].tolist(), strict=True)
        then = dict(zip(pairs, less.max_rate_rps[divisible].tolist(), strict=True))
        pairs = zip(now.server.tolist(), now.accelerator.tolist(), strict=True)
        return np.array([then.get(pair, -np.inf) for pair in pairs])


def differing(problem: Problem, other: Problem) -> BoolArray:
    """Return a mask of servers whose candidates differ between two problems, shape (S,)."""
    one, two = (_properties(each) for each in (problem, other))
    servers = range(len(problem.priority))
    return np.array([not np.array_equal(one[one[:, 0] == s], two[two[:, 0] == s]) for s in servers], np.bool_)


def _properties(problem: Problem) -> FloatArray:
    """Return the server and the distinguishing properties of each candidate, shape (C, properties)."""
    table = problem.table
    choice = (
        table.server,
        table.accelerator,
        table.num_replicas,
        table.members,
        table.pattern,
        table.reserved,
    )
    return np.column_stack([*choice, table.max_rate_rps, table.meets_targets_below_max_rate, problem.full])


def repaired(problem: Problem, replicas: IntArray) -> IntArray:
    """Return a feasible solution, in which servers that do not fit are placed again greedily.

    Servers that lose some of their pools, because a question removes an accelerator, are also placed again.
    If a limit is exceeded, servers lose their replicas from the lowest priority up, and among equals those
    with the smallest use first.
    """
    if not problem.own.all():
        if not (problem.left_by(replicas) < 0).any() and not _short(problem, replicas).any():
            return problem.without_idle(replicas)
        problem = problem.without_sharing
        replicas = np.where(problem.own, replicas, 0)
    table = problem.table
    short = _short(problem, replicas)
    fitting = np.where(short[table.server], 0, replicas)
    if not len(problem.limits):
        return fitting
    over = -problem.at_list_price.left_by(fitting)
    for limit in np.flatnonzero(over > 0).tolist():
        use = problem.at_list_price.limits.used_of(limit, fitting)
        rows = np.flatnonzero(use)
        for row in rows[np.lexsort((use[rows], -problem.priority[table.server[rows]]))].tolist():
            if over[limit] <= 0:
                break
            over[limit] -= use[row]
            fitting[table.server == table.server[row]] = 0
    return completed(problem, fitting, served(problem, fitting))


def _short(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of servers that lack some of their pools, including both of a route, shape (S,)."""
    has = np.bincount(problem.table.server, replicas, len(problem.priority)) > 0
    return has & ~problem.with_partners(served_in_full(problem, replicas))


def completed(problem: Problem, replicas: IntArray, settled: BoolArray) -> IntArray:
    """Return a solution in which all servers not in `settled` are served greedily.

    Args:
        problem: the planning problem.
        replicas: replicas of each candidate of the settled servers; shape (C,).
        settled: servers that keep these replicas, or remain without any; shape (S,).
    """
    answer = np.where(settled[problem.table.server], replicas, 0)
    if not settled.all():
        others = problem.at_list_price.after(answer).of_servers(~settled)
        answer[~settled[problem.table.server]] = greedy_replicas(others)
    return problem.without_idle(answer)
