"""Routes as arrays, and the division of their requests between given replicas.

Takes the routes of a system, gives the rows that a model needs of them, and for replicas of both servers the
division that loses the least quality. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import MemberArrays
from optimizer.solvers.card_columns import with_server_behind
from optimizer.solvers.model import COVER_SCALE, MilpModel
from optimizer.spec.routes import ROUNDING, flows_of, has_undivided
from optimizer.spec.schema import Route
from optimizer.units import SECONDS_PER_MINUTE

SHORTFALL = 2e-9
"""Relative shortfall of rate that counts as rounding."""
LOSS_TOLERANCE = 2e-9
"""Lost quality above its limit that counts as rounding."""
SNAP = 5e-9
"""Distance of a share from the end of its range that is rounding."""
COMFORTABLE = 0.9
"""Utilisation, as a share of the largest rate within targets, up to which quality goes before room."""
LP_LIMIT_S = 60.0
"""Time limit of a linear program of a few variables [s]."""


@dataclass(frozen=True, slots=True)
class Division:
    """Requests of a route as they are divided."""

    routed: bool
    """Whether the router is in use; otherwise all requests go to the large model."""
    shares: tuple[float, ...]
    """Share of each kind at the small model."""


@dataclass(frozen=True, slots=True)
class RouteArrays:
    """A route with load; kinds as arrays of shape (D,)."""

    name: str
    small: int
    """Index of the small server."""
    large: int
    rate_rps: FloatArray
    lower: FloatArray
    upper: FloatArray
    quality: FloatArray
    """Part of all answers that is worse for each unit of the share at the small model."""
    large_base: FloatArray
    large_slope: FloatArray
    """Requests at the large model for each request: base + slope × share at the small model."""
    max_loss: float
    has_undivided: bool
    """Whether other candidates of the large server serve all requests, with the router off."""
    known: dict[tuple[float, float, float], Division | None] = field(default_factory=dict)
    """Divisions by capacities of the two servers."""

    @classmethod
    def of(cls, route: Route, small: int = 0, large: int = 1) -> "RouteArrays":
        """Return a route as arrays, with the indices of its servers."""
        flows = flows_of(route)
        return cls(
            name=route.name,
            small=small,
            large=large,
            rate_rps=np.array([flow.rate_rpm for flow in flows]) / SECONDS_PER_MINUTE,
            lower=np.array([flow.lower for flow in flows]),
            upper=np.array([flow.upper for flow in flows]),
            quality=np.array([flow.quality for flow in flows]),
            large_base=np.array([flow.large_base for flow in flows]),
            large_slope=np.array([flow.large_slope for flow in flows]),
            max_loss=route.max_loss,
            has_undivided=has_undivided(route),
        )

    @property
    def load_rps(self) -> float:
        """Arrival rate of all kinds."""
        return float(self.rate_rps.sum())

    @property
    def loss_scale(self) -> float:
        """Factor that turns the row of lost quality into thousandths of its largest coefficient."""
        return COVER_SCALE / float(self.quality.max()) if self.quality.any() else 0.0

    def division(self, small_rps: float, large_rps: float, undivided_rps: float) -> Division | None:
        """Return the division between replicas with these maximum rates [requests/s]; None if there is none.

        It loses the least quality with which no server is used by more than `COMFORTABLE`, or else uses the
        busier server least; the large model takes all requests where that is as good (eq. 227).
        """
        key = small_rps, large_rps, undivided_rps
        if key not in self.known:
            self.known[key] = self._divide(*key)
        return self.known[key]

    def most_rps(self, small_rps: float, large_rps: float, undivided_rps: float) -> float:
        """Return the largest rate that replicas with these maximum rates can divide [requests/s].

        The loads of both servers are proportional to it, so it is the load over the utilisation of the
        busier server, where that is least.
        """
        found = self._minimised(
            np.array([small_rps, large_rps]), _Bounds(np.inf, self.max_loss), on_loss=False
        )
        alone_rps = undivided_rps if self.has_undivided else large_rps
        return alone_rps if found is None else max(alone_rps, self.load_rps / found.utilisation)

    def _divide(self, small_rps: float, large_rps: float, undivided_rps: float) -> Division | None:
        alone_rps = undivided_rps if self.has_undivided else large_rps
        alone = self.load_rps / alone_rps if alone_rps else np.inf
        undivided = Division(routed=False, shares=(0.0,) * len(self.rate_rps))
        if alone <= COMFORTABLE or (undivided_rps and alone <= 1 + SHORTFALL):
            return undivided
        both = np.array([small_rps, large_rps])
        first = self._minimised(both, _Bounds(COMFORTABLE, self.max_loss), on_loss=True)
        if first is not None:
            second = self._minimised(both, _Bounds(COMFORTABLE, first.lost), on_loss=False)
            return (second or first).division
        first = self._minimised(both, _Bounds(1.0, self.max_loss), on_loss=False)
        if alone <= 1 + SHORTFALL and (first is None or alone <= first.utilisation * (1 + ROUNDING)):
            return undivided
        if first is None:
            return None
        second = self._minimised(both, _Bounds(first.utilisation, self.max_loss), on_loss=True)
        return (second or first).division

    def _minimised(self, capacity_rps: FloatArray, most: "_Bounds", *, on_loss: bool) -> "_Shares | None":
        """Return the shares with the least lost quality, or the least utilisation of the busier server.

        Args:
            capacity_rps: maximum rates of the small and the large server.
            most: upper bounds of both.
            on_loss: whether the lost quality is minimised.
        """
        from optimizer.solvers.highs import HighsSession

        n, scale = len(self.rate_rps) + 1, COVER_SCALE / self.load_rps
        loads = np.array([self.rate_rps, self.rate_rps * self.large_slope]) * scale
        base = np.array([0.0, float(self.rate_rps @ self.large_base)]) * scale
        lost = np.append(self.quality * (self.loss_scale or 1.0), 0.0)
        matrix = np.vstack([np.column_stack([loads, -capacity_rps * scale]), lost])
        model = MilpModel(
            lower=np.append(self.lower, 0.0),
            upper=np.append(self.upper, most.utilisation + SHORTFALL),
            integer=np.zeros(n, np.bool_),
            row_start=np.arange(4) * n,
            row_index=np.tile(np.arange(n), 3),
            row_value=matrix.ravel(),
            row_lower=np.full(3, -np.inf),
            row_upper=np.append(
                SHORTFALL * COVER_SCALE - base, (most.lost + LOSS_TOLERANCE) * (self.loss_scale or 1.0)
            ),
        )
        objective = lost if on_loss else np.append(np.zeros(n - 1), COVER_SCALE)
        x = HighsSession(model).relax(objective, LP_LIMIT_S).x
        if x is None:
            return None
        shares = np.clip(x[:-1], self.lower, self.upper)
        for bound in (self.lower, self.upper):
            shares = np.where(np.abs(shares - bound) <= SNAP, bound, shares)
        return _Shares(shares, float(self.quality @ shares), float(x[-1]))


class _Bounds(NamedTuple):
    """Upper bounds of a division."""

    utilisation: float
    lost: float


class _Shares(NamedTuple):
    """Shares at the small model, the quality that they lose, and the utilisation of the busier server."""

    shares: FloatArray
    lost: float
    utilisation: float

    @property
    def division(self) -> Division:
        return Division(routed=True, shares=tuple(self.shares.tolist()))


@dataclass(frozen=True, slots=True)
class Routing:
    """All routes of a problem that have load."""

    routes: tuple[RouteArrays, ...]
    servers: BoolArray
    """Whether a server is one of a route, shape (S,)."""
    undivided: BoolArray
    """Whether a candidate is for a router that is off, shape (C,)."""

    @classmethod
    def of(cls, candidates: Candidates, undivided: BoolArray) -> "Routing | None":
        """Return the routes of a system; None if none has load."""
        system, names = candidates.system, candidates.arrays.server_names
        found, servers = [], np.zeros(len(names), np.bool_)
        for route in system.routes.values():
            if route.arrival_rate_rpm:
                made = RouteArrays.of(route, names.index(route.small), names.index(route.large))
                servers[[made.small, made.large]] = True
                found.append(made)
        return cls(tuple(found), servers, undivided) if found else None

    def with_server_behind(self) -> "Routing":
        """Return the routes of a problem with a server behind the last, which none of them has."""
        return replace(self, servers=with_server_behind(self.servers, 0))

    def of_servers(self, rows: IntArray, chosen: BoolArray) -> "Routing":
        """Return the routes whose large server is chosen, shape (S,), with some candidates."""
        routes = tuple(route for route in self.routes if chosen[route.large])
        return replace(self, routes=routes, undivided=self.undivided[rows])

    def together(self, chosen: BoolArray) -> BoolArray:
        """Return chosen servers, shape (S,), with the small server of a route if its large one is chosen."""
        found = chosen.copy()
        for route in self.routes:
            found[route.small] = chosen[route.large]
        return found

    def small(self) -> BoolArray:
        """Return a mask of the small servers, shape (S,)."""
        found = np.zeros(len(self.servers), np.bool_)
        found[[route.small for route in self.routes]] = True
        return found

    def counted(self, members: MemberArrays) -> MemberArrays:
        """Return members among which the large server of a route counts its load, and the small one none."""
        return replace(members, load_rps=np.where(self.small()[members.server], 0.0, members.load_rps))

    def divisions(
        self, table: CandidateTable, replicas: IntArray
    ) -> Iterator[tuple[RouteArrays, Division | None]]:
        """Yield the division of each route between the replicas of a solution, shape (C,)."""
        yield from divisions_of(self.routes, self.undivided, table, replicas)

    def with_routers_off(self, table: CandidateTable, replicas: IntArray) -> IntArray:
        """Return a solution, shape (C,), without routers that leave all requests to the large server.

        That server then has the candidates of its accelerators for a router that is off, which carry more.
        """
        found = replicas.copy()
        for route, division in self.divisions(table, replicas):
            if not route.has_undivided or division is None or not division.routed:
                continue
            large_rps = float(route.rate_rps @ (route.large_base + route.large_slope * division.shares))
            if large_rps < route.load_rps * (1 - ROUNDING):
                continue
            rows = np.flatnonzero(table.server == route.large)
            off = {int(table.accelerator[c]): c for c in rows[self.undivided[rows]]}
            for c in rows[~self.undivided[rows]]:
                other = off.get(int(table.accelerator[c]))
                if found[c] and other is not None:
                    found[other], found[c] = found[other] + found[c], 0
        return found

    def served(self, table: CandidateTable, replicas: IntArray, has: BoolArray) -> BoolArray:
        """Return which servers are served: the large one of a route if its requests can be divided.

        Args:
            table: the candidates.
            replicas: the solution, shape (C,).
            has: whether servers have replicas, shape (S,).

        Returns:
            Shape (S,).
        """
        found = has.copy()
        for route, division in self.divisions(table, replicas):
            found[route.large] = division is not None
        return found


def with_undivided(candidates: Candidates, table: CandidateTable) -> tuple[CandidateTable, BoolArray]:
    """Return a table with candidates for routers that are off, and a mask of these, shape (C,)."""
    if candidates.undivided is None:
        return table, np.zeros(len(table), np.bool_)
    tables = [table, candidates.undivided]
    return CandidateTable.joined(tables), CandidateTable.joined_order(tables) >= len(table)


def divisions_of(
    routes: Sequence[RouteArrays], undivided: BoolArray, table: CandidateTable, replicas: IntArray
) -> Iterator[tuple[RouteArrays, Division | None]]:
    """Yield the division of some routes between the replicas of a solution.

    Args:
        routes: the routes.
        undivided: whether a candidate is for a router that is off, shape (C,).
        table: the candidates.
        replicas: the solution, shape (C,).
    """
    rate = replicas * table.max_rate_rps
    for route in routes:
        large = table.server == route.large
        yield (
            route,
            route.division(
                float(rate[table.server == route.small].sum()),
                float(rate[large & ~undivided].sum()),
                float(rate[large & undivided].sum()),
            ),
        )


@dataclass(frozen=True, slots=True)
class RouteVariables:
    """Variables of routes in a model.

    For each route: whether its router is in use, whether its large server is empty, and the shares. Then for
    each column of a server that has one accelerator whether it is that one.
    """

    first: int
    """Index of the first variable."""
    routes: tuple[RouteArrays, ...]
    undivided: BoolArray
    """Whether a candidate is for a router that is off, shape (C,)."""
    one_of: IntArray
    """Columns that exclude the others of their server, shape (Z,)."""

    @property
    def upper(self) -> FloatArray:
        """Upper bounds of the variables."""
        parts = [np.concatenate([np.ones(2), route.upper]) for route in self.routes]
        return np.concatenate([*parts, np.ones(len(self.one_of))])

    @property
    def continuous(self) -> IntArray:
        """Places of the shares among the variables."""
        shares = [place - self.first + 2 + np.arange(len(route.upper)) for route, place in self.placed]
        return np.concatenate([np.zeros(0, np.int64), *shares])

    @property
    def placed(self) -> list[tuple[RouteArrays, int]]:
        """Routes with the index of their first variable."""
        sizes = [2 + len(route.rate_rps) for route in self.routes]
        return list(zip(self.routes, self.first + np.cumsum([0, *sizes])[:-1], strict=True))

    def changes(self, changed: FloatArray, columns: int, servers: IntArray) -> FloatArray:
        """Return the objective of changes, in which a large server without replicas need not be unserved.

        Args:
            changed: the objective, by variable.
            columns: number of columns; the variables u of servers follow them.
            servers: the servers with a column.
        """
        found = changed.copy()
        for route, place in self.placed:
            unserved = columns + int(np.searchsorted(servers, route.large))
            found[place + 1], found[unserved] = changed[unserved], 0.0
        return found

    def point(self, table: CandidateTable, replicas: IntArray, columns: IntArray) -> FloatArray:
        """Return the values of the variables in a solution, shape (C,), of a model with these columns."""
        values: list[float] = []
        for route, division in divisions_of(self.routes, self.undivided, table, replicas):
            shares = [0.0] * len(route.rate_rps) if division is None else list(division.shares)
            empty = not replicas[table.server == route.large].any()
            values += [float(division is not None and division.routed), float(empty), *shares]
        return np.concatenate([values, replicas[columns[self.one_of]] > 0]).astype(np.float64)
