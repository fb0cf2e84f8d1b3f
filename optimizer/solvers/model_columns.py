"""Selects the candidates that a model needs, for single-accelerator and for mixed plans.

Equation numbers and sections refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.table import Source
from optimizer.solvers.dominance import nondominated
from optimizer.solvers.problem import Problem
from optimizer.tolerances import COVER


def fitting_candidates(problem: Problem) -> IntArray:
    """Return the nondominated candidates that fit within the limits without other candidates."""
    columns: IntArray = nondominated_candidates(problem)
    columns = columns[problem.table.source[columns] != Source.units]
    return columns[(problem.limits.most_replicas() >= problem.table.num_replicas)[columns]]


def single_columns(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a single-accelerator plan, their upper bounds, and the replicas per unit."""
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
    """Return the candidates that no other one of their server dominates, in their order (section 12).

    Candidates of one type that use the same limits are compared. One dominates another if it is no worse in
    value, use and changes. Among equal candidates the one with the smallest batch is kept, then the first.
    The current allocation is always kept, because only it has no changes.
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
            *problem.dominance_groups,
        ]
    )
    return _nondominated(problem, np.flatnonzero(problem.full), keys)


def _nondominated(problem: Problem, rows: IntArray, keys: FloatArray) -> IntArray:
    """Return the candidates that no other one of the same server, type and limits dominates.

    Args:
        problem: the planning problem.
        rows: candidates.
        keys: keys, smaller is better, shape (C, K).
    """
    table, group = problem.table, problem.table.server
    for part in (table.type, problem.limits.groups()):
        group = group * (int(part.max(initial=0)) + 1) + part
    rows = rows[np.argsort(table.max_batch[rows], kind="stable")]
    return np.sort(rows[nondominated(group[rows], keys[rows])])


def mixed_columns(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a mixed plan, the maximum useful number of each, and the replicas per unit.

    A column whose targets also hold at every lower load can be a pool with any number of replicas. Otherwise
    the column is all-or-nothing: it is used as sized, or not at all.
    """
    table = problem.table
    alone = np.ceil(problem.grown_load_rps[table.server] / table.max_rate_rps * (1 - COVER))
    most = np.maximum(np.minimum(alone, 2.0**31), problem.min_replicas[table.server])
    most = np.maximum(most, problem.current_count)
    most = np.minimum(most, problem.max_replicas[table.server])
    divisible = problem.divisible
    indivisible = ~divisible & problem.full
    fitting = problem.limits.most_replicas()
    most, indivisible = np.minimum(most, fitting), indivisible & (table.num_replicas <= fitting)
    # Keys: value and use of one replica, and its rate. Columns on current accelerators are always kept.
    several = problem.on_current & (problem.current_pools[table.server] > 1)
    place = np.where(several, table.accelerator + 1, 0)
    rate = np.minimum(table.max_rate_rps, problem.grown_load_rps[table.server])
    keys = np.column_stack(
        [
            problem.replica_value - problem.discount,
            problem.limits.use,
            -rate,
            ~problem.on_current,
            place,
            -place,
            problem.off_preferred_rpm,
            *problem.dominance_groups,
        ]
    )
    pools = _nondominated(problem, np.flatnonzero(divisible & (most >= 1)), keys)
    units, most_units = _shared_units(problem)
    most[units] = most_units
    columns = np.sort(np.concatenate([pools, np.flatnonzero(indivisible), units]))
    each = np.where(divisible, 1, table.num_replicas)[columns]
    return columns, np.where(divisible, most, 1.0)[columns].astype(np.int64), each


def current_allocations(problem: Problem, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the current allocations that serve their servers in full; limits are not checked.

    Args:
        problem: the planning problem.
        rows: candidates that can be used, in their order.

    Returns:
        The candidates of the current pools, and the index of the allocation of each; shapes (N,). A server
        with one pool has an allocation for each candidate on its accelerator.
    """
    table, now = problem.table, problem.current_count
    pools = problem.current_pools[table.server]
    rows = rows[problem.on_current[rows] & (now[rows] > 0) & (problem.divisible | (pools == 1))[rows]]
    server, several = table.server[rows], pools[rows] > 1
    pair = server * (int(table.accelerator.max(initial=0)) + 1) + table.accelerator[rows]
    first = np.isin(np.arange(len(rows)), np.unique(pair, return_index=True)[1])
    rows, server, several = rows[first | ~several], server[first | ~several], several[first | ~several]
    own = np.where(several, server, len(problem.priority) + np.arange(len(rows)))
    _, first_of, of = np.unique(own, return_index=True, return_inverse=True)
    owner = server[first_of]
    replicas = np.bincount(of, now[rows], minlength=len(owner))
    rate = np.bincount(of, now[rows] * table.max_rate_rps[rows], minlength=len(owner))
    fine = (rate >= table.load_rps[rows[first_of]] * (1 - COVER)) | problem.served_by_rows[owner]
    fine &= (replicas >= problem.min_replicas[owner]) & (replicas <= problem.max_replicas[owner])
    fine &= np.bincount(of, minlength=len(owner)) == problem.current_pools[owner]
    as_sized = problem.divisible[rows] | (problem.full[rows] & (now[rows] == table.num_replicas[rows]))
    kept = fine[of] & as_sized
    return rows[kept], np.unique(of[kept], return_inverse=True)[1]
