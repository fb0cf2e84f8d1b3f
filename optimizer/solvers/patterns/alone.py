"""Each server by itself: its pattern of least value, where capacities do not matter. No solver is asked."""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.levels import LEAST_TOLERANCE, VALUE, VALUE_TOLERANCE
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.parts import Parts, parts_of
from optimizer.solvers.patterns.pool import pool_of
from optimizer.solvers.patterns.program import Measure, Program
from optimizer.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class Alone:
    """What servers take by themselves."""

    replicas: IntArray
    """Replicas of each candidate, shape (C,)."""
    settled: BoolArray
    """Servers for which no pattern is better, shape (S,)."""


def cheapest_alone(problem: Problem) -> Alone:
    """Give each server its pattern of least value, then unchanged, then of most room, then the first."""
    servers = len(problem.priority)
    parts = parts_of(problem)
    pool = pool_of(problem, parts)
    everyone = np.ones(servers, np.bool_)
    program = Program(
        parts, Measure(VALUE, np.zeros(servers), on_value=1.0), (), everyone, everyone, ~everyone
    )
    prices = np.zeros(len(parts.limit))
    least = _least(pool.options, servers)
    known = np.isfinite(least)
    slack = np.maximum(VALUE_TOLERANCE * np.abs(least), LEAST_TOLERANCE)
    below = pool.below(program, prices, np.subtract(least, slack, out=least.copy(), where=known))
    pool.add(below.options)
    chosen = _chosen(problem, parts, pool.options)
    replicas = pool.options.replicas(chosen, parts, len(problem.table))
    return Alone(replicas, ~np.isfinite(below.floor))


def _least(options: Options, servers: int) -> FloatArray:
    least = np.full(servers, np.inf)
    np.minimum.at(least, options.server[options.served], options.value[options.served])
    return least


def _chosen(problem: Problem, parts: Parts, options: Options) -> IntArray:
    """Return the best option of each server that has a pattern."""
    least = _least(options, len(problem.priority))[options.server]
    slack = np.maximum(VALUE_TOLERANCE * np.abs(least), LEAST_TOLERANCE)
    near = np.flatnonzero(options.served & (options.value <= least + slack))
    used, at = options.part[near] >= 0, np.maximum(options.part[near], 0)
    room = np.where(used, options.count[near] * problem.table.max_rate_rps[parts.row[at]], 0.0).sum(axis=1)
    order = near[np.lexsort((-room, options.changed[near], options.server[near]))]
    _, first = np.unique(options.server[order], return_index=True)
    return order[first]
