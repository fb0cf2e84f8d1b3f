"""The levels of a given answer: whom it serves, its value, its changes, and the order of two answers.

Also bounds by plain arithmetic, where no solver proves a better one.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import COVER_TOLERANCE
from optimizer.solvers.objectives import VALUE, LevelObjective, value_slack
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import SolvedLevel

BELOW = 1 - 1e-8
"""Factor that keeps a bound of the value below what tolerances let an answer reach."""
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
    table, load = problem.table, problem.load_rps.copy()
    taken = np.flatnonzero((replicas > 0) & problem.is_queue[table.server])
    load[table.server[taken]] = table.load_rps[taken]
    rate, pools = problem.by_server(replicas * table.max_rate_rps), problem.by_server(replicas)
    full: BoolArray = (
        (rate >= load * (1 - 2 * COVER_TOLERANCE))
        & (pools >= problem.min_replicas)
        & ((pools > 0) | ~problem.to_serve)
    )
    for topology in problem.topologies:
        full = topology.in_full(table, replicas, full)
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
        steps, bound = reached.of(objective), bounds.get(objective.name, infinite)
        value = objective.reported(steps, reached.left, reached.taken)
        if bound is not None:
            counts_as_same = objective.is_goal and value - bound <= value_slack(value)
            least = objective.reported(min(bound, steps), reached.left, reached.taken)
            bound = value if counts_as_same else min(least, value)
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


def trivial_bounds(problem: Problem) -> dict[str, float]:
    """Return the bounds of all levels that hold for any answer, those of service in steps."""
    every = np.arange(len(problem.table))
    bounds = dict.fromkeys((each.name for each in problem.objectives), 0.0)
    return bounds | {VALUE: least_value(problem, every, all_served=False)}


def least_value(problem: Problem, rows: IntArray, *, all_served: bool) -> float:
    """Return the least value of any answer in some candidates [cents/h].

    Args:
        problem: what is chosen from.
        rows: the candidates, of which every server that is to be served has one.
        all_served: whether every server that has a candidate is served.
    """
    served = np.full(len(problem.priority), np.inf)
    if problem.is_mixed:
        served = _least_mixed(problem, rows)
    else:
        np.minimum.at(served, problem.table.server[rows], problem.model_value[rows])
    least = served if all_served else np.minimum(served, problem.none_value)
    return (
        float(np.where(problem.has_some_of(rows), least, problem.none_value).sum()) + problem.tiers.committed
    )


def _least_mixed(problem: Problem, rows: IntArray) -> FloatArray:
    """Return the least value of a served server if replicas could be split (eq. 39, 43); shape (S,).

    A split server runs all its load on the candidate that carries it at the least cost. It may keep what it
    runs on now beside that, without moving.
    """
    rate, load = problem.table.max_rate_rps[rows], problem.table.load_rps[rows]
    split = np.divide(load, rate, out=np.zeros(len(rows)), where=load > 0)
    count = np.where(load > 0, np.maximum(split, 1.0), 0.0)
    count = np.where(problem.divisible[rows], count, problem.table.num_replicas[rows])
    least = np.full(len(problem.priority), np.inf)
    each = problem.replica_value[rows] - problem.discount[rows]
    np.minimum.at(least, problem.table.server[rows], each * count * BELOW)
    stays = problem.has_some_of(rows[problem.on_current[rows]])
    value = np.where(problem.joint_load, 0.0, least)
    # What replicas elsewhere cost more is part of the value here.
    none = np.zeros_like(value)
    return problem.transition_value(np.arange(len(stays)), value, none, stays, none > 0)
