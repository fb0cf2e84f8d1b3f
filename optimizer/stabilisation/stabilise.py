"""From the last decisions and a new plan to what is desired now: a pure function.

Without rules that is what the plan says. A server that a plan cannot serve keeps what it runs in any case, as
far as units are left: silence must stop nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, Reason, ServerDecision, Target
from optimizer.stabilisation.loads import LoadEstimate, with_load
from optimizer.stabilisation.pools import Wanted, decided, units_per_replica
from optimizer.stabilisation.rules import Rules

FORCED_AFTER_S = 120.0
"""How long a plan must want a server elsewhere before it goes for the sake of others' growth [s]."""
SHORTAGES = frozenset({"capacity", "solver_stopped"})
"""Reasons of servers that more units, or more time, would serve."""


def settled(
    system: System, rules: Rules, last: Decisions | None, seen: Observation
) -> tuple[System, Mapping[str, LoadEstimate]]:
    """Return a system with loads that differ from the last ones only as far as that is no chance.

    Args:
        system: the system, with loads as they were counted.
        rules: without `noise` the system stays as it is.
        last: what was desired before; none: nothing was.
        seen: when, and whose loads are missing: these stay as they are.

    Returns:
        The system to plan, and what is now known of each load, for `stabilise`.
    """
    if rules.noise is None:
        return system, {}
    estimates, servers = {}, {}
    for name, server in system.servers.items():
        decision = None if last is None else last.servers.get(name)
        load, before = server.current.load, None if decision is None else decision.load
        if name in seen.missing and before is not None:
            estimates[name] = before
        else:
            window_s = rules.load_window_s
            estimates[name] = with_load(
                before, load.arrival_rate_rpm, seen.now_s, window_s, load.arrival_cv, rules.noise
            )
        level = load.model_copy(update={"arrival_rate_rpm": estimates[name].level_rpm})
        servers[name] = server.model_copy(
            update={"current": server.current.model_copy(update={"load": level})}
        )
    return replace(system, servers=MappingProxyType(servers)), estimates


def stabilise(
    plan: Plan,
    system: System,
    rules: Rules,
    last: Decisions | None,
    seen: Observation,
    estimates: Mapping[str, LoadEstimate] | None = None,
) -> Decisions:
    """Return what is desired of every server.

    Args:
        plan: the new plan.
        system: what it was made for.
        rules: what may keep replicas from following it.
        last: what was desired before; none: nothing was.
        seen: when, whose loads are missing, and which replicas are there.
        estimates: what is known of the loads, where they were settled before planning.
    """
    before = dict(last.servers) if last is not None else {}
    for name, estimate in (estimates or {}).items():
        if name in before:
            before[name] = replace(before[name], load=estimate)
    planned = plan.allocations.keys() | {item.server for item in plan.unserved}
    wanted = {name: Wanted.of(plan, system, name) for name in system.servers if name in planned}
    found = {
        name: decided(item, rules, before.get(name), seen, plan.total_cost_cents_per_h)
        for name, item in wanted.items()
    }
    fitted = _within_units(found, before, wanted, system, plan, seen.now_s)
    unknown = {name: item for name, item in before.items() if name in system.servers and name not in planned}
    counted = {name: _counted(item, before.get(name)) for name, item in (unknown | fitted).items()}
    known = estimates or {}
    return Decisions(
        seen.now_s,
        {name: replace(item, load=known.get(name, item.load)) for name, item in counted.items()},
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
    found: Mapping[str, ServerDecision],
    before: Mapping[str, ServerDecision],
    wanted: Mapping[str, Wanted],
    system: System,
    plan: Plan,
    now_s: float,
) -> dict[str, ServerDecision]:
    """Let go of what is held where units lack for it: the plan fits, what is held beside it may not.

    Servers of the lowest priority come first in every step: they give up what they hold beyond the plan where
    the plan has them, too; then their place, if the plan has wanted them elsewhere for some time; then they
    do not grow; then their place in any case; and unserved ones keep what is left for them.
    """
    limits = {} if system.options.unlimited else {item.type: item.limit for item in plan.capacity}
    units = _Units(system, {kind: limit for kind, limit in limits.items() if limit is not None})
    result = dict(found)
    for name, decision in found.items():
        units.take(name, decision.replicas)
    order = sorted(found, key=lambda name: (-system.priority(system.servers[name]), name))
    served = [name for name in order if wanted[name].unserved is None]
    patient = {name for name in served if _elsewhere_s(found[name], now_s) < FORCED_AFTER_S}
    _follow(result, [name for name in served if not _is_elsewhere(result[name], wanted[name])], wanted, units)
    _follow(result, [name for name in served if name not in patient], wanted, units)
    _stop_growth(result, served, before, units)
    _follow(result, served, wanted, units)
    for name in order:
        unserved = wanted[name].unserved
        if unserved is not None and unserved.reason in SHORTAGES:
            result[name] = _cut(name, result[name], units)
    return result


def _elsewhere_s(decision: ServerDecision, now_s: float) -> float:
    """Return how long the plan has wanted a server elsewhere [s]."""
    since_s = decision.elsewhere_since_s
    return 0.0 if since_s is None else now_s - since_s


def _is_elsewhere(decision: ServerDecision, wanted: Wanted) -> bool:
    return not _more(decision.replicas, wanted).keys() <= wanted.replicas.keys()


def _follow(
    result: dict[str, ServerDecision], names: Iterable[str], wanted: Mapping[str, Wanted], units: _Units
) -> None:
    """Let servers follow the plan that hold more than it, as long as units lack."""
    for name in names:
        if units.lacks(name, _more(result[name].replicas, wanted[name])):
            units.take(name, result[name].replicas, -1)
            result[name] = wanted[name].as_planned(result[name], "no units are left to wait with")
            units.take(name, result[name].replicas)


def _stop_growth(
    result: dict[str, ServerDecision],
    names: Iterable[str],
    before: Mapping[str, ServerDecision],
    units: _Units,
) -> None:
    """Take back what servers would grow by, as long as units lack for it."""
    for name in names:
        last = before[name].replicas if name in before else result[name].replicas
        targets = dict(result[name].targets)
        for accelerator, target in targets.items():
            grown = target.replicas - last.get(accelerator, 0)
            if grown > 0 and units.lacks(name, {accelerator: 1}):
                kind, each = units_per_replica(units.system, name, accelerator)
                back = min(grown, -(units.left[kind] // each))
                units.take(name, {accelerator: back}, -1)
                detail = "units are taken by replicas that have to be moved first"
                targets[accelerator] = replace(
                    target, replicas=target.replicas - back, held=True, reason=Reason.units, detail=detail
                )
        result[name] = replace(result[name], targets=targets)


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
