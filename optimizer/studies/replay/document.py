"""A replay of loads as a document."""

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.stabilisation.rules import Rules


class ReplayedServer(Document):
    """Outcome of one server."""

    server: str
    """The server."""
    offered: float
    """Requests that came; to a server of a route those that the router sends it, with what runs again."""
    missed: float
    """Requests beyond what the ready replicas take within their targets."""
    cost: float
    """Cost of its replicas over the time, those that start included [hundredths of the currency]."""
    changes: int
    """Number of changes of the replicas desired on an accelerator."""
    switches: int
    """Number of moves to another accelerator."""
    held: int
    """Times at which a number was held that the plan would have changed."""
    most_replicas: int = Field(alias="mostReplicas")
    """Most replicas that were desired at once."""


class ReplayedRoute(Document):
    """Outcome of the requests of one route."""

    route: str
    """The route."""
    offered: float
    """Requests that came."""
    rerun: float
    """Those of them that the router sends to both models."""
    missed: float
    """Those of them that a server of the route misses; one that both would miss counts once."""
    quality_lost: float = Field(alias="qualityLost")
    """Mean share of answers that are worse because the small model gave them."""


class ReplayStep(Document):
    """The fleet from one time to the next."""

    time_s: float = Field(alias="time")
    """Start of the interval [s]."""
    load_rpm: float = Field(alias="load")
    """Load that came in it [requests/min]."""
    capacity_rpm: float = Field(alias="capacity")
    """Mean load that the ready replicas take within their targets [requests/min]."""
    planned: int
    """Replicas that the plan at its beginning recommends."""
    desired: int
    """Desired replicas."""
    ready: int
    """Replicas that are ready at its end."""
    cost_per_h: float = Field(alias="costPerHour")
    """Cost of the replicas that are there [hundredths of the currency/h]."""


class ReplayPolicy(Document):
    """One way to follow the plans."""

    name: str
    """Name of the policy."""
    rules: Rules | None = None
    """The rules; none: there was one plan, for the mean load."""
    cost: float
    """Cost over the time [hundredths of the currency]."""
    offered: float
    """Requests that came."""
    missed: float
    """Requests beyond what the ready replicas take within their targets."""
    changes: int
    """Number of changes of the replicas desired of a server on an accelerator."""
    changes_per_h: float = Field(alias="changesPerHour")
    """Changes per hour."""
    switches: int
    """Number of moves of a server to another accelerator."""
    servers: tuple[ReplayedServer, ...] = Field(strict=False)
    """Every server."""
    routes: tuple[ReplayedRoute, ...] = Field((), strict=False, exclude_if=lambda routes: not routes)
    """Every route; absent if there are none."""
    points: tuple[ReplayStep, ...] = Field(strict=False)
    """The fleet over the time."""


class Replay(Document):
    """Loads over time, followed in several ways."""

    hours: float
    """Duration [h]."""
    steps: int
    """Intervals between the times of the loads; a plan is made at the beginning of each."""
    startup_s: float = Field(alias="startup")
    """Time that a replica takes to start [s]."""
    currency: str | None = Field(None, exclude_if=is_none)
    """The currency that the system's prices name; absent where none is named."""
    variants: tuple[ReplayPolicy, ...] = Field(strict=False)
    """Every plan followed; the rules; one plan for the mean load."""
