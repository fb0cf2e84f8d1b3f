"""From the last decisions and a new plan to what is desired now: a pure function.

Without rules that is what the plan says. A server that a plan cannot serve keeps what it runs in any case, as
far as units are left: silence must stop nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, ServerDecision, Target
from optimizer.stabilisation.pools import Wanted, decided, units_per_replica
from optimizer.stabilisation.rules import Rules

SHORTAGES = frozenset({"capacity", "solver_stopped"})
"""Reasons of servers that more units, or more time, would serve."""


def stabilise(
    plan: Plan, system: System, rules: Rules, last: Decisions | None, seen: Observation
) -> Decisions:
    """Return what is desired of every server.

    Args:
        plan: the new plan.
        system: what it was made for.
        rules: what may keep replicas from following it.
        last: what was desired before; none: nothing was.
        seen: when, whose loads are missing, and which replicas are there.
    """
    before = last.servers if last is not None else {}
    planned = plan.allocations.keys() | {item.server for item in plan.unserved}
    wanted = {name: Wanted.of(plan, system, name) for name in system.servers if name in planned}
    found = {
        name: decided(item, rules, before.get(name), seen, plan.total_cost_cents_per_h)
        for name, item in wanted.items()
    }
    fitted = _within_units(found, wanted, system, plan)
    unknown = {name: item for name, item in before.items() if name in system.servers and name not in planned}
    return Decisions(
        seen.now_s, {name: _counted(item, before.get(name)) for name, item in (unknown | fitted).items()}
    )


def _counted(decision: ServerDecision, last: ServerDecision | None) -> ServerDecision:
    """Return a decision that has counted how its numbers have moved."""
    if last is None or decision is last:
        return decision
    names = decision.replicas.keys() | last.replicas.keys()
    moves = [decision.replicas.get(name, 0) - last.replicas.get(name, 0) for name in names]
    if not any(moves):
        return decision
    ups, downs = sum(move > 0 for move in moves), sum(move < 0 for move in moves)
    return replace(decision, ups=last.ups + ups, downs=last.downs + downs)


@dataclass(slots=True)
class _Units:
    """Units by accelerator type that are left."""

    system: System
    left: dict[str, int]

    def take(self, name: str, targets: Mapping[str, int], sign: int = 1) -> None:
        for accelerator, replicas in targets.items():
            kind, units = units_per_replica(self.system, name, accelerator)
            if kind in self.left:
                self.left[kind] -= sign * units * replicas

    def lacks(self, name: str, targets: Mapping[str, int]) -> bool:
        """Say whether something is taken of a type of which there is too little."""
        kinds = (units_per_replica(self.system, name, accelerator)[0] for accelerator in targets)
        return any(self.left.get(kind, 0) < 0 for kind in kinds)


def _within_units(
    found: Mapping[str, ServerDecision], wanted: Mapping[str, Wanted], system: System, plan: Plan
) -> dict[str, ServerDecision]:
    """Let go of what is held where units lack for it: the plan fits, what is held beside it may not.

    First what servers of the lowest priority hold beyond the plan; then what unserved ones keep for want of
    units.
    """
    limits = {} if system.options.unlimited else {item.type: item.limit for item in plan.capacity}
    units = _Units(system, {kind: limit for kind, limit in limits.items() if limit is not None})
    result = dict(found)
    for name, decision in found.items():
        units.take(name, decision.replicas)
    order = sorted(found, key=lambda name: (-system.priority(system.servers[name]), name))
    for name in order:
        if wanted[name].unserved is None and units.lacks(name, _more(result[name].replicas, wanted[name])):
            units.take(name, result[name].replicas, -1)
            result[name] = wanted[name].as_planned(result[name], "no units are left to wait with")
            units.take(name, result[name].replicas)
    for name in order:
        unserved = wanted[name].unserved
        if unserved is not None and unserved.reason in SHORTAGES:
            result[name] = _cut(name, result[name], units)
    return result


def _more(replicas: Mapping[str, int], wanted: Wanted) -> dict[str, int]:
    """Return the replicas that are held beyond the plan."""
    planned = wanted.replicas
    more = {name: number - planned.get(name, 0) for name, number in replicas.items()}
    return {name: number for name, number in more.items() if number > 0}


def _cut(name: str, decision: ServerDecision, units: _Units) -> ServerDecision:
    """Return what a server keeps of what it runs with the units that are left."""
    targets: dict[str, Target] = {}
    for accelerator, target in decision.targets.items():
        kind, each = units_per_replica(units.system, name, accelerator)
        lacking = max(0, -units.left.get(kind, 0))
        gone = min(target.replicas, -(-lacking // each)) if each else 0
        units.take(name, {accelerator: gone}, -1)
        detail = f"{target.detail}; units for {target.replicas - gone} are left" if gone else target.detail
        targets[accelerator] = replace(target, replicas=target.replicas - gone, detail=detail)
    return replace(decision, targets=targets)
