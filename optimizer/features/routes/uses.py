"""What a plan states of routes."""

from pydantic import Field

from optimizer.documents import MIN_RATE, Document


def traffic_rpm(rate_rpm: float, *, idle: bool) -> float:
    """Return a rate of a routed server [requests/min]; idle replicas get the smallest rate that counts.

    Idle replicas thereby keep the batch limit of the requests for which they were sized.
    """
    return rate_rpm if idle else max(rate_rpm, MIN_RATE)


class RoutedKind(Document):
    """Requests of one kind in a route."""

    name: str
    """Name of the kind; `kind 1` and so on if it has none."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load [requests/min]."""
    small_share: float = Field(alias="toSmall")
    """Share of its requests sent to the small model."""
    least_share: float = Field(alias="least")
    """Minimum share that the router can send there, given its errors."""
    most_share: float = Field(alias="most")
    """Maximum share that the router can send there."""
    quality_lost: float = Field(alias="qualityLost")
    """Share of the route's answers that are worse because the small model produced them."""


class RouteUse(Document):
    """Division of the requests of a route, with its cost and quality loss."""

    small: str
    """Name of the server of the small model."""
    large: str
    """Name of the server of the large model."""
    served: bool
    """Whether the route is served; routes are served in full or not at all. If not, the large server is
    unserved.
    """
    routed: bool
    """Whether the router is in use; otherwise all requests go to the large model."""
    kinds: tuple[RoutedKind, ...] = Field(strict=False)
    """Kinds of requests."""
    arrival_rate_rpm: float = Field(alias="arrivalRate")
    """Load of the route [requests/min]."""
    small_rpm: float = Field(alias="smallRate")
    """Load of the small server [requests/min]."""
    large_rpm: float = Field(alias="largeRate")
    """Load of the large server, including rerun requests [requests/min]."""
    rerun_rpm: float = Field(alias="rerunRate")
    """Requests that run on both models because of router errors [requests/min]."""
    small_token_share: float = Field(alias="smallTokens")
    """Share of all tokens that belong to requests at the small model."""
    quality_lost: float = Field(alias="qualityLost")
    """Share of answers that are worse because the small model produced them."""
    max_loss: float = Field(alias="maxLoss")
    """Maximum allowed share of worse answers."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost of the pools of both servers [cents/h]."""
    all_large_cents_per_h: float | None = Field(None, alias="costAllLarge")
    """Cost of serving all requests on one accelerator of the large model, ignoring limits [cents/h]; null if
    no accelerator meets its targets.
    """
    saving: float | None = None
    """Share of that cost saved by the plan; null if the route is not served."""

    @property
    def state(self) -> str:
        """Return as text whether the router is in use."""
        return ("in use" if self.routed else "off") if self.served else "not served"

    @property
    def loads_rpm(self) -> dict[str, float]:
        """Return the loads of both servers; for an unserved route, all of it is the large server's."""
        return {
            self.small: self.small_rpm,
            self.large: self.large_rpm if self.served else self.arrival_rate_rpm,
        }
