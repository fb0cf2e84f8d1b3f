"""The choice of mixed plans as a mixed-integer model: a number of replicas for every candidate.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.formulation import Formulation
from optimizer.solvers.model import COVER_SCALE, COVER_TOLERANCE
from optimizer.solvers.model_columns import keepable, mixed_columns
from optimizer.solvers.model_rows import ModelRows, add_cards, add_limits
from optimizer.solvers.problem import Problem
from optimizer.solvers.route_rows import add_routes, route_variables

BARE_SHARE = 0.5
"""What a pool as it was sized counts in the row of a load if it lacks more than headroom."""


def mixed_model(problem: Problem) -> Formulation:
    """Write the choice of a number of replicas for every column (eq. 39-48)."""
    model = _mixed_columns(problem)
    tiers, columns, servers, each = problem.tiers, model.columns, model.servers, model.each
    n, m = len(columns), len(servers)
    # s: the server keeps a pool where it runs now; k: it keeps exactly what it has.
    here = np.flatnonzero(problem.on_current[columns] & (problem.current_cost[servers[model.row]] > 0))
    now = problem.current_replicas[servers[model.row]]
    exact = np.flatnonzero(keepable(problem)[columns] & (now <= model.most * each))
    k = n + m + len(here)
    routes = route_variables(problem, columns, servers, k + len(exact))
    r, reserving = k + len(exact) + len(routes.upper), servers[problem.reserve.wanted[servers]]
    rows = ModelRows()
    _add_covering(rows, model, r)
    _add_replica_limits(rows, model)
    _add_exclusions(rows, model)
    shared = add_limits(rows, problem, columns, each, r + len(reserving))
    _add_staying(rows, here, n + m)
    _add_keeping(rows, model, exact, k)
    add_cards(rows, problem, columns)
    add_routes(rows, problem, columns, model.most, servers, routes)

    ones, steps = np.ones(r + len(reserving) - n), tiers.size[tiers.later]
    ones[k + len(exact) - n : r - n] = routes.upper
    last, count = n + len(ones), n + len(ones) + len(steps)
    cost = (problem.replica_value[columns] - problem.discount[columns]) * each
    staying = (n + m, -problem.leaving_value[servers[model.row[here]]])
    counted = _counted(problem, servers)
    changed = _filled(count, (n, problem.none_changed[servers] - counted), (k, -np.ones(len(exact))))
    return Formulation(
        model=rows.model(np.concatenate([model.most, ones, steps]), k + len(exact) + routes.continuous),
        columns=columns,
        replicas_each=each,
        column_servers=problem.table.server[columns],
        servers=servers,
        value=_filled(count, (0, cost), staying, (last, tiers.more)),
        value_offset=float(problem.none_value[servers].sum()),
        changed=routes.changes(changed, n, servers),
        changed_offset=float(counted.sum()),
        staying=here,
        keeping=exact,
        shared=shared,
        unreserved_columns=np.zeros(n, np.bool_),
        unreserved_servers=reserving,
        steps=len(tiers.later),
        off_preferred=problem.off_preferred_rpm[columns] * each,
        routes=routes,
    )


def _counted(problem: Problem, servers: IntArray) -> FloatArray:
    """Return the weights of servers in the number of changes: the one that holds shared cards has none."""
    last = len(problem.priority) - 1
    return np.ones(len(servers)) if problem.cards is None else (servers < last).astype(np.float64)


def _filled(count: int, *parts: tuple[int, FloatArray]) -> FloatArray:
    """Return coefficients by variable: some from a place on each, all others 0."""
    coefficients = np.zeros(count)
    for place, values in parts:
        coefficients[place : place + len(values)] = values
    return coefficients


@dataclass(frozen=True, slots=True)
class _MixedColumns:
    """The first variables of the model: n columns of m servers, and one u for each server."""

    problem: Problem
    columns: IntArray
    """Candidates, shape (n,)."""
    most: IntArray
    """Upper bounds, shape (n,)."""
    each: IntArray
    """Replicas that one of each column stands for, shape (n,)."""
    servers: IntArray
    """Shape (m,)."""
    row: IntArray
    """Place of each column's server among the servers, shape (n,)."""

    @property
    def u(self) -> IntArray:
        """Indices of the variables that are one where a server is unserved."""
        return len(self.columns) + np.arange(len(self.servers))

    def block_of(self, some: IntArray) -> tuple[IntArray, IntArray]:
        """Return a row for each of some places of servers, -1 for others, and the columns that have one."""
        block = np.full(len(self.servers), -1)
        block[some] = np.arange(len(some))
        return block, np.flatnonzero(block[self.row] >= 0)


def _mixed_columns(problem: Problem) -> _MixedColumns:
    columns, most, each = mixed_columns(problem)
    servers, row = np.unique(problem.table.server[columns], return_inverse=True)
    return _MixedColumns(problem, columns, most, each, servers, row)


def _add_covering(rows: ModelRows, model: _MixedColumns, first: int) -> None:
    """A served server's pools carry its load (eq. 39).

    A variable of one, from the first given on, lets a server do without its reserve (eq. 145).
    """
    problem, reserve, table = model.problem, model.problem.reserve, model.problem.table
    load = problem.grown_load_rps[model.servers]
    bare = np.where(reserve.one_pool, BARE_SHARE, 1 / (1 + reserve.headroom_share))[model.servers]
    loaded = np.flatnonzero((load > 0) & ~problem.routed[model.servers])
    block, mine = model.block_of(loaded)
    row, columns = model.row[mine], model.columns[mine]
    share = np.minimum(table.max_rate_rps[columns] / load[row], 1.0)
    sized = np.where(table.reserved[columns], 1.0, bare[row])
    wants = np.flatnonzero(reserve.wanted[model.servers])
    rows.add(
        np.full(len(loaded), COVER_SCALE * (1 - COVER_TOLERANCE)),
        np.full(len(loaded), np.inf),
        (block[row], mine, COVER_SCALE * np.where(problem.divisible[columns], share, sized)),
        (np.arange(len(loaded)), model.u[loaded], np.full(len(loaded), COVER_SCALE)),
        (block[wants], first + np.arange(len(wants)), COVER_SCALE * (1 - bare[wants])),
    )


def _add_replica_limits(rows: ModelRows, model: _MixedColumns) -> None:
    """A served server keeps to its limits of replicas; an unserved one has none (eq. 40, 41)."""
    problem, m = model.problem, len(model.servers)
    least = problem.min_replicas[model.servers].astype(np.float64)
    together = np.bincount(model.row, model.most * model.each, minlength=m)
    most = np.minimum(problem.max_replicas[model.servers].astype(np.float64), together)
    replicas = (model.row, np.arange(len(model.columns)), model.each.astype(np.float64))
    rows.add(least, np.full(m, np.inf), replicas, (np.arange(m), model.u, least))
    rows.add(np.full(m, -np.inf), most, replicas, (np.arange(m), model.u, most))


def _add_exclusions(rows: ModelRows, model: _MixedColumns) -> None:
    """An indivisible column excludes every other column of its server."""
    pool = model.problem.divisible[model.columns]
    some = np.unique(model.row[~pool])
    block, mine = model.block_of(some)
    row = block[model.row[mine]]
    pools = np.bincount(row, np.where(pool[mine], model.most[mine], 0), minlength=len(some))
    most_of_pools = np.maximum(pools, 1.0)
    weight = np.where(pool[mine], 1.0, most_of_pools[row])
    rows.add(np.full(len(some), -np.inf), most_of_pools, (row, mine, weight))


def _add_staying(rows: ModelRows, here: IntArray, first: int) -> None:
    """An s of one, from the first given on, needs a replica of its column (eq. 43)."""
    every, one = np.arange(len(here)), np.ones(len(here))
    rows.add(
        np.full(len(here), -np.inf), np.zeros(len(here)), (every, first + every, one), (every, here, -one)
    )


def _others_of(servers: IntArray, columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the other columns of the server of each of some columns, as pairs of a place and a column.

    A server of a route can have two columns on the accelerator that it runs on.

    Args:
        servers: server of every column, shape (n,).
        columns: some columns, of which pairs have the places.
    """
    order = np.argsort(servers, kind="stable")
    first, last = (np.searchsorted(servers[order], servers[columns], side) for side in ("left", "right"))
    place = np.repeat(np.arange(len(columns)), last - first)
    skipped = np.repeat(np.cumsum(last - first) - last, last - first)
    others = order[np.arange(len(place)) - skipped]
    pairs = np.flatnonzero(others != columns[place])
    pairs = pairs[np.argsort(others[pairs], kind="stable")]
    return place[pairs], others[pairs]


def _add_keeping(rows: ModelRows, model: _MixedColumns, exact: IntArray, first: int) -> None:
    """A k of one, from the first given on, fixes its server to exactly the current replicas (eq. 44-46)."""
    count = len(exact)
    every, one, endless = np.arange(count), np.ones(count), np.full(count, np.inf)
    k, most = first + every, model.most[exact].astype(np.float64)
    now = model.problem.current_replicas[model.problem.table.server[model.columns[exact]]] / model.each[exact]
    rows.add(np.zeros(count), endless, (every, exact, one), (every, k, -now))
    rows.add(-endless, most, (every, exact, one), (every, k, most - now))
    row, others = _others_of(model.row, exact)
    total = np.bincount(row, model.most[others], minlength=count).astype(np.float64)
    rows.add(-endless, total, (row, others, np.ones(len(others))), (every, k, total))
