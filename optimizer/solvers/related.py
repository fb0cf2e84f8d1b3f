"""Solution of a related problem with one difference: a warm start, and in some cases a source of bounds.

What-if questions about a plan start from its solution. If a question only restricts the problem, the bounds
of the plan also apply.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.greedy import greedy_replicas
from optimizer.solvers.levels import served, served_in_full
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import SolvedLevel


@dataclass(frozen=True, slots=True)
class RelatedSolution:
    """Solution of a related problem with the same servers and loads."""

    replicas: IntArray
    """Replicas of each candidate of the current problem, shape (C,); they can be infeasible there."""
    left_out: BoolArray
    """Mask of the servers that the related solution does not serve, shape (S,)."""
    levels: tuple[SolvedLevel, ...]
    """Levels of the related solution, with bounds."""
    restricts: bool = False
    """Whether every solution of the current problem is a solution of the related one, so that its bounds
    apply.
    """
    with_less: Problem | None = None
    """The related problem, if candidates can carry more in the current problem; otherwise None."""

    def bound_of(self, objective: LevelObjective) -> float:
        """Return the bound of a service or value level, for solutions equally good at earlier levels."""
        level = next(each for each in self.levels if each.name == objective.name)
        if objective.is_service:
            return objective.steps(self.left_out) if level.is_proved(0.0) else objective.outside
        return -np.inf if level.bound is None else level.bound

    def carried_before(self, problem: Problem) -> FloatArray:
        """Return the related problem's maximum rate per replica of each candidate [requests/s], shape (C,).

        It is -inf if that problem lacks the candidate, or allows it only with a fixed number of replicas.
        """
        then: dict[tuple[int, int], float] = {}
        if self.with_less is not None:
            less = self.with_less.table
            rate = np.where(less.meets_targets_below_max_rate, less.max_rate_rps, -np.inf)
            then = dict(zip(less.pairs(), rate.tolist(), strict=True))
        return np.array([then.get(pair, -np.inf) for pair in problem.table.pairs()])


def differing(problem: Problem, other: Problem) -> BoolArray:
    """Return a mask of the servers whose candidates differ between two problems, shape (S,)."""
    one, two = (
        np.column_stack([each.full, *(getattr(each.table, field.name) for field in fields(each.table))])
        for each in (problem, other)
    )
    servers = ((problem.table.server == s, other.table.server == s) for s in range(len(problem.priority)))
    return np.array(
        [not np.array_equal(one[here], two[theirs], equal_nan=True) for here, theirs in servers], np.bool_
    )


def repaired(problem: Problem, replicas: IntArray) -> IntArray:
    """Return a feasible solution, in which servers that do not fit are placed again greedily.

    Servers that lose some of their pools, because a question removes an accelerator, are also placed again.
    If a limit is exceeded, servers lose their replicas from the lowest priority up. Among equal priorities,
    servers with the smallest use are first.
    """
    shares = (replicas[~problem.table.alone] > 0).any()
    if shares and not ((problem.left_by(replicas) < 0).any() or _short(problem, replicas).any()):
        return problem.without_idle(replicas)
    own, table = problem.table.alone, problem.table
    problem = problem if own.all() else replace(problem, full=problem.full & own)
    replicas = np.where(own, replicas, 0)
    fitting = np.where(_short(problem, replicas)[table.server], 0, replicas)
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
    """Return a mask of the servers that lack some of their pools, shape (S,).

    Of a route, both servers are marked.
    """
    return (problem.by_server(replicas) > 0) & ~problem.with_partners(served_in_full(problem, replicas))


def completed(problem: Problem, replicas: IntArray, settled: BoolArray) -> IntArray:
    """Return a solution in which the servers not in `settled` are served greedily.

    Args:
        problem: the planning problem.
        replicas: replicas of each candidate of the settled servers, shape (C,).
        settled: mask of the servers that keep these replicas, or remain without any, shape (S,).
    """
    answer = np.where(settled[problem.table.server], replicas, 0)
    if not settled.all():
        others = problem.at_list_price.after(answer).of_servers(~settled)
        answer[~settled[problem.table.server]] = greedy_replicas(others)
    return problem.without_idle(answer)
