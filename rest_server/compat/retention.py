"""Retains replicas of unserved running servers, because the actuator stops servers that a response omits.

A server with undefined names cannot be planned. Its cards are reserved, and the other servers are planned
with the remaining cards.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from optimizer.documents import UnlimitedCards
from optimizer.plan import Plan
from optimizer.schema import AllocationData, Capacity
from optimizer.spec.system import System
from optimizer.stabilisation.free_cards import FreeCards
from optimizer.stabilisation.keeping import Planner, plan_keeping, share_out
from rest_server.fleet import Entities, resized

LOWEST = 100
"""Priority of a server whose service class is unknown."""


@dataclass(frozen=True, slots=True)
class PlanWithRetained:
    """A planned fleet: the plan, and the allocations that unserved running servers retain."""

    plan: Plan | None
    """Plan of the servers that can be planned; None if there are none."""
    system: System | None
    """System for which the plan was made; None without a plan."""
    kept: Mapping[str, AllocationData]
    """Retained allocation of each running server that the plan does not serve; it can have no replicas."""


def divide(fleet: Entities, plannable: Entities, planner: Planner) -> PlanWithRetained:
    """Plan the valid items of a fleet, around the replicas of running servers that cannot be served.

    Args:
        fleet: all items, with current allocations.
        plannable: the items that form a valid system.
        planner: the solver; it does not solve again after its deadline.
    """
    fleet, names = replace(fleet, servers=fleet.planned), plannable.planned
    running = sorted(
        (name for name, item in fleet.servers.items() if item.current.num_replicas), key=_rank(fleet)
    )
    counted = {name: _pools(fleet, name) for name in running if _is_counted(fleet, plannable, name)}
    everything = fleet.loose_system()
    limited = {type_name: n for type_name, n in fleet.capacity.items() if not isinstance(n, UnlimitedCards)}
    cards = FreeCards(everything, limited)
    taken = share_out({name: counted[name] for name in counted if name not in names}, cards)
    kept = {name: _left_with(fleet, name, counted, taken) for name in running if name not in names}
    if not names:
        return PlanWithRetained(None, None, kept)
    free = {name: Capacity.of(name, count) for name, count in cards.free.items()}
    system = plannable.with_items("count", free).system()
    plan = plan_keeping(system, {name: counted.get(name, {}) for name in names}, planner)
    unserved = plan.left_out.keys() - plan.groups
    waiting = [name for name in running if name in names and name in unserved]
    kept |= {name: _left_with(fleet, name, counted, plan.kept_replicas) for name in waiting}
    return PlanWithRetained(plan, system, kept)


def _is_counted(fleet: Entities, plannable: Entities, name: str) -> bool:
    """Return whether the number of cards of the accelerator type on which a server runs is known."""
    accelerator = fleet.accelerators.get(fleet.servers[name].current.accelerator)
    return not plannable.optimizer.unlimited and accelerator is not None and accelerator.type in fleet.count


def _pools(fleet: Entities, name: str) -> dict[str, int]:
    current = fleet.servers[name].current
    return {current.accelerator: current.num_replicas}


def _left_with(
    fleet: Entities, name: str, counted: Mapping[str, object], kept: Mapping[tuple[str, str], int]
) -> AllocationData:
    """Return the retained allocation of a server.

    It has all its replicas if the number of cards is unknown.
    """
    current = fleet.servers[name].current
    return resized(current, kept.get((name, current.accelerator), 0)) if name in counted else current


def _rank(fleet: Entities) -> Callable[[str], tuple[int, str]]:
    """Return a sort key that orders servers by priority and name."""

    def rank(name: str) -> tuple[int, str]:
        known = fleet.service_classes.get(fleet.servers[name].service_class)
        return (LOWEST if known is None else known.priority), name

    return rank
