"""The least that the value can be, by plain arithmetic: bounds where no solver proves a better one.

Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import Problem

ROUNDING = 1e-8
"""Relative shortfall that keeps a bound below what tolerances let an answer reach."""


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
    np.minimum.at(least, problem.table.server[rows], each * count * (1 - ROUNDING))
    stays = problem.has_some_of(rows[problem.on_current[rows]])
    value = np.where(problem.joint_load, 0.0, least)
    # What replicas elsewhere cost more is part of the value here.
    none = np.zeros_like(value)
    return problem.transition_value(np.arange(len(stays)), value, none, stays, none > 0)
