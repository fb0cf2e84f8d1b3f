"""The levels of a given answer: whom it serves, its value, its changes, and the order of two answers.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import COVER_TOLERANCE
from optimizer.solvers.objectives import LevelObjective, value_slack
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import SolvedLevel

RESERVE_TOLERANCE = 2e-9
"""Relative shortfall of a rate with headroom that counts as rounding."""


def served(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers with an allocation, shape (S,)."""
    has = problem.has_some_of(replicas > 0)
    for topology in problem.topologies:
        has = topology.served(problem.table, replicas, has)
    return has


def served_in_full(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that a solution serves in full, by plain arithmetic; shape (S,).

    Of a shared queue, those members count that its candidate is for.
    """
    load = problem.load_rps
    if problem.leaves_members:
        taken = problem.table.take(np.flatnonzero((replicas > 0) & problem.is_queue[problem.table.server]))
        load = load.copy()
        load[taken.server] = taken.load_rps
    rate, pools = problem.by_server(replicas * problem.table.max_rate_rps), problem.by_server(replicas)
    full: BoolArray = (
        (rate >= load * (1 - 2 * COVER_TOLERANCE))
        & (pools >= problem.min_replicas)
        & ((pools > 0) | ~problem.to_serve)
    )
    for topology in problem.topologies:
        full = topology.in_full(problem.table, replicas, full)
    return full


def unchanged(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers whose allocation, or lack of one, does not change; shape (S,)."""
    taken = replicas > 0
    stays = problem.on_current & (replicas == problem.current_replicas[problem.table.server]) & taken
    pools = problem.by_server(taken)
    kept = problem.has_some_of(stays)
    same: BoolArray = (kept & (pools == 1)) | ((pools == 0) & ~problem.none_changed)
    return same


def without_reserve(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers served without their required reserve, shape (S,) (eq. 143).

    Pools that divide have it if they carry the load with headroom, others as they were sized.
    """
    table, wanted = problem.table, problem.reserve.wanted
    if not wanted.any():
        return np.zeros(len(wanted), np.bool_)
    carried = problem.by_server(np.where(problem.divisible, replicas * table.max_rate_rps, 0.0))
    has = carried >= problem.grown_load_rps * (1 - RESERVE_TOLERANCE)
    has |= problem.has_some_of((replicas > 0) & table.reserved & ~problem.divisible)
    return wanted & ~has & served(problem, replicas)


def value_of(problem: Problem, replicas: IntArray) -> float:
    """Return the transition value of an answer [cents/h]."""
    value = float(values_of(problem, replicas).sum())
    return value + problem.tiers.difference(problem.limits.used(replicas))


def values_of(problem: Problem, replicas: IntArray) -> FloatArray:
    """Return the transition value of each server at list prices [cents/h], shape (S,)."""
    pools, here = replicas * problem.table.cost_per_replica, problem.on_current
    cost, elsewhere = problem.by_server(pools), problem.by_server(np.where(here, 0.0, pools))
    stays, same = problem.has_some_of(here & (replicas > 0)), unchanged(problem, replicas)
    return problem.transition_value(np.arange(len(cost)), cost, elsewhere, stays, same)


def changes_of(problem: Problem, replicas: IntArray) -> int:
    """Return the number of servers that a solution changes."""
    return int((~unchanged(problem, replicas) * problem.counted).sum())


class Reached:
    """What a solution has of each level, computed when it is asked for."""

    def __init__(self, problem: Problem, replicas: IntArray) -> None:
        self.problem, self.replicas = problem, replicas
        self.left, self.taken = ~served(problem, replicas), replicas > 0
        self._known: dict[str, float] = {}

    def of(self, objective: LevelObjective) -> float:
        """Return the objective's value; that of a level of service is in whole steps."""
        if objective.name not in self._known:
            self._known[objective.name] = self._of(objective)
        return self._known[objective.name]

    def _of(self, objective: LevelObjective) -> float:
        problem, replicas = self.problem, self.replicas
        total = objective.steps(self.left, self.taken)
        if objective.on_unreserved is not None:
            total += float(objective.on_unreserved[without_reserve(problem, replicas)].sum())
        if objective.on_off_preferred:
            total += objective.on_off_preferred * float((replicas * problem.off_preferred_rpm).sum())
        total += objective.on_value * value_of(problem, replicas) if objective.on_value else 0.0
        return total + (objective.on_changes * changes_of(problem, replicas) if objective.on_changes else 0.0)

    def reported(self, objective: LevelObjective, steps: float) -> float:
        """Return a value or bound of a level as plans report it."""
        return objective.reported(steps, self.left, self.taken)

    def differences(self, than: "Reached") -> Iterator[float]:
        """Yield the difference to another solution at each level; 0 if they are equal.

        Service and changes are compared as integers, the value with its slack (eq. 35, 50).
        """
        for objective in self.problem.objectives:
            least = than.of(objective)
            more = self.of(objective) - least
            yield more if objective.step or abs(more) > value_slack(least) else 0.0

    def is_better(self, than: "Reached") -> bool:
        """Return whether the solution is better than another in the order of all levels."""
        return next((more < 0 for more in self.differences(than) if more), False)


def levels_of(problem: Problem, replicas: IntArray, *, proved: bool) -> tuple[SolvedLevel, ...]:
    """Return every level at the value that an answer has there, with that as its bound if it is proved."""
    return bounded_levels(problem, replicas, {}, infinite=np.inf if proved else None)


def bounded_levels(
    problem: Problem, replicas: IntArray, bounds: Mapping[str, float], infinite: float | None = None
) -> tuple[SolvedLevel, ...]:
    """Return every level at the value that an answer has there, with its bound.

    A goal whose value counts as the same as its bound is proved: solvers see no smaller difference.

    Args:
        problem: what was chosen from.
        replicas: the answer, shape (C,).
        bounds: by the name of the level, those of service in steps; infinity: the value is proved.
        infinite: bound of levels without one; None: none.
    """
    reached, levels = Reached(problem, replicas), []
    for objective in problem.objectives:
        steps = reached.of(objective)
        value, bound = reached.reported(objective, steps), bounds.get(objective.name, infinite)
        if bound is not None:
            counts_as_same = objective.is_goal and value - bound <= value_slack(value)
            bound = value if counts_as_same else min(reached.reported(objective, min(bound, steps)), value)
        levels.append(SolvedLevel(objective.name, value, bound))
    return tuple(levels)


def with_outside(problem: Problem, without: BoolArray) -> list[LevelObjective]:
    """Return the levels with the contribution of servers without a candidate, shape (S,), to any answer."""
    value = float(problem.none_value[without].sum()) + problem.tiers.committed
    changes = float(problem.none_changed[without].sum())
    return [
        replace(each, outside=each.steps(without) + each.on_value * value + each.on_changes * changes)
        for each in problem.objectives
    ]


def is_better(problem: Problem, replicas: IntArray, than: IntArray) -> bool:
    """Return whether an answer is better than another in the order of all levels."""
    return Reached(problem, replicas).is_better(Reached(problem, than))
