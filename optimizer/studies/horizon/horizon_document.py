"""Documents of a horizon study: its hours, policies and reservations."""

from operator import not_
from typing import Annotated

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.features.hourly import HourFeatureFields
from optimizer.plan import Placement
from optimizer.plan.document import Warned
from optimizer.printed import Printed


class Reservation(OutputDocument):
    """Accelerators of one name that are reserved for the entire time."""

    accelerator: str
    """Name of the accelerator."""
    cost_cents_per_h: float
    """Price of one reserved accelerator [cents/h]."""
    offered: int
    """Maximum number of accelerators that can be reserved."""
    reserved: int
    """Number of accelerators to reserve."""
    cards: int
    """Number of cards per accelerator."""
    used_share: float
    """Fraction of the reserved accelerator-hours that are used."""


class HourlyUse(OutputDocument):
    """Accelerators of one name that are used in one interval."""

    accelerator: str
    """Name of the accelerator."""
    reserved: int
    """Number of reserved accelerators in use."""
    rented: int
    """Number of rented accelerators in use, on demand or spot."""
    cards: int
    """Number of cards per accelerator."""


class HourPlacements(OutputDocument):
    """Loads, costs and pools of one interval of the trace."""

    time_s: float
    """Start of the interval [s]."""
    hours: float
    """Length of the interval [h]."""
    load_rpm: float
    """Total load of all servers and routes [requests/min]."""
    served_rpm: float
    """Total load that the plan serves [requests/min]."""
    cost_cents_per_h: float
    """Cost including all reservations, used or not [cents/h]."""
    started: int
    """Number of replicas that start at the beginning of the interval."""
    use: tuple[HourlyUse, ...] = Field(strict=False)
    """Accelerators in use, by name."""
    reserves: int = Field(0, exclude_if=not_)
    """Number of servers that require a reserve, such as spare replicas; absent if none does."""
    lacks_reserve: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers that lack the reserve they require; absent if there are none."""
    servers: dict[str, Annotated[tuple[Placement, ...], Field(strict=False)]] = Field(strict=False)
    """Pools of each server."""


class HourPlan(HourFeatureFields, HourPlacements):
    """The plan of one interval of the trace."""


class Policy(OutputDocument):
    """A policy for serving all hours, with its cost and service."""

    name: str
    """Name of the policy."""
    total_cost: float
    """Total cost of all hours [hundredths of the currency]."""
    transition_cost: float
    """Penalty for moving servers between hours [hundredths of the currency]."""
    unit_hours: float
    """Number of card-hours in use."""
    unserved: float
    """Total number of unserved requests."""
    transitions: int
    """Number of servers that move to another accelerator between two hours."""
    startups: int
    """Number of replicas that start after the first hour."""
    lack_reserve: tuple[str, ...] | None = Field(None, exclude_if=is_none, strict=False)
    """Servers that lack the reserve they require in at least one hour; absent if no server requires one."""


class Horizon(Printed, Warned):
    """Result of a horizon study: reservations, and the plan of each interval."""

    hours: float
    """Length of the load trace [h]."""
    intervals: int
    """Number of intervals in the load trace."""
    reservations: tuple[Reservation, ...] = Field(strict=False)
    """Offers of reserved accelerators, with the number to reserve."""
    bound: float | None = Field(None, alias="boundCents")
    """Lower bound of the cost [hundredths of the currency]: the optimum of each hour at the lowest prices;
    null if an hour has no bound.
    """
    gap: float | None = None
    """Relative gap between the cost, including transitions, and the bound."""
    policies: tuple[Policy, ...] = Field(strict=False)
    """The plan, and simple policies for comparison."""
    plans: tuple[HourPlan, ...] = Field(strict=False)
    """Plan of each interval."""
    currency: str | None = Field(None, exclude_if=is_none)
    """Currency of the system's prices; absent if prices state none."""

    @property
    def requires_reserve(self) -> bool:
        """Whether any server requires a reserve."""
        return any(hour.reserves for hour in self.plans)
