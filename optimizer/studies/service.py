"""Service of a plan by priority, on which all statements about more or less service are based."""

from dataclasses import replace
from typing import Any

from pydantic import Field

from optimizer.arrays import grouped
from optimizer.candidates.arrays import server_loads_rps
from optimizer.documents import Document
from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


class PriorityService(Document):
    """Service of the servers of one priority."""

    priority: int
    """The priority."""
    servers: int
    """Number of servers."""
    served_in_full: int = Field(alias="servedInFull")
    """Number of servers served in full, including idle ones."""
    load_rpm: float = Field(alias="load")
    """Total load of the servers [requests/min]."""
    served_rpm: float = Field(alias="served")
    """Load of the servers that the plan serves [requests/min]."""

    @property
    def share(self) -> float | None:
        """Served fraction of the load; None without load."""
        return self.served_rpm / self.load_rpm if self.load_rpm else None


def lacking_fields(plan: Plan) -> dict[str, Any]:
    """Return the document fields about servers that require a reserve, and those that lack it."""
    return {"reserves": len(plan.requires_reserve), "lacks_reserve": plan.lacks_reserve}


def service_by_priority(plan: Plan, system: System) -> tuple[PriorityService, ...]:
    """Return the service of each priority in a plan, the highest first.

    The requests of a route count once, at its large server.
    """
    fractions = {item.server: item.served_fraction for item in plan.unserved}
    names = grouped((stream.priority, stream.name) for stream in system.streams.values())
    loads = server_loads_rps(replace(system, servers={n: s.server for n, s in system.streams.items()}))
    load_rpm = dict(zip(system.streams, (loads * SECONDS_PER_MINUTE).tolist(), strict=True)) | {
        route.small: 0.0 for route in system.routed.values()
    }
    return tuple(
        PriorityService(
            priority=priority,
            servers=len(mine),
            served_in_full=sum(name not in fractions for name in mine),
            load_rpm=sum(load_rpm[name] for name in mine),
            served_rpm=sum(load_rpm[name] * fractions.get(name, 1.0) for name in mine),
        )
        for priority, mine in sorted(names.items())
    )
