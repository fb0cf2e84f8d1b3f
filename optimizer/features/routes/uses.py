"""The part of a plan about routes."""

from pydantic import Field

from optimizer.documents import MIN_RATE, OutputDocument


def traffic_rpm(rate_rpm: float, *, has_replicas: bool) -> float:
    """Return the rate of a server of a route [requests/min]; with replicas at least the smallest valid rate.

    So replicas without requests keep the batch limit of the requests for which they were sized.
    """
    return max(rate_rpm, MIN_RATE) if has_replicas else rate_rpm


class RoutedKind(OutputDocument):
    """One kind of requests of a route, and their division in the plan."""

    name: str
    """Name of the kind; `kind 1` and so on if it has none."""
    arrival_rate_rpm: float
    """Arrival rate of the kind [requests/min]."""
    small_share: float
    """Share of the kind's requests that is sent to the small model."""
    least_share: float
    """Minimum share that the router can send to the small model, given its errors."""
    most_share: float
    """Maximum share that the router can send to the small model, given its errors."""
    quality_lost: float
    """Share of the route's answers that are worse because the small model gave them to this kind."""


class RouteUse(OutputDocument):
    """Division of the requests of a route, with its cost and quality loss."""

    small: str
    """Name of the server with the small model."""
    large: str
    """Name of the server with the large model."""
    served: bool
    """Whether the route is served; routes are served in full or not at all. If not, the plan lists the large
    server as unserved.
    """
    routed: bool
    """Whether the router is in use; otherwise all requests go to the large model."""
    kinds: tuple[RoutedKind, ...] = Field(strict=False)
    """Kinds of requests of the route."""
    arrival_rate_rpm: float
    """Arrival rate of the route [requests/min]."""
    small_rpm: float
    """Load of the small server [requests/min]."""
    large_rpm: float
    """Load of the large server [requests/min], including requests that the small one answered before."""
    rerun_rpm: float
    """Requests that run on both models because of router errors [requests/min]."""
    small_token_share: float
    """Share of all tokens that belong to requests at the small model."""
    quality_lost: float
    """Share of the route's answers that are worse because the small model gave them."""
    max_loss: float
    """Limit on `qualityLost` (`maxLoss` of the route)."""
    cost_cents_per_h: float
    """Cost of the pools of both servers [cents/h]."""
    all_large_cents_per_h: float | None = None
    """Minimum cost of serving all requests with the large model on one accelerator [cents/h], ignoring limits
    on cards; null if no accelerator meets the targets.
    """
    saving: float | None = None
    """Share of `costAllLarge` that the plan saves; null if the route is not served."""

    @property
    def state(self) -> str:
        """Return a text that states whether the router is in use."""
        return ("in use" if self.routed else "off") if self.served else "not served"

    @property
    def loads_rpm(self) -> dict[str, float]:
        """Return the loads of both servers by name [requests/min]; an unserved route loads the large one."""
        return {
            self.small: self.small_rpm,
            self.large: self.large_rpm if self.served else self.arrival_rate_rpm,
        }
