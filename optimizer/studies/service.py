"""Service of a plan by priority, on which all statements about more or less service are based."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from optimizer.arrays import grouped
from optimizer.candidates.arrays import server_loads_rps
from optimizer.documents import OutputDocument
from optimizer.plan import Plan
from optimizer.plan.table import PlanLoad, PlanTable
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


class PriorityService(OutputDocument):
    """Service of the servers of one priority."""

    priority: int
    """The priority."""
    servers: int
    """Number of servers."""
    served_in_full: int
    """Number of servers served in full, including idle ones."""
    load_rpm: float
    """Total load of the servers [requests/min]."""
    served_rpm: float
    """Load of the servers that the plan serves [requests/min]."""

    @property
    def share(self) -> float | None:
        """Served fraction of the load; None without load."""
        return self.served_rpm / self.load_rpm if self.load_rpm else None


def lacking_fields(plan: Plan) -> dict[str, Any]:
    """Return the document fields about servers that require a reserve, and those that lack it."""
    return {"reserves": len(plan.requires_reserve), "lacks_reserve": plan.lacks_reserve}


def stream_loads_rpm(system: System) -> dict[str, float]:
    """Return the load of each stream of a system in planned form [requests/min], by name."""
    rates_rps = server_loads_rps(replace(system, servers={n: s.server for n, s in system.streams.items()}))
    return dict(zip(system.streams, (rates_rps * SECONDS_PER_MINUTE).tolist(), strict=True))


def _documented(plan: Plan, loads: Sequence[PlanLoad]) -> set[str]:
    """Return the names of the document's servers to which loads of a plan belong."""
    return {plan.server_of.get(load.name, load.name) for load in loads}


def service_by_priority(plan: Plan, system: System) -> tuple[PriorityService, ...]:
    """Return the service of each priority in a plan, the highest first.

    The requests of a route count once, at its large server.
    """
    system = plan.planned_in(system)
    load_rpm = stream_loads_rpm(system) | {route.small: 0.0 for route in system.routed.values()}
    of_priority = grouped((load.priority or 0, load) for load in PlanTable.of(plan, system).servers)
    return tuple(
        PriorityService(
            priority=priority,
            servers=len(servers := _documented(plan, loads)),
            served_in_full=len(servers - plan.short_servers),
            load_rpm=sum(load_rpm[load.name] for load in loads),
            served_rpm=sum(load_rpm[load.name] * load.served_share for load in loads),
        )
        for priority, loads in sorted(of_priority.items())
    )
