"""Candidates that are of use to a model, for plans of one accelerator per server and for mixed ones.

Equation numbers and sections refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import COVER_TOLERANCE
from optimizer.solvers.dominance import nondominated
from optimizer.solvers.problem import Problem


def fitting_candidates(problem: Problem) -> IntArray:
    """Return the nondominated candidates that fit by themselves."""
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
    """Return the candidates of which a unit serves several servers and fits, and the most of use."""
    most = np.zeros(len(problem.table))
    for topology in problem.topologies:
        most += topology.most_units(problem.table)
    rows = np.flatnonzero(most > 0)
    most = np.minimum(most[rows], problem.limits.take(rows).most_replicas())
    return rows[most >= 1], np.minimum(most[most >= 1], 2.0**31).astype(np.int64)


def nondominated_candidates(problem: Problem) -> IntArray:
    """Return the candidates that no other of their server dominates, in their order (section 12).

    Compared are candidates of one type that use the same limits. One dominates another if it is no worse in
    value, use and changes; of equal ones the smaller batch stays, then the first in order. What keeps the
    current allocation always stays, as only it has no changes.
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
    """Return the rows that no other of their server and type dominates that uses the same limits.

    Args:
        problem: what is chosen from.
        rows: candidates.
        keys: the less the better, shape (C, K).
    """
    table, group = problem.table, problem.table.server
    for part in (table.kind, problem.limits.groups()):
        group = group * (int(part.max(initial=0)) + 1) + part
    rows = rows[np.argsort(table.max_batch[rows], kind="stable")]
    return np.sort(rows[nondominated(group[rows], keys[rows])])


def mixed_columns(problem: Problem) -> tuple[IntArray, IntArray, IntArray]:
    """Return the columns of a mixed plan, the most of each that can be of use, and the replicas of one.

    A column whose targets also hold at every lower load can be a pool of any number of replicas. One whose
    latencies step with the rate is indivisible: taken as it was sized, or not at all.
    """
    table = problem.table
    alone = np.ceil(problem.grown_load_rps[table.server] / table.max_rate_rps * (1 - COVER_TOLERANCE))
    most = np.maximum(np.minimum(alone, 2.0**31), problem.min_replicas[table.server])
    most = np.maximum(most, np.where(problem.on_current, problem.current_replicas[table.server], 0))
    most = np.minimum(most, problem.max_replicas[table.server])
    divisible = problem.divisible
    indivisible = ~divisible & problem.full
    fitting = problem.limits.most_replicas()
    most, indivisible = np.minimum(most, fitting), indivisible & (table.num_replicas <= fitting)
    # Value and use of a replica, and the rate; the current accelerator's column always stays.
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
    """Return the columns whose server exactly what it runs on now would serve in full, shape (C,).

    Whether there are enough units is not checked.
    """
    table, server = problem.table, problem.table.server
    now = problem.current_replicas[server]
    carries = now * table.max_rate_rps >= table.load_rps * (1 - COVER_TOLERANCE)
    carries |= problem.joint_load[server]
    allowed = (now >= np.maximum(problem.min_replicas[server], 1)) & (now <= problem.max_replicas[server])
    as_sized = problem.divisible | (problem.full & (now == table.num_replicas))
    keeps: BoolArray = problem.on_current & carries & allowed & as_sized
    return keeps
