"""What servers run that cannot be served is kept: the family's actuator stops whatever an answer leaves out.

A server that no accelerator can serve (its token times are not known yet, its targets cannot be met, a name
in it refers to nothing) cannot be planned at all: the units that it runs on are taken, and the others are
planned with the rest. A server that is unserved for lack of units comes after those that are served of its
own and of higher priorities, and before all of lower ones, which are planned again without what it keeps.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from optimizer.plan import Plan, Unserved
from optimizer.solvers.deadline import Deadline
from optimizer.spec.schema import AllocationData, Server
from optimizer.spec.system import System
from rest_server.fleet import Entities

LOWEST = 100
"""Priority of a server whose class is not known."""
SHORTAGES = frozenset({"capacity", "solver_stopped"})
"""Reasons of servers that more units, or more time, would serve."""


@dataclass(frozen=True, slots=True)
class Division:
    """A fleet in two parts: servers that are planned, and running ones that keep what they can."""

    plan: Plan | None
    """The plan of those that are planned; none where there are none."""
    system: System | None
    """The system that it is for."""
    kept: Mapping[str, AllocationData]
    """What each running server that the plan does not serve keeps, down to no replicas."""
    reasons: tuple[Unserved, ...] = ()
    """Why servers that keep something were not served by an earlier plan that they were part of."""

    def whole_plan(self) -> Plan | None:
        """Return the plan with those that were taken out of it among its unserved servers."""
        if self.plan is None:
            return None
        named = {item.server for item in self.plan.unserved}
        unserved = (*self.plan.unserved, *(item for item in self.reasons if item.server not in named))
        return self.plan.model_copy(update={"unserved": unserved, "complete": not unserved})


def divide(
    fleet: Entities, plannable: Entities, solve: Callable[[System], Plan], deadline: Deadline
) -> Division:
    """Plan what can be planned around what running servers keep that cannot be served.

    Args:
        fleet: all entities, with what every server runs.
        plannable: those of them that make a system.
        solve: plans a system.
        deadline: once it has passed nothing is planned again; servers then keep what the plan leaves them.
    """
    units = _Units(fleet, counted=not plannable.optimizer.unlimited)
    unknown = [name for name in fleet.servers if name not in plannable.servers and units.runs(name)]
    kept = units.keep(unknown, units.left)
    reasons: list[Unserved] = []
    while True:
        rest = _without(plannable, kept, units.left)
        if not rest.servers:
            return Division(None, None, _allocations(fleet, kept), tuple(reasons))
        system = rest.system()
        plan = solve(system)
        while group := _next_group(units, plan, kept):
            reasons += [item for item in plan.unserved if item.server in group]
            open_to_it = units.left if _is_stuck(plan, group) else units.left_by(plan, units.rank(group[0]))
            may_repeat = not deadline.passed
            kept |= units.keep(group, open_to_it if may_repeat else units.left_by(plan))
            if min(units.left_by(plan).values(), default=0) < 0:
                break  # others were planned with units that are now taken
        else:
            return Division(plan, system, _allocations(fleet, kept), tuple(reasons))


def _without(plannable: Entities, kept: Mapping[str, int], left: Mapping[str, int]) -> Entities:
    """Return the entities that are left to plan, with the units that are left for them."""
    servers = {name: server for name, server in plannable.servers.items() if name not in kept}
    return replace(plannable, servers=servers, capacity={**plannable.capacity, **left})


def _next_group(units: "_Units", plan: Plan, kept: Mapping[str, int]) -> list[str]:
    """Return the running servers without an allocation whose turn it is.

    Those that nothing can serve come first, then those of the highest priority.
    """
    waiting = [
        item
        for item in plan.unserved
        if item.server not in plan.allocations and item.server not in kept and units.runs(item.server)
    ]
    stuck = [item for item in waiting if item.reason not in SHORTAGES]
    first = min((item.priority for item in waiting), default=LOWEST)
    return [item.server for item in stuck or waiting if stuck or item.priority == first]


def _is_stuck(plan: Plan, group: list[str]) -> bool:
    return next(item for item in plan.unserved if item.server == group[0]).reason not in SHORTAGES


class _Units:
    """The units that exist, and who keeps how many of them."""

    def __init__(self, fleet: Entities, *, counted: bool) -> None:
        self._fleet = fleet
        self.left = dict(fleet.capacity) if counted else {}
        """Units by accelerator type that nobody keeps; how many there are of other types is not known."""

    def runs(self, name: str) -> bool:
        """Say whether a server has replicas."""
        return self._fleet.servers[name].current.num_replicas > 0

    def rank(self, name: str) -> int:
        """Return the priority of a server."""
        known = self._fleet.service_classes.get(self._fleet.servers[name].service_class)
        return LOWEST if known is None else known.priority

    def left_by(self, plan: Plan, lowest: int = LOWEST) -> dict[str, int]:
        """Return what servers down to some priority leave of the units if a plan is carried out."""
        left = dict(self.left)
        for name, pools in plan.allocations.items():
            for pool in pools if self.rank(name) <= lowest else ():
                kind, units = self._per_replica(name, pool.accelerator)
                if kind in left:
                    left[kind] -= units * pool.num_replicas
        return left

    def keep(self, names: Iterable[str], open_to_them: Mapping[str, int]) -> dict[str, int]:
        """Let servers keep what they run as far as units are open to them; return the replicas of each.

        In the order of priorities and names: first one replica each, so that as few as can be are stopped,
        then up to what runs.
        """
        left = dict(open_to_them)
        replicas = dict.fromkeys(sorted(names, key=lambda name: (self.rank(name), name)), 0)
        for only_one in (True, False):
            for name, count in replicas.items():
                current = self._fleet.servers[name].current
                wanted = 1 if only_one else current.num_replicas - count
                kind, units = self._per_replica(name, current.accelerator)
                if kind in left:
                    wanted = min(wanted, max(left[kind], 0) // units)
                    left[kind] -= wanted * units
                    self.left[kind] -= wanted * units
                replicas[name] = count + wanted
        return replicas

    def _per_replica(self, name: str, accelerator: str) -> tuple[str, int]:
        """Return the type and the units of a replica; of an unknown accelerator there are none to count."""
        server, found = self._fleet.servers[name], self._fleet.accelerators.get(accelerator)
        if found is None:
            return "", 0
        profile = self._fleet.models.get(server.model, {}).get(accelerator)
        return found.type, found.multiplicity * (profile.acc_count if profile else 1)


def _allocations(fleet: Entities, kept: Mapping[str, int]) -> dict[str, AllocationData]:
    return {name: kept_allocation(fleet.servers[name], replicas) for name, replicas in kept.items()}


def kept_allocation(server: Server, replicas: int) -> AllocationData:
    """Return what a server runs with some of its replicas; with none it keeps the name of its accelerator."""
    current = server.current
    share = replicas / current.num_replicas
    changes: dict[str, object] = {
        "num_replicas": replicas,
        "cost_cents_per_h": current.cost_cents_per_h * share,
    }
    if not replicas:
        changes |= {"itl_ms": 0.0, "ttft_ms": 0.0, "avg_concurrency": 0.0}
    return current.model_copy(update=changes)
