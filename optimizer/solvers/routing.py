"""Routes as arrays, and the division of their requests between given replicas.

Takes the routes of a system, gives the rows that a model needs of them, and for replicas of both servers the
division that loses the least quality. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import MemberArrays
from optimizer.solvers.model import MilpModel, RelaxingSession
from optimizer.spec.routes import check_routed_options, flows_of
from optimizer.units import SECONDS_PER_MINUTE

COVER_SCALE = 1e3
"""Rows are in thousandths: the solver's absolute tolerance of 1e-6 is then 1e-9 of the load."""
SHORTFALL = 2e-9
"""Relative shortfall of rate that counts as rounding."""
LOSS_TOLERANCE = 1e-9
"""Lost quality above its limit that counts as rounding."""
LP_LIMIT_S = 60.0


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
    known: dict[tuple[float, float], Division | None] = field(default_factory=dict)
    """Divisions by capacities of the two servers."""

    @property
    def load_rps(self) -> float:
        """Arrival rate of all kinds."""
        return float(self.rate_rps.sum())

    @property
    def loss_scale(self) -> float:
        """Factor that turns the row of lost quality into thousandths of its largest coefficient."""
        return COVER_SCALE / float(self.quality.max()) if self.quality.any() else 0.0

    def division(self, small_rps: float, large_rps: float) -> Division | None:
        """Return the division between replicas with these maximum rates [requests/s]; None if there is none.

        The large model takes all requests if it can. Otherwise the division loses the least quality and,
        among equal ones, keeps the larger utilisation low (eq. 227).
        """
        key = small_rps, large_rps
        if key not in self.known:
            self.known[key] = self._divide(small_rps, large_rps)
        return self.known[key]

    def _divide(self, small_rps: float, large_rps: float) -> Division | None:
        if large_rps >= self.load_rps * (1 - SHORTFALL):
            return Division(routed=False, shares=(0.0,) * len(self.rate_rps))
        first = self._minimised(self._utilisation_rows(small_rps, large_rps), self.quality, 0.0)
        if first is None:
            return None
        lost = float(self.quality @ first)
        if lost > self.max_loss + LOSS_TOLERANCE:
            return None
        second = self._minimised(self._utilisation_rows(small_rps, large_rps), 0 * self.quality, 1.0, lost)
        shares = first if second is None else second
        return Division(routed=True, shares=tuple(np.clip(shares, self.lower, self.upper).tolist()))

    def _utilisation_rows(
        self, small_rps: float, large_rps: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return coefficients of shares, coefficients of the largest utilisation, and upper bounds."""
        total = self.load_rps
        small, large = self.rate_rps / total, self.rate_rps * self.large_slope / total
        base = float(self.rate_rps @ self.large_base) / total
        capacity = np.array([small_rps, large_rps]) / total
        return (
            np.array([small, large]) * COVER_SCALE,
            capacity * COVER_SCALE,
            np.array([0.0, -base * COVER_SCALE]),
        )

    def _minimised(
        self,
        rows: tuple[FloatArray, FloatArray, FloatArray],
        on_shares: FloatArray,
        on_utilisation: float,
        lost: float | None = None,
    ) -> FloatArray | None:
        """Return the shares that minimise an objective, at most the given loss of quality."""
        from optimizer.solvers.highs import HighsSession

        shares, capacity, upper = rows
        scale = self.loss_scale or 1.0
        matrix = np.vstack([np.column_stack([shares, -capacity]), np.append(self.quality * scale, 0.0)])
        most = np.inf if lost is None else lost * scale + 1e-6
        n = matrix.shape[1]
        model = MilpModel(
            lower=np.append(self.lower, 0.0),
            upper=np.append(self.upper, 1.0 + SHORTFALL),
            integer=np.zeros(n, np.bool_),
            row_start=np.arange(len(matrix) + 1) * n,
            row_index=np.tile(np.arange(n), len(matrix)),
            row_value=matrix.ravel(),
            row_lower=np.full(len(matrix), -np.inf),
            row_upper=np.append(upper + SHORTFALL * COVER_SCALE, most),
        )
        session: RelaxingSession = HighsSession(model)
        found = session.relax(np.append(on_shares * scale, on_utilisation * COVER_SCALE), LP_LIMIT_S)
        return None if found.x is None else found.x[:-1]


@dataclass(frozen=True, slots=True)
class Routing:
    """All routes of a problem that have load."""

    routes: tuple[RouteArrays, ...]
    servers: BoolArray
    """Whether a server is one of a route, shape (S,)."""

    @classmethod
    def of(cls, candidates: Candidates) -> "Routing | None":
        """Return the routes of a system; None if none has load.

        Raises:
            SpecError: the options of the system plan no routes.
        """
        system, names = candidates.system, candidates.arrays.server_names
        check_routed_options(system.routes, system.options)
        found, servers = [], np.zeros(len(names), np.bool_)
        for route in system.routes.values():
            flows = flows_of(route)
            if not route.arrival_rate_rpm:
                continue
            made = RouteArrays(
                name=route.name,
                small=names.index(route.small),
                large=names.index(route.large),
                rate_rps=np.array([flow.rate_rpm for flow in flows]) / SECONDS_PER_MINUTE,
                lower=np.array([flow.lower for flow in flows]),
                upper=np.array([flow.upper for flow in flows]),
                quality=np.array([flow.quality for flow in flows]),
                large_base=np.array([flow.large_base for flow in flows]),
                large_slope=np.array([flow.large_slope for flow in flows]),
                max_loss=route.max_loss,
            )
            servers[[made.small, made.large]] = True
            found.append(made)
        return cls(tuple(found), servers) if found else None

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
        rate = np.bincount(table.server, replicas * table.max_rate_rps, len(self.servers))
        for route in self.routes:
            yield route, route.division(float(rate[route.small]), float(rate[route.large]))

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


@dataclass(frozen=True, slots=True)
class RouteVariables:
    """Variables of routes in a model.

    For each route: whether its router is in use, whether its large server is empty, and the shares. Then for
    each column of a server that has one accelerator whether it is that one.
    """

    first: int
    """Index of the first variable."""
    routes: tuple[RouteArrays, ...]
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
        servers = int(table.server.max(initial=0)) + 1
        servers = max([servers, *(max(route.small, route.large) + 1 for route in self.routes)])
        rate = np.bincount(table.server, replicas * table.max_rate_rps, servers)
        count = np.bincount(table.server, replicas, servers)
        values: list[float] = []
        for route in self.routes:
            division = route.division(float(rate[route.small]), float(rate[route.large]))
            none = division is None or not division.routed
            shares = [0.0] * len(route.rate_rps) if division is None else list(division.shares)
            values += [float(not none), float(count[route.large] == 0), *shares]
        return np.concatenate([values, replicas[columns[self.one_of]] > 0]).astype(np.float64)
