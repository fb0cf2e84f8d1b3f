"""Result of a replay of loads, as a document."""

from collections.abc import Sequence
from operator import not_
from typing import Any

from pydantic import Field

from optimizer.documents import OutputDocument, is_none
from optimizer.plan.document import Warned
from optimizer.stabilisation.rules import Rules


class ReplayedServer(OutputDocument):
    """Outcome of one server under a policy."""

    server: str
    """Name of the server."""
    offered: float
    """Number of requests offered; for a server of a route, those sent by the router, including reruns."""
    missed: float
    """Number of requests beyond the rate that the ready replicas serve within their targets."""
    cost: float
    """Cost of its replicas over the entire time, including starting ones [hundredths of the currency]."""
    changes: int
    """Number of changes of the server's desired replicas on an accelerator."""
    switches: int
    """Number of moves of the server to another accelerator."""
    held: int
    """Number of times at which a rule held replicas that the plan would have changed."""
    most_replicas: int
    """Maximum number of replicas of the server that were desired at once."""
    without_reserve_h: float | None = Field(None, exclude_if=is_none)
    """Time in which the plan gives the server less than the reserve it requires [h]; absent if no plan
    requires one.
    """


class ReplayedRoute(OutputDocument):
    """Outcome of one route under a policy."""

    route: str
    """Name of the route."""
    offered: float
    """Number of requests offered to the route."""
    rerun: float
    """Number of requests that the router sends to both models."""
    missed: float
    """Number of requests missed by a server of the route; requests missed by both count once."""
    quality_lost: float
    """Mean fraction of responses that are worse because the small model produced them."""


class ReplayStep(OutputDocument):
    """State of the fleet between two times of the trace."""

    time_s: float
    """Start of the interval [s]."""
    load_rpm: float
    """Load offered in the interval [requests/min]."""
    capacity_rpm: float
    """Mean load that the ready replicas can serve within their targets [requests/min]."""
    planned: int
    """Number of replicas that the plan recommends at the start of the interval."""
    desired: int
    """Number of desired replicas in the interval."""
    ready: int
    """Number of ready replicas at the end of the interval."""
    cost_per_h: float
    """Cost of the existing replicas [hundredths of the currency/h]."""
    lacks_reserve: int = Field(0, exclude_if=not_)
    """Number of servers to which the plan does not give the reserve they require; absent if there are none.
    """


class ReplayPolicy(OutputDocument):
    """A policy for following the plans, with its outcome."""

    name: str
    """Name of the policy."""
    rules: Rules | None = None
    """Stabilisation rules; null for a single plan for the mean load."""
    cost: float
    """Cost of all replicas over the entire time [hundredths of the currency]."""
    offered: float
    """Number of requests offered."""
    missed: float
    """Number of requests beyond the rate that the ready replicas serve within their targets."""
    changes: int
    """Number of changes of a server's desired replicas on an accelerator."""
    changes_per_h: float
    """Number of changes of desired replicas per hour."""
    switches: int
    """Number of moves of a server to another accelerator."""
    servers: tuple[ReplayedServer, ...] = Field(strict=False)
    """Outcome of every server."""
    lack_reserve: tuple[str, ...] | None = Field(None, exclude_if=is_none, strict=False)
    """Servers to which a plan does not give the reserve they require at some time; absent if no plan requires
    one.
    """
    routes: tuple[ReplayedRoute, ...] = Field((), strict=False, exclude_if=not_)
    """Outcome of every route; absent if there are none."""
    points: tuple[ReplayStep, ...] = Field(strict=False)
    """State of the fleet in each interval."""

    @classmethod
    def of_servers(cls, servers: Sequence[ReplayedServer], hours: float, **others: Any) -> "ReplayPolicy":
        """Return a policy with the totals of its servers over some hours, and other fields."""
        total = {
            name: sum(getattr(item, name) for item in servers)
            for name in ("cost", "offered", "missed", "changes", "switches")
        }
        given: dict[str, Any] = {
            "servers": tuple(servers),
            "changes_per_h": total["changes"] / hours,
            **total,
            **others,
        }
        return cls(**given)


class HeadroomOutcome(OutputDocument):
    """Outcome of the control loop with a headroom."""

    headroom: float
    """Headroom of every server, as a share of its load."""
    replica_hours_per_day: float
    """Replica-hours per day, including starting replicas."""
    late: float
    """Share of requests that arrive beyond the rate within targets, or while a long queue exists."""
    changes: int
    """Number of changes of desired replicas."""


class Replay(Warned):
    """Result of a replay: a load trace, followed by several policies."""

    hours: float
    """Duration of the trace [h]."""
    steps: int
    """Number of intervals between the times of the loads; a plan is made at the start of each."""
    startup_s: float
    """Start-up time of a replica [s]."""
    currency: str | None = Field(None, exclude_if=is_none)
    """Currency of the system's prices; absent if prices state none."""
    variants: tuple[ReplayPolicy, ...] = Field(strict=False)
    """Policies: every plan followed; plans followed with rules; with `loop`, the control loop and perfect
    foresight; one plan for the mean load.
    """
    headrooms: tuple[HeadroomOutcome, ...] = Field((), strict=False, exclude_if=not_)
    """Outcomes of the control loop by headroom; absent without `loop`."""
