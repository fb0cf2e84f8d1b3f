"""Lower bounds of the value computed without a solver, used if no solver proves a better one.

Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import Problem

ROUNDING = 1e-8
"""Relative margin that keeps a bound below the values that tolerances allow."""


def trivial_bounds(problem: Problem) -> dict[str, float]:
    """Return bounds of all levels that hold for any solution; those of service levels in steps."""
    every = np.arange(len(problem.table))
    bounds = dict.fromkeys((each.name for each in problem.objectives), 0.0)
    return bounds | {VALUE: least_value(problem, every, all_served=False)}


def least_value(problem: Problem, rows: IntArray, *, all_served: bool) -> float:
    """Return the minimum value of any solution with some candidates [cents/h], as in `least_values`."""
    has_candidate = np.isin(np.arange(len(problem.priority)), problem.table.server[rows])
    least = least_values(problem, rows, all_served=all_served)
    return float(least.sum() + problem.none_value[~has_candidate].sum()) + problem.tiers.committed


def least_values(problem: Problem, rows: IntArray, *, all_served: bool) -> FloatArray:
    """Return a lower bound of each server's contribution to the value, for some candidates [cents/h].

    Args:
        problem: the planning problem.
        rows: the candidates; every server to be served must have one.
        all_served: whether every server that has a candidate is served.

    Returns:
        The bounds, shape (S,); 0 for servers without a candidate.
    """
    server = problem.table.server[rows]
    served = np.full(len(problem.priority), np.inf)
    if problem.is_mixed:
        served = _least_mixed(problem, rows)
    else:
        np.minimum.at(served, server, problem.model_value[rows])
    least = served if all_served else np.minimum(served, problem.none_value)
    has_candidate = np.isin(np.arange(len(problem.priority)), server)
    return np.where(has_candidate, least, 0.0)


def _least_mixed(problem: Problem, rows: IntArray) -> FloatArray:
    """Return the minimum value of each served server with fractional replicas (eq. 39, 43); shape (S,).

    It serves all load on the cheapest candidate, and can keep its current replicas in addition, which counts
    as not moving.
    """
    table, server, each = (
        problem.table,
        problem.table.server[rows],
        problem.replica_value[rows] - problem.discount[rows],
    )
    load = problem.table.load_rps[rows]
    split = np.divide(load, table.max_rate_rps[rows], out=np.zeros(len(rows)), where=load > 0)
    count = np.where(load > 0, np.maximum(split, 1.0), 0.0)
    indivisible = ~problem.divisible[rows]
    count = np.where(indivisible, table.num_replicas[rows], count)
    carrying, counting = np.full((2, len(problem.priority)), np.inf)
    np.minimum.at(carrying, server, each * count)
    np.minimum.at(counting, server, each)
    counting[problem.min_replicas == 0] = 0.0
    cost = np.maximum(carrying, counting * problem.min_replicas) * (1 - ROUNDING)
    cost = np.where(problem.joint_load, 0.0, cost)
    stays = np.zeros(len(problem.priority), np.bool_)
    stays[server[problem.on_current[rows]]] = True
    # The additional cost of replicas elsewhere is included in this cost.
    return problem.transition_value(
        np.arange(len(stays)), cost, np.zeros_like(cost), stays, np.zeros_like(stays)
    )
