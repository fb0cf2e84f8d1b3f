"""Variables and constraints of routes, whose router divides requests between a small and a large server.

Both are ordinary servers. The division is a function of their replicas, so a solution is only the number of
replicas of each candidate. In MILP models, the shares of the division are variables. Equation numbers refer
to ``docs/math.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.features.routes.divisions import LARGEST_COEFFICIENT, Division, RouteFlows
from optimizer.milp.model import COVER_SCALE, ModelRows
from optimizer.tolerances import COVER
from optimizer.topologies.topology import Label, ModelColumns, ServerTopology, Variables

ENDLESS = np.inf


@dataclass(frozen=True)
class RouteTopology(ServerTopology):
    """All routes with load in a planning problem, as a topology of solvers."""

    place: ClassVar[str] = "routes"
    name: ClassVar[str] = "routes"
    advice: ClassVar[str] = "list fewer accelerators for each server"
    routes: tuple[RouteFlows, ...]
    served_by_rows: BoolArray
    """Mask of servers that belong to a route, shape (S,)."""
    optional: BoolArray
    """Mask of the small servers of routes, shape (S,); they can be without replicas, because the large ones
    can serve all requests.
    """

    @classmethod
    def of(cls, candidates: Candidates, added: BoolArray, servers: int) -> "RouteTopology | None":  # noqa: ARG003
        """Create the topology of a system's routes; None if no route has load."""
        system, names = candidates.system, candidates.arrays.server_names
        routes = tuple(RouteFlows.of(one, names) for one in system.routes.values() if one.arrival_rate_rpm)
        served_by_rows, optional = np.zeros((2, servers), np.bool_)
        optional[[route.small for route in routes]] = True
        served_by_rows[[index for route in routes for index in (route.small, route.large)]] = True
        return cls(routes, served_by_rows, optional) if routes else None

    def take(self, rows: IntArray | BoolArray, servers: BoolArray | None = None) -> "RouteTopology":  # noqa: ARG002
        """Return the topology for some candidates; `servers`, if given, masks the large servers to keep."""
        routes = tuple(route for route in self.routes if servers is None or servers[route.large])
        optional = np.zeros(len(self.optional), np.bool_)
        optional[[route.small for route in routes]] = True
        return replace(self, routes=routes, optional=optional)

    def with_partners(self, chosen: BoolArray) -> BoolArray:
        """Return the mask `chosen` with the small server of each route set as its large one."""
        partnered = chosen.copy()
        for route in self.routes:
            partnered[route.small] = chosen[route.large]
        return partnered

    def groups(self) -> Iterator[Sequence[int]]:
        """Yield the indices of the small and the large server of each route."""
        for route in self.routes:
            yield route.small, route.large

    def without_idle(self, table: CandidateTable, replicas: IntArray, running: BoolArray) -> IntArray:
        """Return the solution without replicas of unserved routes, or of small servers without a router."""
        result = replicas.copy()
        for route, division in self.divisions(table, replicas):
            if division is None:
                result[(table.server == route.small) | (table.server == route.large)] = 0
            elif not division.routed:
                result[(table.server == route.small) & ~running] = 0
        return result

    def usable(self, table: CandidateTable) -> BoolArray:
        """Return a mask of usable candidates: those of routes must meet their targets at any lower rate."""
        return np.asarray(table.meets_targets_below_max_rate | ~self.served_by_rows[table.server], np.bool_)

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:
        """Return the mask `has` of served servers; large servers are served if their route can be divided."""
        served = has.copy()
        for route, division in self.divisions(table, replicas):
            served[route.large] = division is not None
        return served

    def divisions(
        self, table: CandidateTable, replicas: IntArray, routes: Sequence[RouteFlows] | None = None
    ) -> Iterator[tuple[RouteFlows, Division | None]]:
        """Yield each route (all, or those in `routes`) with the division of its requests in a solution."""
        rate = replicas * table.max_rate_rps
        for route in self.routes if routes is None else routes:
            yield (
                route,
                route.division(
                    float(rate[table.server == route.small].sum()),
                    float(rate[table.server == route.large].sum()),
                ),
            )

    def block(self, table: CandidateTable, columns: ModelColumns) -> tuple[Variables, ModelRows]:
        """Return variables and constraints of the routes whose large server has a column (eq. 222-225).

        The variables of a route are: whether its router is in use, whether its large server has no replica,
        and the shares at the small server. In plans with one accelerator per server, another variable for
        each column states whether it is used.
        """
        routes = [route for route in self.routes if route.large in columns.servers]
        server, rate = table.server[columns.candidates], table.max_rate_rps[columns.candidates]
        one_of = np.flatnonzero(self.served_by_rows[server]) if columns.is_single else np.zeros(0, np.int64)
        rows, place = ModelRows(), columns.first
        integer, upper, changes = list[bool](), list[float](), list[float]()
        for route in routes:
            unserved, count = columns.unserved(route.large), len(route.rate_rps)
            small, large = np.flatnonzero(server == route.small), np.flatnonzero(server == route.large)
            _add_loads(rows, route, (small, rate[small]), (large, rate[large]), unserved, place)
            _add_shares(rows, route, unserved, place)
            # If the variable for "the large server has no replica" is 1, none of its columns can be used.
            most = float(columns.most[large].sum())
            rows.add_one(-ENDLESS, most, (large, np.ones(len(large))), ([place + 1], [most]))
            place += 2 + count
            integer += [True, True, *[False] * count]
            upper += [1.0, 1.0, *route.upper.tolist()]
            changes += [0.0, float(columns.on_leaving[route.large]), *[0.0] * count]
        columns.add_single(rows, one_of, place + np.arange(len(one_of)), server)

        # In a warm start, the divisions follow from the replicas.
        def point(replicas: IntArray) -> FloatArray:
            values: list[float] = []
            for route, division in self.divisions(table, replicas, routes):
                shares = [0.0] * len(route.rate_rps) if division is None else list(division.shares)
                empty = not replicas[table.server == route.large].any()
                values += [float(division is not None and division.routed), float(empty), *shares]
            return np.concatenate([values, replicas[columns.candidates[one_of]] > 0]).astype(np.float64)

        ones = np.ones(len(one_of))
        block = Variables(
            upper=np.append(upper, ones),
            point=point,
            labels=lambda: _labels(routes, one_of, server),
            changes=np.append(changes, 0 * ones),
            integer=np.append(integer, ones > 0).astype(np.bool_),
        )
        return block, rows


def _labels(routes: Sequence[RouteFlows], one_of: IntArray, server: IntArray) -> Iterator[Label]:
    for r, route in enumerate(routes):
        yield f"on_{r}", f"the router of {route.name} is in use", -1, -1
        yield f"w_{r}", f"{route.name} needs no replica of its large model", route.large, -1
        for d in range(len(route.rate_rps)):
            yield f"phi_{r}_{d}", f"share of kind {d + 1} of {route.name} at the small model", route.small, -1
    for column in one_of.tolist():
        yield f"z_{column}", "has its replicas on this accelerator", int(server[column]), -1


def _add_loads(
    rows: ModelRows,
    route: RouteFlows,
    small: tuple[IntArray, FloatArray],
    large: tuple[IntArray, FloatArray],
    unserved: int,
    place: int,
) -> None:
    """Add rows that make both servers carry the load that the route sends them; all if its router is off."""
    scale, total = COVER_SCALE / route.load_rps, route.load_rps
    shares = place + 2 + np.arange(len(route.rate_rps))
    slack = COVER_SCALE * COVER
    small_rates, large_rates = (np.minimum(scale * rate, LARGEST_COEFFICIENT) for _, rate in (small, large))
    rows.add_one(-slack, ENDLESS, (small[0], small_rates), (shares, -scale * route.rate_rps))
    # With the router on, the large server gets Σ rate (base + slope φ); with it off, all requests. An
    # unserved route needs no rate at all.
    base = float(route.rate_rps @ route.large_base)
    rows.add_one(
        COVER_SCALE - slack,
        ENDLESS,
        (large[0], large_rates),
        ([unserved], [COVER_SCALE]),
        ([place], [scale * (total - base)]),
        (shares, -scale * route.rate_rps * route.large_slope),
    )


def _add_shares(rows: ModelRows, route: RouteFlows, unserved: int, place: int) -> None:
    """Add rows that bound the shares by the router's errors, and the quality loss by its limit."""
    count = len(route.rate_rps)
    every, shares, router = np.arange(count), place + 2 + np.arange(count), np.full(count, place)
    # lower · router ≤ φ ≤ upper · router, and an unserved route has no router.
    nothing, endless = np.zeros(count), np.full(count, ENDLESS)
    rows.add(nothing, endless, (every, shares, np.ones(count)), (every, router, -route.lower))
    rows.add(-endless, nothing, (every, shares, np.ones(count)), (every, router, -route.upper))
    rows.add_one(-ENDLESS, 1.0, ([place, unserved], [1.0, 1.0]))
    if route.loss_scale:
        scale = route.loss_scale
        rows.add_one(-ENDLESS, scale * route.max_loss, (shares, scale * route.quality))


TOPOLOGY = RouteTopology
