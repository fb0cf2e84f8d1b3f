"""Levels of a given solution: service, value and changes; and the comparison of two solutions.

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
    has = np.zeros(len(problem.priority), np.bool_)
    has[problem.table.server[replicas > 0]] = True
    for topology in problem.topologies:
        has = topology.served(problem.table, replicas, has)
    return has


def served_in_full(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that a solution serves in full; shape (S,).

    For a shared queue, only the members of its candidate count.
    """
    count, load = len(problem.priority), problem.load_rps
    if problem.leaves_members:
        taken = problem.table.take(np.flatnonzero((replicas > 0) & problem.is_queue[problem.table.server]))
        load = load.copy()
        load[taken.server] = taken.load_rps
    rate = np.bincount(problem.table.server, replicas * problem.table.max_rate_rps, minlength=count)
    pools = np.bincount(problem.table.server, replicas, minlength=count)
    full: BoolArray = (
        (rate >= load * (1 - 2 * COVER_TOLERANCE))
        & (pools >= problem.min_replicas)
        & ((pools > 0) | ~problem.to_serve)
    )
    for topology in problem.topologies:
        full = topology.in_full(problem.table, replicas, full)
    return full


def _by_server(problem: Problem, amount: FloatArray | IntArray | BoolArray) -> FloatArray:
    """Return the sum of a column quantity for each server, shape (S,)."""
    sums = np.bincount(problem.table.server, amount, len(problem.priority))
    return sums.astype(np.float64, copy=False)


def unchanged(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers whose allocation, or lack of one, does not change; shape (S,)."""
    taken = replicas > 0
    stays = problem.on_current & (replicas == problem.current_replicas[problem.table.server]) & taken
    pools = _by_server(problem, taken)
    kept = _by_server(problem, stays) > 0
    same: BoolArray = (kept & (pools == 1)) | ((pools == 0) & ~problem.none_changed)
    return same


def without_reserve(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers served without their required reserve, shape (S,) (eq. 143).

    Divisible pools have their reserve if they carry the load with headroom; others have it as sized.
    """
    table, wanted = problem.table, problem.reserve.wanted
    if not wanted.any():
        return np.zeros(len(wanted), np.bool_)
    carried = _by_server(problem, np.where(problem.divisible, replicas * table.max_rate_rps, 0.0))
    has = carried >= problem.grown_load_rps * (1 - RESERVE_TOLERANCE)
    has |= _by_server(problem, (replicas > 0) & table.reserved & ~problem.divisible) > 0
    return wanted & ~has & served(problem, replicas)


def value_of(problem: Problem, replicas: IntArray) -> float:
    """Return the transition value of a solution [cents/h]."""
    pools = replicas * problem.table.cost_per_replica
    parts = pools, np.where(problem.on_current, 0.0, pools)
    cost, elsewhere = (_by_server(problem, part) for part in parts)
    stays = _by_server(problem, np.where(problem.on_current, replicas, 0)) > 0
    every = np.arange(len(problem.priority))
    same = unchanged(problem, replicas)
    value = float(problem.transition_value(every, cost, elsewhere, stays, same).sum())
    return value + (
        problem.tiers.difference(problem.limits.used(replicas)) if len(problem.tiers.row) else 0.0
    )


def changes_of(problem: Problem, replicas: IntArray) -> int:
    """Return the number of servers that a solution changes."""
    return int((~unchanged(problem, replicas) * problem.counted).sum())


class Reached:
    """Values of a solution at each level, computed on first use."""

    def __init__(self, problem: Problem, replicas: IntArray) -> None:
        self.problem, self.replicas = problem, replicas
        self.left, self.taken = ~served(problem, replicas), replicas > 0
        self._known: dict[str, float] = {}

    def of(self, objective: LevelObjective) -> float:
        """Return the objective's value; service levels in integer steps."""
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
    """Return every level with its value for a solution, which is also the bound if it is proved."""
    return bounded_levels(problem, replicas, {}, infinite=np.inf if proved else None)


def bounded_levels(
    problem: Problem, replicas: IntArray, bounds: Mapping[str, float], infinite: float | None = None
) -> tuple[SolvedLevel, ...]:
    """Return every level with its value for a solution, and its bound.

    A goal is proved if value and bound differ by less than solvers can distinguish.

    Args:
        problem: the planning problem.
        replicas: the solution, shape (C,).
        bounds: bounds by level name, those of service levels in steps; inf if the value is proved.
        infinite: bound of levels without a finite one; None if they have none.
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
    """Return the levels plus the contribution of servers without a candidate, shape (S,), to any solution."""
    value = float(problem.none_value[without].sum()) + problem.tiers.committed
    changes = float(problem.none_changed[without].sum())
    return [
        replace(each, outside=each.steps(without) + each.on_value * value + each.on_changes * changes)
        for each in problem.objectives
    ]


def is_better(problem: Problem, replicas: IntArray, than: IntArray) -> bool:
    """Return whether a solution is better than another in the order of all levels."""
    return Reached(problem, replicas).is_better(Reached(problem, than))
