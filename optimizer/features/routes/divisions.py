"""Divides the requests of a route between the replicas of its small and its large server.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.features.routes.streams import NEGLIGIBLE_SHARE, flows_of
from optimizer.milp.model import COVER_SCALE, MilpModel
from optimizer.schema import Route
from optimizer.tolerances import COVER
from optimizer.units import SECONDS_PER_MINUTE

SNAP = 5e-9
"""Distance of a share from a bound of its range that counts as rounding."""
COMFORTABLE = 0.9
"""Utilisation (load over the maximum rate within targets) up to which quality has precedence over spare
capacity.
"""
LARGEST_COEFFICIENT = 1e12
"""Maximum coefficient in a row for a tiny load, because solvers reject much larger ones."""
LP_LIMIT_S = 60.0
"""Time limit of the linear program that finds a division [s]."""


@dataclass(frozen=True, slots=True)
class Division:
    """Division of a route's requests between its small and its large model."""

    routed: bool
    """Whether the router is in use; otherwise all requests go to the large model."""
    shares: tuple[float, ...]
    """Share of each kind of requests that is sent to the small model."""


@dataclass(frozen=True, slots=True)
class RouteFlows:
    """A route with load: the flows of all its kinds of requests (`KindFlow`) as arrays, shape (D,)."""

    name: str
    small: int
    """Index of the small server."""
    large: int
    rate_rps: FloatArray
    lower: FloatArray
    upper: FloatArray
    quality: FloatArray
    """Increase of the fraction of worse answers per unit of the share sent to the small model."""
    large_base: FloatArray
    large_slope: FloatArray
    """Change of the requests at the large model, per request of the kind, per unit of the share at the small
    model.
    """
    max_loss: float
    known: dict[tuple[float, float], Division | None] = field(default_factory=dict)
    """Cache of divisions by the maximum rates of the servers."""

    @classmethod
    def of(cls, route: Route, names: tuple[str, ...]) -> "RouteFlows":
        """Convert a route to arrays; `names` are those of all servers."""
        flows = flows_of(route)
        return cls(
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

    @property
    def load_rps(self) -> float:
        """Arrival rate of all kinds of requests together [requests/s]."""
        return float(self.rate_rps.sum())

    @property
    def loss_scale(self) -> float:
        """Factor that scales the quality-loss constraint so that its largest coefficient is 1000."""
        return COVER_SCALE / float(self.quality.max()) if self.quality.any() else 0.0

    def division(self, small_rps: float, large_rps: float) -> Division | None:
        """Return the best division between servers with given maximum rates [requests/s]; None if none fits.

        It has the least quality loss with which no server exceeds the utilisation `COMFORTABLE`, or else the
        least utilisation of the busier server. The large model takes all requests if that is as good (eq.
        227).
        """
        key = small_rps, large_rps
        if key not in self.known:
            self.known[key] = self._divide(*key)
        return self.known[key]

    def most_rps(self, small_rps: float, large_rps: float) -> float:
        """Return the maximum rate of the route if its servers have the given maximum rates [requests/s].

        The loads of both servers are proportional to the route's rate, so the maximum is the load divided by
        the minimum utilisation of the busier server.
        """
        both = np.array([small_rps, large_rps])
        result = self._minimised(both, _Bounds(np.inf, self.max_loss), on_loss=False)
        return large_rps if result is None else max(large_rps, self.load_rps / result.utilisation)

    def _divide(self, small_rps: float, large_rps: float) -> Division | None:
        alone = self.load_rps / large_rps if large_rps else np.inf
        router_off = Division(routed=False, shares=(0.0,) * len(self.rate_rps))
        if alone <= COMFORTABLE:
            return router_off
        both = np.array([small_rps, large_rps])
        # With spare capacity: the least quality loss, then the least utilisation without more loss.
        first = self._minimised(both, _Bounds(COMFORTABLE, self.max_loss), on_loss=True)
        if first is not None:
            second = self._minimised(both, _Bounds(COMFORTABLE, first.lost), on_loss=False)
            return (second or first).division
        # Otherwise: the least utilisation, then the least quality loss at that utilisation. The router is not
        # used if the large server alone has the same utilisation.
        first = self._minimised(both, _Bounds(1.0, self.max_loss), on_loss=False)
        if alone <= 1 + 2 * COVER and (first is None or alone <= first.utilisation * (1 + NEGLIGIBLE_SHARE)):
            return router_off
        if first is None:
            return None
        second = self._minimised(both, _Bounds(first.utilisation, self.max_loss), on_loss=True)
        return (second or first).division

    def _minimised(self, capacity_rps: FloatArray, most: "_Bounds", *, on_loss: bool) -> "_Shares | None":
        """Return the shares with the least quality loss, or with the least utilisation of the busier server.

        Args:
            capacity_rps: maximum rates of the small and the large server [requests/s].
            most: upper bounds of quality loss and utilisation.
            on_loss: whether quality loss is minimised, not utilisation.
        """
        from optimizer.milp.highs import HighsSession

        upper = self.upper if capacity_rps[0] else np.zeros(len(self.upper))
        if (self.lower > upper).any():
            return None
        # Variables: the small server's share of each kind of request, and the utilisation u of the busier
        # server. Rows: the load of each server is at most u times its maximum rate, and the loss is limited.
        n, scale = len(self.rate_rps) + 1, COVER_SCALE / self.load_rps
        loads = np.array([self.rate_rps, self.rate_rps * self.large_slope]) * scale
        base = np.array([0.0, float(self.rate_rps @ self.large_base)]) * scale
        lost = np.append(self.quality * (self.loss_scale or 1.0), 0.0)
        capacity = np.minimum(capacity_rps * scale, LARGEST_COEFFICIENT)
        matrix = np.vstack([np.column_stack([loads, -capacity]), lost])
        model = MilpModel(
            lower=np.append(self.lower, 0.0),
            upper=np.append(upper, most.utilisation + 2 * COVER),
            integer=np.zeros(n, np.bool_),
            row_start=np.arange(4) * n,
            row_index=np.tile(np.arange(n), 3),
            row_value=matrix.ravel(),
            row_lower=np.full(3, -np.inf),
            row_upper=np.append(
                2 * COVER * COVER_SCALE - base, (most.lost + 2 * COVER) * (self.loss_scale or 1.0)
            ),
        )
        objective = lost if on_loss else np.append(np.zeros(n - 1), COVER_SCALE)
        x = HighsSession(model).relax(objective, LP_LIMIT_S).x
        if x is None:
            return None
        # The solver is exact only up to its tolerance, so shares close to a bound are set to it.
        shares = np.clip(x[:-1], self.lower, upper)
        for bound in (self.lower, upper):
            shares = np.where(np.abs(shares - bound) <= SNAP, bound, shares)
        return _Shares(shares, float(self.quality @ shares), float(x[-1]))


class _Bounds(NamedTuple):
    """Upper bounds on the quality loss and the utilisation of a division."""

    utilisation: float
    lost: float


class _Shares(NamedTuple):
    """Shares that the small model gets, with the quality loss and the utilisation of the busier server."""

    shares: FloatArray
    lost: float
    utilisation: float

    @property
    def division(self) -> Division:
        return Division(routed=True, shares=tuple(self.shares.tolist()))
