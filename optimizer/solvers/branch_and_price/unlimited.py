"""Unlimited mixed plans: the pattern of least value of each server by itself. No solver is asked."""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.branch_and_price.columns import PatternColumns
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.levels import LEAST_TOLERANCE, VALUE_TOLERANCE
from optimizer.solvers.objectives import value_objective
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class CheapestPatterns:
    """The pattern that each server takes by itself."""

    replicas: IntArray
    """Replicas of each candidate, shape (C,)."""
    settled: BoolArray
    """Servers for which no pattern is better, shape (S,)."""


def cheapest_patterns(problem: Problem) -> CheapestPatterns:
    """Give each server its pattern of least value, then unchanged, then of most room, then the first."""
    servers, pool = len(problem.priority), ColumnPool.of(problem)
    everyone = np.ones(servers, np.bool_)
    master = MasterProblem(pool.candidates, value_objective(problem), (), everyone, ~everyone)
    least = _least(pool.columns, servers)
    known = np.isfinite(least)
    slack = np.maximum(VALUE_TOLERANCE * np.abs(least), LEAST_TOLERANCE)
    limit = np.subtract(least, slack, out=least.copy(), where=known)
    result = pool.price_columns(master, np.zeros(len(pool.candidates.amount)), limit)
    pool.add(result.columns)
    chosen = _chosen(problem, pool)
    replicas = pool.columns.replicas(chosen, pool.candidates, len(problem.table))
    return CheapestPatterns(replicas, ~np.isfinite(result.floor))


def _least(columns: PatternColumns, servers: int) -> FloatArray:
    least = np.full(servers, np.inf)
    np.minimum.at(least, columns.server[columns.served], columns.value[columns.served])
    return least


def _chosen(problem: Problem, pool: ColumnPool) -> IntArray:
    """Return the best column of each server that has a pattern."""
    columns, candidates = pool.columns, pool.candidates
    least = _least(columns, len(problem.priority))[columns.server]
    slack = np.maximum(VALUE_TOLERANCE * np.abs(least), LEAST_TOLERANCE)
    near = np.flatnonzero(columns.served & (columns.value <= least + slack))
    used, row = columns.candidate[near] >= 0, candidates.row[np.maximum(columns.candidate[near], 0)]
    carried = np.where(used, columns.count[near] * problem.table.max_rate_rps[row], 0.0).sum(axis=1)
    order = near[np.lexsort((-carried, columns.changed[near], columns.server[near]))]
    _, first = np.unique(columns.server[order], return_index=True)
    return order[first]
