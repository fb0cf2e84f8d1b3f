"""Values of a solution at each lexicographic level, comparison of two solutions, and simple bounds.

The levels are service, value and changes. The bounds need no solver, and apply if a solver proves no better
one. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.objectives import VALUE, LevelObjective
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import SolvedLevel
from optimizer.tolerances import COVER, value_slack

BELOW = 1 - 1e-8
"""Factor on bounds that keeps them below the values that tolerances allow."""


def served(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that have an allocation, shape (S,)."""
    has = problem.has_some_of(replicas > 0)
    for topology in problem.topologies:
        has = topology.served(problem.table, replicas, has)
    return has


def served_in_full(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that a solution serves in full, shape (S,).

    A shared queue counts if all members of its candidate are served.
    """
    table, load = problem.table, problem.load_rps.copy()
    taken = np.flatnonzero((replicas > 0) & problem.is_queue[table.server])
    load[table.server[taken]] = table.load_rps[taken]
    rate, pools = problem.by_server(replicas * table.max_rate_rps), problem.by_server(replicas)
    full: BoolArray = (
        (rate >= load * (1 - 2 * COVER)) & (pools >= problem.min_replicas) & ((pools > 0) | ~problem.to_serve)
    )
    for topology in problem.topologies:
        full = topology.in_full(table, replicas, full)
    return full


def unchanged(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers whose allocation, or lack of one, stays the same, shape (S,)."""
    taken = replicas > 0
    stays = problem.on_current & (replicas == problem.current_count) & taken
    pools, kept = problem.by_server(taken), problem.by_server(stays)
    same = (pools == kept) & (pools == problem.current_pools)
    return np.where(pools > 0, same, ~problem.is_running)


def without_reserve(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that are served without their required reserve, shape (S,) (eq. 143).

    Divisible pools have their headroom if they carry the load with it. Other reserves are included in the
    sizing.
    """
    table, reserve = problem.table, problem.reserve
    carried = problem.by_server(np.where(problem.divisible, replicas * table.max_rate_rps, 0.0))
    has = ~reserve.one_pool & (carried >= problem.grown_load_rps * (1 - 2 * COVER))
    has |= problem.has_some_of((replicas > 0) & table.reserved & ~problem.divisible)
    return reserve.wanted & ~has & served(problem, replicas)


def reserves_held(problem: Problem, replicas: IntArray) -> tuple[BoolArray, BoolArray]:
    """Return a mask of the servers that require a reserve, and one of those that have it, both of shape (S,).

    A server that is not served in full has no reserve. A server that rents, or is on shared cards, requires
    none.
    """
    elsewhere = ~problem.table.is_pool
    required = problem.reserve.wanted & ~problem.has_some_of((replicas > 0) & elsewhere)
    return required, required & served_in_full(problem, replicas) & ~without_reserve(problem, replicas)


def transition_value(problem: Problem, replicas: IntArray) -> float:
    """Return the transition cost of a solution [cents/h]."""
    value = float(values_of(problem, replicas).sum()) - problem.repeated_value
    return value + problem.prices.difference(problem.limits.used(replicas))


def values_of(problem: Problem, replicas: IntArray) -> FloatArray:
    """Return the transition cost of each server at list prices [cents/h], shape (S,)."""
    pools, here = replicas * problem.table.cost_per_replica, problem.on_current
    cost, elsewhere = problem.by_server(pools), problem.by_server(np.where(here, 0.0, pools))
    stays, same = problem.has_some_of(here & (replicas > 0)), unchanged(problem, replicas)
    same &= ~problem.has_some_of((replicas > 0) & ~problem.table.alone)
    return problem.transition_value(np.arange(len(cost)), cost, elsewhere, stays, same)


def changes_of(problem: Problem, replicas: IntArray) -> int:
    """Return the number of servers whose allocation a solution changes."""
    return int((~unchanged(problem, replicas) * problem.counted).sum()) - problem.repeated_changes


class Reached:
    """A solution with its value at each level, computed on first use."""

    def __init__(self, problem: Problem, replicas: IntArray) -> None:
        self.problem, self.replicas = problem, replicas
        self.left, self.taken = ~served(problem, replicas), replicas > 0
        self._known: dict[str, float] = {}

    def of(self, objective: LevelObjective) -> float:
        """Return the value of an objective; service levels are in integer steps."""
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
        total += objective.on_value * transition_value(problem, replicas) if objective.on_value else 0.0
        return total + (objective.on_changes * changes_of(problem, replicas) if objective.on_changes else 0.0)

    def differences(self, than: "Reached") -> Iterator[float]:
        """Yield the difference to another solution at each level, positive if this one is worse; 0 if equal.

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
    """Return every level with its value for a solution; if `proved`, the value is also the bound."""
    return bounded_levels(problem, replicas, {}, infinite=np.inf if proved else None)


def bounded_levels(
    problem: Problem, replicas: IntArray, bounds: Mapping[str, float], infinite: float | None = None
) -> tuple[SolvedLevel, ...]:
    """Return every level with its value for a solution, and its bound.

    A goal counts as proved if value and bound differ by less than solvers can distinguish.

    Args:
        problem: the planning problem.
        replicas: replicas of each candidate in the solution, shape (C,).
        bounds: bounds by level name, in steps for service levels; inf if the value is proved.
        infinite: bound of levels that have no finite one; None if they have none.
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
    """Return the levels including the contribution of servers without a candidate to any solution.

    `without` is a mask of these servers, shape (S,).
    """
    value = float(problem.none_value[without].sum()) + problem.prices.constant - problem.repeated_value
    changes = float(problem.is_running[without].sum()) - problem.repeated_changes
    return [
        replace(each, outside=each.steps(without) + each.on_value * value + each.on_changes * changes)
        for each in problem.objectives
    ]


def is_better(problem: Problem, replicas: IntArray, than: IntArray) -> bool:
    """Return whether a solution is better than another in the order of all levels."""
    return Reached(problem, replicas).is_better(Reached(problem, than))


def trivial_bounds(problem: Problem) -> dict[str, float]:
    """Return bounds of all levels that hold for any solution, in steps for service levels."""
    every = np.arange(len(problem.table))
    bounds = dict.fromkeys((each.name for each in problem.objectives), 0.0)
    return bounds | {VALUE: least_value(problem, every, all_served=False)}


def least_value(problem: Problem, rows: IntArray, *, all_served: bool) -> float:
    """Return the minimum transition cost of any solution with the given candidates [cents/h].

    Args:
        problem: the planning problem.
        rows: the candidates; every server to be served must have one.
        all_served: whether every server that has a candidate must be served.
    """
    served = np.full(len(problem.priority), np.inf)
    if problem.is_mixed:
        served = _least_mixed(problem, rows)
    else:
        np.minimum.at(served, problem.table.server[rows], problem.model_value[rows])
    least = np.minimum(served, problem.none_value)
    if all_served:  # topologies can serve the others with other replicas
        least = np.where(problem.served_by_rows, least, served)
    every = np.where(problem.has_some_of(rows), least, problem.none_value)
    return float(every.sum()) - problem.repeated_value + problem.prices.fixed


def _least_mixed(problem: Problem, rows: IntArray) -> FloatArray:
    """Return the minimum transition cost of each server with fractional replicas [cents/h], shape (S,).

    The cheapest candidate serves all load. The server can keep its current replicas in addition, which counts
    as not moving (eq. 39, 43).
    """
    rate, load = problem.table.max_rate_rps[rows], problem.table.load_rps[rows]
    split = np.divide(load, rate, out=np.zeros(len(rows)), where=load > 0)
    count = np.where(load > 0, np.maximum(split, 1.0), 0.0)
    count = np.where(problem.divisible[rows], count, problem.table.num_replicas[rows])
    least = np.full(len(problem.priority), np.inf)
    each = problem.replica_value[rows] - problem.discount[rows]
    np.minimum.at(least, problem.table.server[rows], each * count * BELOW)
    stays = problem.has_some_of(rows[problem.on_current[rows]])
    value = np.where(problem.served_by_rows, 0.0, least)
    # The cost in `value` already includes replicas on other accelerators.
    none = np.zeros_like(value)
    return problem.transition_value(np.arange(len(stays)), value, none, stays, none > 0)
