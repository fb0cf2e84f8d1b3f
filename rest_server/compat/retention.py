"""Running servers that cannot be served keep what they run: the actuator stops whatever an answer omits.

A server that is no part of a system (a name in it refers to nothing) cannot be planned at all: the cards that
it runs on are taken, and the others are planned with the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from optimizer.plan import Plan
from optimizer.spec.schema import AllocationData
from optimizer.spec.system import System
from optimizer.stabilisation.cards import FreeCards
from optimizer.stabilisation.keeping import Planner, plan_keeping, share_out
from rest_server.fleet import Entities, scaled

LOWEST = 100
"""Priority of a server whose class is not known."""


@dataclass(frozen=True, slots=True)
class PlanWithRetained:
    """A fleet in two parts: servers that are planned, and running ones that keep what they can."""

    plan: Plan | None
    """The plan of those that are planned; None if there are none."""
    system: System | None
    """The system that it is for."""
    kept: Mapping[str, AllocationData]
    """Retained replicas of each running server that the plan does not serve; possibly none."""


def divide(fleet: Entities, plannable: Entities, planner: Planner) -> PlanWithRetained:
    """Plan what can be planned around the replicas of running servers that cannot be served.

    Args:
        fleet: all entities, with what every server runs.
        plannable: those of them that make a system.
        planner: solves; when its time is over, nothing is planned again.
    """
    fleet, names = replace(fleet, servers=fleet.planned), plannable.planned
    running = sorted(
        (name for name, item in fleet.servers.items() if item.current.num_replicas), key=_rank(fleet)
    )
    counted = {name: _pools(fleet, name) for name in running if _is_counted(fleet, plannable, name)}
    everything = fleet.loose_system()
    cards = FreeCards(everything, dict(fleet.capacity))
    taken = share_out({name: counted[name] for name in counted if name not in names}, cards)
    kept = {name: _left_with(fleet, name, counted, taken) for name in running if name not in names}
    if not names:
        return PlanWithRetained(None, None, kept)
    system = replace(plannable, capacity={**plannable.capacity, **cards.free}).system()
    plan = plan_keeping(system, {name: counted.get(name, {}) for name in names}, planner)
    unserved = plan.left_out.keys() - plan.shared_queues.keys()
    waiting = [name for name in running if name in names and name in unserved]
    kept |= {name: _left_with(fleet, name, counted, plan.kept_replicas) for name in waiting}
    return PlanWithRetained(plan, system, kept)


def _is_counted(fleet: Entities, plannable: Entities, name: str) -> bool:
    """Return whether it is known how many cards there are of the type that a server runs on."""
    accelerator = fleet.accelerators.get(fleet.servers[name].current.accelerator)
    return (
        not plannable.optimizer.unlimited and accelerator is not None and accelerator.type in fleet.capacity
    )


def _pools(fleet: Entities, name: str) -> dict[str, int]:
    current = fleet.servers[name].current
    return {current.accelerator: current.num_replicas}


def _left_with(
    fleet: Entities, name: str, counted: Mapping[str, object], kept: Mapping[tuple[str, str], int]
) -> AllocationData:
    """Return the retained allocation of a server; all replicas if the capacity is unknown."""
    current = fleet.servers[name].current
    return scaled(current, kept.get((name, current.accelerator), 0)) if name in counted else current


def _rank(fleet: Entities) -> Callable[[str], tuple[int, str]]:
    """Return a key that orders servers by priority and name."""

    def rank(name: str) -> tuple[int, str]:
        known = fleet.service_classes.get(fleet.servers[name].service_class)
        return (LOWEST if known is None else known.priority), name

    return rank
