"""A horizon as a document."""

from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, is_none
from optimizer.plan import Placement


class Reservation(Document):
    """Accelerators that are reserved for the whole time."""

    accelerator: str
    """The accelerator."""
    cost_cents_per_h: float = Field(alias="cost")
    """Price of each [cents/h]."""
    offered: int
    """Most that can be reserved."""
    reserved: int
    """Accelerators to reserve."""
    cards: int
    """Cards of each."""
    used_share: float = Field(alias="used")
    """Share of their time in which they are used."""


class HourlyUse(Document):
    """Accelerators of one name in one hour."""

    accelerator: str
    """The accelerator."""
    reserved: int
    """Reserved ones in use."""
    rented: int
    """Rented ones, on demand or spot."""
    cards: int
    """Cards of each."""


class HourlyRoute(Document):
    """Requests of a route in one hour."""

    small_rpm: float = Field(alias="small")
    """Requests at the small model [requests/min]."""
    large_rpm: float = Field(alias="large")
    """Requests at the large model, those that it answers again among them [requests/min]."""
    quality_lost: float = Field(alias="qualityLost")
    """Share of answers that are worse because the small model gave them."""
    shares: tuple[float, ...] = Field(strict=False)
    """Share of each kind of requests at the small model, in the order of the document."""


class HourPlan(Document):
    """The plan of one interval."""

    time_s: float = Field(alias="time")
    """Start [s]."""
    hours: float
    """Length [h]."""
    load_rpm: float = Field(alias="load")
    """Load of all servers and routes [requests/min]."""
    served_rpm: float = Field(alias="served")
    """Load that is served [requests/min]."""
    cost_cents_per_h: float = Field(alias="cost")
    """Cost with what is reserved, used or not [cents/h]."""
    started: int
    """Replicas that start at its beginning."""
    use: tuple[HourlyUse, ...] = Field(strict=False)
    """Accelerators in use."""
    servers: dict[str, Annotated[tuple[Placement, ...], Field(strict=False)]] = Field(strict=False)
    """Pools of each server."""
    shared_cards: dict[str, Placement] = Field({}, alias="sharedCards", exclude_if=lambda found: not found)
    """Cards that servers share, each with all its servers, by name; absent without any."""
    routes: dict[str, HourlyRoute] = Field({}, exclude_if=lambda found: not found)
    """How the requests of routes that are served are divided, by route; absent without any."""


class Policy(Document):
    """One way to serve all hours."""

    name: str
    """The policy."""
    total_cost: float = Field(alias="totalCost")
    """Cost of all hours [hundredths of the currency]."""
    transition_cost: float = Field(alias="transitionCost")
    """Price of moving servers between hours by the transition penalty [hundredths of the currency]."""
    unit_hours: float = Field(alias="unitHours")
    """Card-hours in use."""
    unserved: float
    """Requests that are not served."""
    transitions: int
    """Servers that come to another accelerator between two hours."""
    startups: int
    """Replicas that start after the first hour."""


class Horizon(Document):
    """Reservations and rentals."""

    hours: float
    """Length of the trace [h]."""
    intervals: int
    """Intervals of the trace."""
    reservations: tuple[Reservation, ...] = Field(strict=False)
    """Offers of reserved accelerators, with what to take of them."""
    bound: float | None = None
    """Lower bound of the cost [hundredths of the currency]: each hour's optimum at the lowest prices; none if
    an hour has none."""
    gap: float | None = None
    """Relative distance of the cost, transitions included, from the bound."""
    policies: tuple[Policy, ...] = Field(strict=False)
    """The plan, and simple policies beside it."""
    plans: tuple[HourPlan, ...] = Field(strict=False)
    """Plan of each interval."""
    currency: str | None = Field(None, exclude_if=is_none)
    """The currency that the system's prices name; absent where none is named."""
