"""Rows of routes in a model: the division of their requests, within capacity and the limit on quality.

Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import COVER_SCALE, COVER_TOLERANCE
from optimizer.solvers.model_rows import ModelRows
from optimizer.solvers.problem import Problem
from optimizer.solvers.routing import RouteArrays, RouteVariables

ENDLESS = np.inf


def route_variables(problem: Problem, columns: IntArray, servers: IntArray, first: int) -> RouteVariables:
    """Return the variables of the routes whose large server has a column.

    Args:
        problem: what is chosen from.
        columns: the columns of the model, shape (n,).
        servers: servers with a column, shape (m,).
        first: index of the first variable.
    """
    routing = problem.routing
    routes = () if routing is None else routing.routes
    undivided = np.zeros(len(problem.table), np.bool_) if routing is None else routing.undivided
    routed = problem.routed[problem.table.server[columns]]
    one_of = np.flatnonzero(routed) if not problem.options.heterogeneous else np.zeros(0, np.int64)
    return RouteVariables(
        first, tuple(route for route in routes if route.large in servers), undivided, one_of
    )


def add_routes(
    rows: ModelRows,
    problem: Problem,
    columns: IntArray,
    most: IntArray,
    servers: IntArray,
    made: RouteVariables,
) -> None:
    """Add the rows of routes (eq. 222-225).

    Args:
        rows: the model's rows so far.
        problem: what is chosen from.
        columns: the columns of the model, shape (n,).
        most: upper bounds of the columns, shape (n,).
        servers: servers with a column, shape (m,), whose variables u follow the columns.
        made: the variables of the routes.
    """
    of = problem.table.server[columns]
    rate = problem.table.max_rate_rps[columns]
    for route, place in made.placed:
        unserved = len(columns) + int(np.searchsorted(servers, route.large))
        small, large = np.flatnonzero(of == route.small), np.flatnonzero(of == route.large)
        _add_loads(rows, route, (small, rate[small]), (large, rate[large]), unserved, place)
        _add_shares(rows, route, unserved, place)
        together = float(most[large].sum())
        _one(rows, -ENDLESS, together, (large, np.ones(len(large))), ([place + 1], [together]))
        if route.has_undivided:
            _add_states(rows, large, most, made.undivided[columns[large]], place)
    _add_single(rows, of, most, made)


def _one(rows: ModelRows, lower: float, upper: float, *entries: tuple[object, object]) -> None:
    """Add a row: entries are variables and coefficients."""
    index = np.concatenate([np.asarray(part, np.int64) for part, _ in entries])
    value = np.concatenate([np.asarray(part, np.float64) for _, part in entries])
    rows.add(np.array([lower]), np.array([upper]), (np.zeros(len(index), np.int64), index, value))


def _add_loads(
    rows: ModelRows,
    route: RouteArrays,
    small: tuple[IntArray, FloatArray],
    large: tuple[IntArray, FloatArray],
    unserved: int,
    place: int,
) -> None:
    """Both servers carry what the route sends to them; without a router, the large one carries all."""
    scale, total = COVER_SCALE / route.load_rps, route.load_rps
    shares = place + 2 + np.arange(len(route.rate_rps))
    slack = COVER_SCALE * COVER_TOLERANCE
    _one(rows, -slack, ENDLESS, (small[0], scale * small[1]), (shares, -scale * route.rate_rps))
    base = float(route.rate_rps @ route.large_base)
    _one(
        rows,
        COVER_SCALE - slack,
        ENDLESS,
        (large[0], scale * large[1]),
        ([unserved], [COVER_SCALE]),
        ([place], [scale * (total - base)]),
        (shares, -scale * route.rate_rps * route.large_slope),
    )


def _add_shares(rows: ModelRows, route: RouteArrays, unserved: int, place: int) -> None:
    """Shares lie between the errors of a router that is in use, and lose no more quality than allowed."""
    count = len(route.rate_rps)
    every, shares, router = np.arange(count), place + 2 + np.arange(count), np.full(count, place)
    nothing, endless = np.zeros(count), np.full(count, ENDLESS)
    rows.add(nothing, endless, (every, shares, np.ones(count)), (every, router, -route.lower))
    rows.add(-endless, nothing, (every, shares, np.ones(count)), (every, router, -route.upper))
    _one(rows, -ENDLESS, 1.0, ([place, unserved], [1.0, 1.0]))
    if route.loss_scale:
        scale = route.loss_scale
        _one(rows, -ENDLESS, scale * route.max_loss, (shares, scale * route.quality))


def _add_states(rows: ModelRows, large: IntArray, most: IntArray, undivided: BoolArray, place: int) -> None:
    """Candidates of the large server are for a router that is in use, or for one that is off."""
    every, router = np.arange(len(large)), np.full(len(large), place)
    upper = most[large].astype(np.float64)
    rows.add(
        np.full(len(large), -ENDLESS),
        np.where(undivided, upper, 0.0),
        (every, large, np.ones(len(large))),
        (every, router, np.where(undivided, upper, -upper)),
    )


def _add_single(rows: ModelRows, of: IntArray, most: IntArray, made: RouteVariables) -> None:
    """Use one accelerator for each server, unless plans are mixed (eq. 225)."""
    count = len(made.one_of)
    if not count:
        return
    every, one = np.arange(count), np.ones(count)
    z = made.first + len(made.upper) - count + every
    rows.add(
        np.full(count, -ENDLESS),
        np.zeros(count),
        (every, made.one_of, one),
        (every, z, -most[made.one_of].astype(np.float64)),
    )
    servers, row = np.unique(of[made.one_of], return_inverse=True)
    rows.add(np.full(len(servers), -ENDLESS), np.ones(len(servers)), (row, z, one))
