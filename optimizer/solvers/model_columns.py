"""Selects the candidates that a model needs, for single-accelerator and for mixed plans.

Equation numbers and sections refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.dominance import nondominated
from optimizer.solvers.problem import Problem
from optimizer.tolerances import COVER


def fitting_candidates(problem: Problem) -> IntArray:
    """Return the nondominated candidates that fit alone."""
    columns = nondominated_candidates(problem)
    columns = columns[problem.table.pattern[columns] < 0]
    return columns[(problem.limits.most_replicas() >= problem.table.num_replicas)[columns]]


def single_columns(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a plan of one accelerator per server, and the rest as `mixed_columns` does."""
    own, (units, most_units) = fitting_candidates(problem), _shared_units(problem)
    columns = np.concatenate([own, units])
    most = np.concatenate([np.ones(len(own), np.int64), most_units])
    return columns, most, problem.table.num_replicas[columns]


def _shared_units(problem: Problem) -> tuple[IntArray, IntArray]:
    """Return the candidates on shared cards that fit, and the maximum useful number of units of each."""
    most = np.zeros(len(problem.table))
    for topology in problem.topologies:
        most += topology.most_units(problem.table)
    rows = np.flatnonzero(most > 0)
    most = np.minimum(most[rows], problem.limits.take(rows).most_replicas())
    return rows[most >= 1], np.minimum(most[most >= 1], 2.0**31).astype(np.int64)


def nondominated_candidates(problem: Problem) -> IntArray:
    """Return the candidates not dominated by another of their server, in their order (section 12).

    Candidates of one type that use the same limits are compared. One dominates another if it is no worse in
    value, use and changes; among equal ones the smaller batch is kept, then the first. The current allocation
    is always kept, because only it has no changes.
    """
    use = problem.limits.use * problem.table.num_replicas[:, None]
    keys = np.column_stack(
        [
            problem.model_value,
            use,
            problem.changed,
            ~problem.table.reserved,
            problem.off_preferred_total,
            *problem.unserved_parts,
        ]
    )
    return _nondominated(problem, np.flatnonzero(problem.full), keys)


def _nondominated(problem: Problem, rows: IntArray, keys: FloatArray) -> IntArray:
    """Return the rows not dominated by another of the same server, type and limits.

    Args:
        problem: the planning problem.
        rows: candidates.
        keys: keys, smaller is better, shape (C, K).
    """
    table, group = problem.table, problem.table.server
    for part in (table.kind, problem.limits.groups()):
        group = group * (int(part.max(initial=0)) + 1) + part
    rows = rows[np.argsort(table.max_batch[rows], kind="stable")]
    return np.sort(rows[nondominated(group[rows], keys[rows])])


def mixed_columns(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a mixed plan, the maximum useful number of each, and the replicas of one unit.

    A column whose targets also hold at every lower load can be a pool with any number of replicas. Otherwise
    the column is all-or-nothing: it is used as sized, or not at all.
    """
    table = problem.table
    alone = np.ceil(problem.grown_load_rps[table.server] / table.max_rate_rps * (1 - COVER))
    most = np.maximum(np.minimum(alone, 2.0**31), problem.min_replicas[table.server])
    most = np.maximum(most, np.where(problem.on_current, problem.current_replicas[table.server], 0))
    most = np.minimum(most, problem.max_replicas[table.server])
    divisible = problem.divisible
    indivisible = ~divisible & problem.full
    fitting = problem.limits.most_replicas()
    most, indivisible = np.minimum(most, fitting), indivisible & (table.num_replicas <= fitting)
    # Value and use of a replica, and the rate; the current accelerator's column is always kept.
    rate = np.minimum(table.max_rate_rps, problem.grown_load_rps[table.server])
    keys = np.column_stack(
        [
            problem.replica_value - problem.discount,
            problem.limits.use,
            -rate,
            ~problem.on_current,
            problem.off_preferred_rpm,
            *problem.apart,
        ]
    )
    pools = _nondominated(problem, np.flatnonzero(divisible & (most >= 1)), keys)
    units, most_units = _shared_units(problem)
    most[units] = most_units
    columns = np.sort(np.concatenate([pools, np.flatnonzero(indivisible), units]))
    each = np.where(divisible, 1, table.num_replicas)[columns]
    return columns, np.where(divisible, most, 1.0)[columns].astype(np.int64), each


def keepable(problem: Problem) -> BoolArray:
    """Return a mask of columns whose server is served in full by exactly its current allocation, shape (C,).

    The limits are not checked.
    """
    table, server = problem.table, problem.table.server
    now = problem.current_replicas[server]
    carries = now * table.max_rate_rps >= table.load_rps * (1 - COVER)
    carries |= problem.joint_load[server]
    allowed = (now >= np.maximum(problem.min_replicas[server], 1)) & (now <= problem.max_replicas[server])
    as_sized = problem.divisible | (problem.full & (now == table.num_replicas))
    keeps: BoolArray = problem.on_current & carries & allowed & as_sized
    return keeps
