"""One answer from two: the better one, with what is proved of either as far as it holds for it.

A bound of a level counts for answers that are no worse than its own at all levels before. Nothing here asks a
solver.
"""

from dataclasses import replace

from optimizer.arrays import IntArray
from optimizer.solvers.bounds import least_value
from optimizer.solvers.levels import VALUE, bounded_levels, differences, is_better, served
from optimizer.solvers.problem import Problem, Solution, Status


def joined(problem: Problem, first: Solution, second: Solution) -> Solution:
    """Return the answer of two runs that is proved, else the better one, the second of equal ones.

    If neither is proved, each level has the better of the two bounds.
    """
    for run in (second, first):
        if run.status is Status.optimal:
            return run
    best = first if is_better(problem, first.replicas, second.replicas) else second
    bounds = [_bounds_for(problem, best.replicas, run) for run in (first, second)]
    highest = {name: max(bound, bounds[1][name]) for name, bound in bounds[0].items()}
    levels = bounded_levels(problem, best.replicas, highest)
    proved = all(level.is_proved(0.0) for level in levels)
    return replace(best, levels=levels, status=Status.optimal if proved else best.status)


def not_worse_than(problem: Problem, other: IntArray, found: Solution) -> Solution:
    """Return a solution, or another answer in its place if it is better."""
    if not is_better(problem, other, found.replicas):
        return found
    bounds = _bounds_for(problem, other, found)
    return replace(found, replicas=other, levels=bounded_levels(problem, other, bounds))


def _bounds_for(problem: Problem, replicas: IntArray, run: Solution) -> dict[str, float]:
    """Return the bounds of a run that hold for an answer, those of service in steps.

    A level after one at which the answer is worse has a bound that needs no solver.
    """
    left, service = ~served(problem, run.replicas), {level.name: level for level in problem.service}
    bounds, holds = {}, True
    for level, more in zip(run.levels, differences(problem, replicas, run.replicas), strict=True):
        bound = level.bound if holds else None
        if bound is None:
            bounds[level.name] = least_value(problem) if level.name == VALUE else 0.0
        elif level.name in service:
            bounds[level.name] = service[level.name].steps_of(bound, left)
        else:
            bounds[level.name] = bound
        holds &= more <= 0
    return bounds
