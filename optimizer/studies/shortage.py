"""Load that a plan does not serve, and the cards with which everything would be served."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.candidates import SizingMemo
from optimizer.errors import SpecError
from optimizer.pipeline import solve
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System
from optimizer.studies.service import service_by_priority
from optimizer.units import SECONDS_PER_MINUTE

LIMIT_S = 10.0
"""Time limit of the plan without limits on cards [s]."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Unserved load of a plan. Servers and requests are counted separately."""

    servers: int
    """Number of servers that are not served in full."""
    of_servers: int
    """Number of servers of the input."""
    unserved_rps: float
    """Load that is not served [requests/s]."""
    load_rps: float
    """Load of all servers [requests/s]."""
    way_out: "WayOut | None" = None
    """Cards that would serve everything; None if unknown, or if the plan has no limits on cards."""


@dataclass(frozen=True, slots=True)
class WayOut:
    """The cheapest plan with any number of cards, compared with the cards that exist."""

    added: Mapping[str, int]
    """Number of missing cards by accelerator type."""
    cost_cents_per_h: float
    """Total cost of that plan [cents/h]."""
    beyond: tuple[str, ...] = ()
    """Servers that no number of cards serves in full."""


def find_shortage(
    system: System, plan: Plan, *, limit_s: float = LIMIT_S, memo: SizingMemo | None = None
) -> Shortage | None:
    """Return the unserved load of a plan; None if every server is served in full.

    Args:
        system: the system that the plan serves.
        plan: the plan.
        limit_s: time limit of the plan with any number of cards [s].
        memo: cache of sizings.

    Raises:
        SolverError: the solver failed, or a plan does not pass verification.
    """
    if plan.complete:
        return None
    return shortage_of(system, plan, _find_way_out(system, plan, limit_s, memo))


def shortage_of(system: System, plan: Plan, way: WayOut | None = None) -> Shortage:
    """Return the unserved load of a plan.

    Args:
        system: the system that the plan serves.
        plan: the plan.
        way: cards that would serve everything, if they are known.
    """
    service = service_by_priority(plan, system)
    load_rpm = sum(item.load_rpm for item in service)
    return Shortage(
        servers=len(plan.short_servers),
        of_servers=len(plan.documented),
        unserved_rps=(load_rpm - sum(item.served_rpm for item in service)) / SECONDS_PER_MINUTE,
        load_rps=load_rpm / SECONDS_PER_MINUTE,
        way_out=way,
    )


def _find_way_out(system: System, plan: Plan, limit_s: float, memo: SizingMemo | None) -> WayOut | None:
    """Return the cards that the cheapest plan without limits needs beyond those that exist."""
    if system.options.unlimited:
        return None
    try:
        free = system.with_options(unlimited=True)
    except SpecError:  # another option needs limits
        return None
    deadline = Deadline.after(min(limit_s, system.options.time_limit_s))
    other = solve(free.with_rate_factors(plan.factor_of_pair), deadline=deadline, memo=memo)
    return None if other.status == "feasible" else way_out(plan, other)


def way_out(plan: Plan, free: Plan) -> WayOut:
    """Return the cards that a plan without limits on cards needs beyond those that exist.

    Args:
        plan: the plan with limits.
        free: the plan without limits.
    """
    limits = {use.type: use.limit for use in plan.capacity}
    added = {
        use.type: use.used - limit
        for use in free.capacity
        if (limit := limits.get(use.type)) is not None and use.used > limit
    }
    return WayOut(added, free.total_cost_cents_per_h, tuple(sorted(free.short_servers)))
