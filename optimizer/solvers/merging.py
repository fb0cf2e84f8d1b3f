"""Merges two solutions of one problem: takes the better one, with every bound of either that applies to it.

A bound of a level applies to solutions that are no worse than its own solution at all earlier levels.
"""

from collections.abc import Sequence
from dataclasses import replace

from optimizer.arrays import IntArray
from optimizer.solvers.levels import Reached, bounded_levels, is_better, levels_of, trivial_bounds
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution, SolvedLevel, Status
from optimizer.tolerances import ROUNDING


def merge(problem: Problem, first: Solution, second: Solution) -> Solution:
    """Return the proved one of two solutions, or else the better one; the first if they are equal.

    If neither is proved, each level gets the better of the bounds that apply.
    """
    for solution in (first, second):
        if solution.status is Status.optimal:
            return solution
    best = second if is_better(problem, second.replicas, first.replicas) else first
    bounds = [_bounds_for(problem, best.replicas, solution) for solution in (first, second)]
    highest = {name: max(bound, bounds[1][name]) for name, bound in bounds[0].items()}
    levels = bounded_levels(problem, best.replicas, highest)
    proved = all(level.is_proved(0.0) for level in levels)
    return replace(best, levels=levels, status=Status.optimal if proved else best.status)


def not_worse_than(problem: Problem, other: IntArray, solution: Solution) -> Solution:
    """Return a solution, or `other` if that is better."""
    if not is_better(problem, other, solution.replicas):
        return solution
    if solution.status is Status.heuristic:
        return replace(solution, replicas=other, levels=levels_of(problem, other, proved=False))
    bounds = _bounds_for(problem, other, solution)
    return replace(solution, replicas=other, levels=bounded_levels(problem, other, bounds))


def _bounds_for(problem: Problem, replicas: IntArray, solution: Solution) -> dict[str, float]:
    """Return the bounds of a solution that apply to given replicas, in steps for service levels.

    After a level at which the replicas are worse, levels have trivial bounds.
    """
    reached = Reached(problem, solution.replicas)
    bounds, holds = trivial_bounds(problem), True
    differences = Reached(problem, replicas).differences(reached)
    for objective, level, more in zip(problem.objectives, solution.levels, differences, strict=True):
        if holds and level.bound is not None:
            bounds[objective.name] = objective.steps_of(level.bound, reached.left, reached.taken)
        holds &= more <= 0
    return bounds


def merged_bounds(best: Sequence[SolvedLevel], other: Sequence[SolvedLevel]) -> list[float | None]:
    """Return the better bound of each level for the better of two plans, by the reported values.

    No bound exceeds the value of its level. Bounds of the other plan apply as long as its values at earlier
    levels are no better.
    """
    bounds: list[float | None] = []
    holds = True
    for level, theirs in zip(best, other, strict=True):
        known = [x for x in (level.bound, theirs.bound if holds else None) if x is not None]
        bounds.append(min(max(known), level.value) if known else None)
        holds &= theirs.value >= level.value - ROUNDING * max(1.0, abs(level.value))
    return bounds
