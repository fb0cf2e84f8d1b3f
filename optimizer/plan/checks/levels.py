"""Checks the values of the objectives against the allocations, and the consistency of bounds and status.

Bounds cannot be recomputed. But a bound must not exceed its value, the gap must follow from both, and an
optimal plan must be proved within the gap of the options.
"""

import math
from collections.abc import Iterator

from optimizer.candidates.arrays import current_cost_cents_per_h
from optimizer.features.versions.streams import Version
from optimizer.plan.checks.differences import close
from optimizer.plan.checks.facts import Facts
from optimizer.plan.document import EXTERNAL, PlanLevel
from optimizer.quantities import precise
from optimizer.schema import Server
from optimizer.schema.classes import priority_name
from optimizer.solvers.objectives import (
    CHANGES,
    OFF_PREFERRED,
    VALUE,
    proved_within,
    reserve_level,
    unit_of_level,
)
from optimizer.solvers.problem import gap_target
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING, SAME


def check_levels(facts: Facts) -> list[str]:
    """Return the errors in a plan's levels, objective, solver and status."""
    plan, names = facts.plan, _names(facts)
    stated = [level.name for level in plan.levels]
    if stated != names:
        return [f"the levels are {', '.join(names)}; the plan has {', '.join(stated) or 'none'}"]
    if any(level.unit != unit_of_level(level.name) for level in plan.levels):
        return ["levels: the unit of a value is not that of its level; plan again"]
    value = plan.levels[names.index(VALUE)]
    problems = [
        f"{field} is {shown} in the plan, {true} at the level of value"
        for field, shown, true in (
            ("objective", plan.objective, value.value),
            ("bound", plan.bound, value.bound),
            ("gap", plan.gap, value.gap),
        )
        if shown != true
    ]
    return [*problems, *_values(facts), *_claims(facts), *_bounds(facts)]


def _names(facts: Facts) -> list[str]:
    priorities = sorted({stream.priority for stream in facts.whole.streams.values()})
    service = [f"{priority_name(p)}: unserved {what}" for p in priorities for what in ("rate", "servers")]
    return [*service, *_goals(facts), VALUE, CHANGES]


def _goals(facts: Facts) -> dict[str, float]:
    """Return the values of the objectives between service and transition cost, by name (eq. 143, 144)."""
    reached: dict[str, float] = {}
    lacking = set(facts.plan.lacks_reserve) - facts.short
    for name, server in sorted(facts.whole.servers.items(), key=lambda item: facts.whole.priority(item[1])):
        if _requires_reserve(facts.whole, server, facts.whole_load_rpm[name]):
            level, load = reserve_level(facts.whole.priority(server)), facts.whole_load_rpm[name]
            reached[level] = reached.get(level, 0.0) + (load if name in lacking else 0.0)
    if any(server.preferred is not None for server in facts.whole.servers.values()):
        reached[OFF_PREFERRED] = math.fsum(
            pool.num_replicas * min(pool.max_arrival_rate_rpm / pool.num_replicas, facts.load_rpm[name])
            for name, pool in facts.placed.named_pools
            if name not in facts.short and not _is_preferred(facts, name, pool.accelerator)
        ) + math.fsum(
            facts.load_rpm[name] for name in facts.renting if not _is_preferred(facts, name, EXTERNAL)
        )
    return reached


def _requires_reserve(system: System, server: Server, load_rpm: float) -> bool:
    """Return whether a server requires a reserve at a given load."""
    spares = server.spare_replicas or server.availability_target is not None
    return bool(load_rpm and (spares or headroom_of(system, server)))


def headroom_of(system: System, server: Server) -> float:
    """Return the headroom of a server as a share: its own, or else that of its class, or else of the options.

    Offline work has only its own headroom.
    """
    if server.deadline is not None:
        return server.headroom_share or 0.0
    # The most specific value applies: of the server, its class, the options.
    own = server.headroom_share
    if own is None:
        own = system.service_classes[server.service_class].headroom_share
    share = system.options.headroom_share if own is None else own
    if isinstance(server, Version) and server.roll_back and server.weight:
        return (1 + share) / server.weight - 1  # in a roll-back it takes the load of all versions
    return share


def _is_preferred(facts: Facts, name: str, accelerator: str) -> bool:
    """Return whether a server prefers an accelerator or has no preference."""
    preferred = facts.system.servers[name].preferred
    return preferred is None or accelerator in preferred


# --- values --------------------------------------------------------------------------------------------


def _values(facts: Facts) -> Iterator[str]:
    reached = (
        _service(facts) | _goals(facts) | {VALUE: _value(facts), CHANGES: float(len(facts.placed.changes))}
    )
    for level in facts.plan.levels:
        true = reached[level.name]
        if not close(level.value, true) and not _is_settled_before(facts, level, true):
            yield f"level {level.name!r} reaches {precise(true)}, the plan says {precise(level.value)}"


def _is_settled_before(facts: Facts, level: PlanLevel, true: float) -> bool:
    """Return whether a service level can state the unserved amount before remaining cards were allocated.

    The remaining cards can serve a server in full if the solver stopped early or within its gap, because then
    no bound excludes this.
    """
    # A bound above the recomputed value would have excluded it; without one, leftover cards can serve more.
    proved = level.bound is None or level.bound > true + SAME * max(1.0, true)
    is_service = level.name not in (VALUE, CHANGES)
    return is_service and facts.shares_leftover and not proved and level.value > true


def _service(facts: Facts) -> dict[str, float]:
    """Return the values of the service levels, by name: unserved load, and number of unserved servers."""
    reached = dict.fromkeys(_names(facts), 0.0)
    for name in facts.listed:
        priority = facts.system.priority(facts.system.servers[name])
        reached[f"{priority_name(priority)}: unserved rate"] += facts.load_rpm[name]
        reached[f"{priority_name(priority)}: unserved servers"] += 1
    return reached


def _value(facts: Facts) -> float:
    """Return the transition cost of the plan [cents/h]: cost changes plus a penalty on moves (eq. 31-33)."""
    penalty, total = facts.system.options.transition_penalty, []
    changed = {item.server for item in facts.placed.changes}
    # In mixed plans, on routes and with pools by length, an unchanged server counts with the difference from
    # its stated cost.
    all_count = facts.mixed or any(route.arrival_rate_rpm for route in facts.whole.routed.values())
    all_count |= bool(facts.plan.length_pools)
    shared_now = {
        (pool.mode, pool.accelerator)
        for server in facts.whole.servers.values()
        for pool in server.current.pools
        if pool.mode == "shared"
    }
    # Replicas with a role belong to an artificial server without current replicas.
    roles = math.fsum(pool.cost_cents_per_h for _, pool in facts.placed.named_pools if pool.role is not None)
    total.append(roles * (1 + penalty))
    for name, server in facts.whole.servers.items():
        if name not in changed and not all_count and name not in facts.on_cards:
            continue  # the stated cost of an unchanged server does not matter
        # Transition cost of a server: new cost minus old cost, plus the penalty on what moves (eq. 31).
        old, now = current_cost_cents_per_h(facts.whole, name), server.current.stated_pools
        rows = facts.placed.rows.get(name, ())
        here = {(pool.mode, pool.accelerator) for pool in now}
        kept = [row.place in (shared_now if row.mode == "shared" else here) for row in rows]
        costs = [row.cost_cents_per_h for row in rows]
        # Pools at new places pay the penalty; if the server leaves all its places, the old cost does, too.
        moved = math.fsum(cost for cost, stays in zip(costs, kept, strict=True) if not stays)
        on_cards = name in facts.on_cards and any(pool.mode == "shared" for pool in now)
        total.append(math.fsum(costs) - old + penalty * (moved + (0.0 if on_cards or any(kept) else old)))
    return math.fsum([*total, *(cost.amount_cents_per_h for cost in facts.plan.shared_costs)])


# --- status --------------------------------------------------------------------------------------------


def _claims(facts: Facts) -> Iterator[str]:
    """Yield an error if solver or status contradicts the options or the bounds."""
    plan, options = facts.plan, facts.system.options
    if not facts.is_shared and not options.heterogeneous:
        solver = "separable"
    elif not options.milp_solver:
        solver = "greedy"
    else:
        solver = "milp" if facts.is_shared else "separable"
    if plan.solver != solver:
        yield f"the options require the solver {solver!r}, the plan says {plan.solver!r}"
    if (plan.status == "heuristic") != (solver == "greedy"):
        yield f"a plan of the solver {solver!r} is not {plan.status!r}"
    proved = [level.name for level in plan.levels if level.bound is not None]
    if solver == "greedy" and proved:
        yield f"level {proved[0]!r} has a bound, but a greedy plan proves nothing"
    if plan.status == "optimal" and len(proved) < len(plan.levels):
        yield "the plan is called optimal, but not every level has a bound"


def _bounds(facts: Facts) -> Iterator[str]:
    for level in facts.plan.levels:
        if level.bound is None:
            if level.gap is not None:
                yield f"level {level.name!r} has a gap, but no bound"
            continue
        open_part = max(level.value - level.bound, 0.0)
        # Relative to the value, as solvers state gaps; a value of 0 has a gap of 0 only if it is proved.
        gap = open_part / max(abs(level.value), ROUNDING)
        if level.bound > level.value + ROUNDING * max(1.0, abs(level.value)):
            bound, value = precise(level.bound), precise(level.value)
            yield f"level {level.name!r}: the bound {bound} is above the value {value}"
        if level.gap is None or not math.isclose(gap, level.gap, rel_tol=SAME, abs_tol=ROUNDING):
            yield f"level {level.name!r}: the gap is {precise(gap)}, the plan says {level.gap}"
        if facts.plan.status == "optimal" and not _is_proved(facts, level, level.bound):
            yield f"level {level.name!r}: {precise(open_part)} are not proved, so the plan is not optimal"


def _is_proved(facts: Facts, level: PlanLevel, bound: float) -> bool:
    """Return whether the bound of a level proves its value within the gap of the options."""
    system = facts.system
    gap = gap_target(system.options, len(system.servers) * len(system.accelerators))
    constants = {CHANGES: float(len(system.servers))}
    if level.name == VALUE:
        # A constant in the objective makes its relative gap small; the costs bound this constant.
        costs = [current_cost_cents_per_h(system, name) for name in system.servers]
        costs += [row.cost_cents_per_h for row in facts.placed.placements]
        costs += [abs(cost.amount_cents_per_h) for cost in facts.plan.shared_costs]
        constants[VALUE] = (1 + system.options.transition_penalty) * math.fsum(costs)
    is_service = level.name not in (VALUE, CHANGES) and level.name not in _goals(facts)
    most = constants.get(level.name, 0.0)
    return proved_within(level.name, level.value, bound, gap, most, is_service=is_service)
