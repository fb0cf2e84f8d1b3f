"""The lexicographic order: what each level measures, and its value for a given answer.

First, for each priority from the highest down, the unserved request rate and the number of unserved
servers; then the transition value; then the number of changed servers. Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.goals import Goal
from optimizer.solvers.model import COVER_TOLERANCE
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import SolvedLevel

VALUE_TOLERANCE = 5e-9
"""Relative slack at which the value counts as the same while the changes are minimised."""
MIN_TOLERANCE_CENTS_PER_H = 5e-6
"""Minimum slack of a value [cents/h]."""
RESERVE_TOLERANCE = 2e-9
"""Relative shortfall of a rate with headroom that counts as rounding."""
VALUE = "value"
CHANGES = "changes"


def served(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers with an allocation, shape (S,)."""
    has = np.zeros(len(problem.priority), np.bool_)
    has[problem.table.server[replicas > 0]] = True
    return has if problem.routing is None else problem.routing.served(problem.table, replicas, has)


def served_in_full(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers that a solution serves in full, by plain arithmetic; shape (S,).

    Of a shared queue, those members count that its candidate is for.
    """
    count, load = len(problem.priority), problem.load_rps
    if problem.leaves_members:
        taken = problem.table.take(np.flatnonzero((replicas > 0) & problem.is_queue[problem.table.server]))
        load = load.copy()
        load[taken.server] = taken.load_rps
    rate = np.bincount(problem.table.server, replicas * problem.table.max_rate_rps, minlength=count)
    pools = np.bincount(problem.table.server, replicas, minlength=count)
    if problem.cards is not None:
        rate[problem.cards.lacks(problem.table, replicas, count)] = 0.0
    full: BoolArray = (
        (rate >= load * (1 - 2 * COVER_TOLERANCE))
        & (pools >= problem.min_replicas)
        & ((pools > 0) | ~problem.to_serve)
    )
    if problem.routing is not None:
        full = np.where(problem.routed, problem.routing.small() | served(problem, replicas), full)
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
    if problem.cards is not None:
        same[-1] = True  # the servers on shared cards change
    return same


def without_reserve(problem: Problem, replicas: IntArray) -> BoolArray:
    """Return a mask of the servers served without their required reserve, shape (S,) (eq. 143).

    Pools that divide have it if they carry the load with headroom, others as they were sized.
    """
    table, wanted = problem.table, problem.reserve.wanted
    if not wanted.any():
        return np.zeros(len(wanted), np.bool_)
    carried = _by_server(problem, np.where(problem.divisible, replicas * table.max_rate_rps, 0.0))
    has = carried >= problem.grown_load_rps * (1 - RESERVE_TOLERANCE)
    has |= _by_server(problem, (replicas > 0) & table.reserved & ~problem.divisible) > 0
    return wanted & ~has & served(problem, replicas)


def goal_of(problem: Problem, goal: Goal, replicas: IntArray) -> float:
    """Return the value of a goal in a solution [requests/min]."""
    reached = float(goal.on_unreserved[without_reserve(problem, replicas)].sum())
    if goal.on_off_preferred:
        reached += goal.on_off_preferred * float((replicas * problem.off_preferred_rpm).sum())
    return reached


def value_of(problem: Problem, replicas: IntArray) -> float:
    """Return the transition value of an answer [cents/h]."""
    pools = replicas * problem.table.cost_per_replica
    parts = pools, np.where(problem.on_current, 0.0, pools)
    cost, elsewhere = (_by_server(problem, part) for part in parts)
    stays = _by_server(problem, np.where(problem.on_current, replicas, 0)) > 0
    every = np.arange(len(problem.priority))
    same = unchanged(problem, replicas)
    if problem.cards is not None:
        same[-1] = False  # shared cards cost what they cost
    value = float(problem.transition_value(every, cost, elsewhere, stays, same).sum())
    return value + (
        problem.tiers.difference(problem.limits.used(replicas)) if len(problem.tiers.row) else 0.0
    )


def changes_of(problem: Problem, replicas: IntArray) -> int:
    """Return the number of servers that a solution changes."""
    return int((~unchanged(problem, replicas)).sum())


def levels_of(problem: Problem, replicas: IntArray, *, proved: bool) -> tuple[SolvedLevel, ...]:
    """Return every level at the value that an answer has there, with that as its bound if it is proved."""
    left, taken = ~served(problem, replicas), replicas > 0
    values = {level.name: level.value(left, taken) for level in problem.service}
    values |= {goal.name: goal_of(problem, goal, replicas) for goal in problem.goals}
    values |= {VALUE: value_of(problem, replicas), CHANGES: float(changes_of(problem, replicas))}
    return tuple(SolvedLevel(name, value, value if proved else None) for name, value in values.items())


def bounded_levels(
    problem: Problem, replicas: IntArray, bounds: Mapping[str, float]
) -> tuple[SolvedLevel, ...]:
    """Return every level at the value that an answer has there, with its bound.

    A goal whose value counts as the same as its bound is proved: solvers see no smaller difference.

    Args:
        problem: what was chosen from.
        replicas: the answer, shape (C,).
        bounds: by the name of the level, those of service in steps; infinity: the value is proved.
    """
    left, taken = ~served(problem, replicas), replicas > 0
    service, goals = {level.name: level for level in problem.service}, {goal.name for goal in problem.goals}
    levels = []
    for reached in levels_of(problem, replicas, proved=True):
        level, bound = service.get(reached.name), bounds[reached.name]
        if level is not None:
            bound = level.reported(min(bound, level.steps(left, taken)), left, taken)
        elif reached.name in goals and reached.value - bound <= value_slack(reached.value):
            bound = reached.value
        levels.append(SolvedLevel(reached.name, reached.value, min(bound, reached.value)))
    return tuple(levels)


def value_slack(value: float) -> float:
    """Return the difference up to which two values count as the same [cents/h]."""
    return max(VALUE_TOLERANCE * abs(value), MIN_TOLERANCE_CENTS_PER_H)


def differences(problem: Problem, replicas: IntArray, than: IntArray) -> Iterator[float]:
    """Yield the difference of two solutions at each level, in order of the levels; 0 if they are equal.

    Service and changes are compared as integers, the value with its slack (eq. 35, 50).
    """
    mine, other = ~served(problem, replicas), ~served(problem, than)
    for level in problem.service:
        yield level.steps(mine, replicas > 0) - level.steps(other, than > 0)
    for goal in problem.goals:
        reached, least = goal_of(problem, goal, replicas), goal_of(problem, goal, than)
        yield reached - least if abs(reached - least) > value_slack(least) else 0.0
    value, best = value_of(problem, replicas), value_of(problem, than)
    yield value - best if abs(value - best) > value_slack(best) else 0.0
    yield float(changes_of(problem, replicas) - changes_of(problem, than))


def is_better(problem: Problem, replicas: IntArray, than: IntArray) -> bool:
    """Return whether an answer is better than another in the order of all levels."""
    return next((more < 0 for more in differences(problem, replicas, than) if more), False)
