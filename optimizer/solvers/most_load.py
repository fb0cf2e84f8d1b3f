"""Maximum load that the limits allow if servers can be served in part, instead of full service first."""

import numpy as np

from optimizer.arrays import BoolArray
from optimizer.milp.model import COVER_SCALE, ModelRows, RunStatus
from optimizer.solvers.compact import highs_session
from optimizer.solvers.problem import Problem


def most_load_rps(problem: Problem, servers: BoolArray, time_limit_s: float) -> float | None:
    """Return the maximum load that replicas of some servers can carry together [requests/s] (eq. 239).

    Args:
        problem: the planning problem, with the amounts that the other servers leave.
        servers: mask of the servers, shape (S,); shared queues and servers that roll out carry nothing in
            part.
        time_limit_s: time limit; the result is None if it is not proved by then.

    Raises:
        SolverError: the solver failed.
    """
    problem = problem.at_list_price
    table, divisible = problem.table, problem.table.meets_targets_below_max_rate
    can = servers & ~problem.is_queue & ~problem.reserve.surges & (problem.load_rps > 0)
    c = np.flatnonzero(can[table.server] & divisible & ~problem.repeats)
    placed, row = np.unique(table.server[c], return_inverse=True)
    share = table.max_rate_rps[c] / problem.load_rps[table.server[c]]
    limits = problem.limits.take(c)
    most = np.minimum(
        np.minimum(np.ceil(1 / share), problem.max_replicas[placed][row]), limits.most_replicas()
    )
    if not most.any():
        return 0.0
    n, m, rows = len(c), len(placed), ModelRows()
    x, z, carried = np.arange(n), n + np.arange(n), 2 * n + np.arange(m)
    one, every = np.ones(n), np.arange(m)
    scale = np.full(m, COVER_SCALE)
    rows.add(0 * scale, np.inf * scale, (row, x, COVER_SCALE * share), (every, carried, -scale))
    rows.add(-np.inf * one, 0 * one, (x, x, one), (x, z, -most))
    pools = np.full(m, float(n if problem.options.heterogeneous else 1))
    rows.add(np.full(m, -np.inf), pools, (row, z, one))
    limit, divisor, amount = limits.scaled(np.ones(n, np.int64))
    column, entry = np.nonzero(limits.use)
    place = np.searchsorted(limit, limits.row[column, entry])
    use = limits.use[column, entry] / divisor[place]
    rows.add(np.full(len(limit), -np.inf), amount, (place, column, use))
    upper, whole = np.concatenate([most, one, np.ones(m)]), np.repeat([True, False], [2 * n, m])
    load = problem.load_rps[placed]
    objective = np.append(np.zeros(2 * n), -load / load.sum())
    result = highs_session(rows.model(upper, whole)).minimise(objective, None, 0.0, time_limit_s)
    return None if result.outcome is not RunStatus.optimal else -float(result.bound) * float(load.sum())
