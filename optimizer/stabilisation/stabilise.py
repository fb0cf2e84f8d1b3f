"""Computes the desired replicas from the last decisions and a new plan, as a pure function.

First, the rules change the recommendations of the plan, within the available cards. Then each server moves as
far as it can without removing replicas that are not yet replaced. A server that the plan cannot serve keeps
those of its replicas that still fit. The desired replicas never use more cards than are available.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from optimizer.features.length_pools.streams import check_without_lengths
from optimizer.features.routes.streams import largest_shares
from optimizer.features.versions.streams import share_of_load, whole_load
from optimizer.plan import Plan
from optimizer.plan.placements import PlanRow, placements_of, rows_of
from optimizer.schema import Route
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, ServerDecision, TargetReason
from optimizer.stabilisation.free_cards import FreeCards
from optimizer.stabilisation.keeping import Kept, Planner, by_server, left_by, share_out
from optimizer.stabilisation.loads import LoadEstimate, scaled_load, with_load
from optimizer.stabilisation.missing_loads import MissingLoad
from optimizer.stabilisation.planning import plan_running_fleet
from optimizer.stabilisation.pools import (
    Recommendation,
    Ruled,
    pending_since,
    remembered,
    ruled,
    unchanged_plan,
)
from optimizer.stabilisation.reasons import decided_targets
from optimizer.stabilisation.roles import (
    estimates_of_roles,
    last_estimate,
    starts_in_other_roles,
    with_chosen_roles,
    with_running_roles,
)
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.running import Running, kept_of, running_pools
from optimizer.stabilisation.transition import MoveGoal, Transition


def denoise_loads(
    system: System, rules: Rules, last: Decisions | None, seen: Observation
) -> tuple[System, Mapping[str, LoadEstimate]]:
    """Return the system without load changes that are statistically insignificant.

    Args:
        system: the system, with counted loads.
        rules: the rules; without `noise` the system is returned unchanged.
        last: the previous decisions, if any.
        seen: the observed state of the fleet; missing loads do not change.

    Returns:
        The system to plan, and the load estimates for `stabilise`.
    """
    if rules.noise is None:
        return system, {}
    estimates, servers = {}, {}
    for name, server in system.servers.items():
        if name in system.routed:
            continue
        decision = last_estimate(last, server)
        load, before = server.current.load, None if decision is None else decision.load
        stated = server.deadline is not None  # offline work has no counted load, and ends at its deadline
        if before is not None and (
            before.level_rpm == load.arrival_rate_rpm if stated else name in seen.missing
        ):
            estimates[name] = before
        else:
            share = share_of_load(server)  # loads are counted for servers, not for versions
            counted = None if before is None or stated else scaled_load(before, 1 / share)
            whole = whole_load(server)
            estimate = with_load(counted, whole.arrival_rate_rpm, whole.arrival_cv, seen.now_s, rules)
            estimates[name] = scaled_load(estimate, share)
        level = load.model_copy(update={"arrival_rate_rpm": estimates[name].level_rpm})
        servers[name] = server.with_load(level)
    routes = _denoised_routes(system, rules, last, seen, estimates)
    return system.with_planned(servers, routes), estimates


def _denoised_routes(
    system: System,
    rules: Rules,
    last: Decisions | None,
    seen: Observation,
    estimates: dict[str, LoadEstimate],
) -> dict[str, Route]:
    """Return the routes with denoised rates, by name, and add the estimates of their servers to `estimates`.

    The requests of a route are counted together. Its servers have the same estimate, scaled to their planned
    loads.
    """
    found_routes = {}
    for name, route in system.routes.items():
        decision = None if last is None else last.servers.get(route.large)
        estimate = None if decision is None else decision.load
        if estimate is None or route.large not in seen.missing:
            cv = system.servers[route.large].current.load.arrival_cv
            estimate = with_load(estimate, route.arrival_rate_rpm, cv, seen.now_s, rules)
        estimates |= {server: scaled_load(estimate, share) for server, share in largest_shares(route).items()}
        found_routes[name] = route.model_copy(update={"arrival_rate_rpm": estimate.level_rpm})
    return found_routes


def plan_next(
    system: System,
    rules: Rules,
    last: Decisions | None,
    seen: Observation,
    planner: Planner,
) -> Plan:
    """Return a plan of a running fleet that `stabilise` can follow.

    Args:
        system: the system to plan, with denoised loads.
        last: the previous decisions, if any.
        seen: the observed state of the fleet.
        planner: the solver; no re-solves after its deadline.

    Raises:
        SpecError: a server has pools by length.
        SolverError: the solver failed.
    """
    check_without_lengths(system.servers.values(), "planning a running fleet")
    system = with_chosen_roles(with_running_roles(system, last, seen), planner)
    running = running_pools(system, last, seen, rules.startup_s)
    return plan_running_fleet(system, running, kept_of(running, seen), planner)


def stabilise(
    plan: Plan,
    system: System,
    rules: Rules,
    last: Decisions | None,
    seen: Observation,
    estimates: Mapping[str, LoadEstimate] | None = None,
) -> Decisions:
    """Return the desired replicas of every server.

    Args:
        plan: the new plan.
        system: the planned system.
        last: the previous decisions, if any.
        seen: the observed state of the fleet.
        estimates: load estimates, if loads were denoised before planning.
    """
    system = plan.planned_in(with_running_roles(system, last, seen))
    loads = estimates_of_roles(system, estimates or {})
    before = {} if last is None else {n: d for n, d in last.servers.items() if n in system.servers}
    before |= {name: replace(before[name], load=item) for name, item in loads.items() if name in before}
    running = running_pools(system, Decisions(seen.now_s, before), seen, rules.startup_s)
    fleet = _PlannedFleet(plan, system, rules, before, seen, running)
    wanted = fleet.recommendations(loads)
    goals = fleet.fitting(wanted)
    steps = fleet.transition(wanted, goals).step()
    servers = fleet.unknown(steps)
    for name, item in wanted.items():
        decision = _decision(item, goals[name], steps[name], fleet)
        decision = _with_missing_load(decision, seen.incomplete.get(name))
        since_s = fleet.shared_since_s(name)
        servers[name] = replace(decision, load=loads.get(name, decision.load), shared_since_s=since_s)
    return Decisions(seen.now_s, servers)


@dataclass(frozen=True)
class _PlannedFleet:
    """A plan, with the running fleet that should follow it."""

    plan: Plan
    system: System
    rules: Rules
    before: Mapping[str, ServerDecision]
    seen: Observation
    running: Running

    def recommendations(self, loads: Mapping[str, LoadEstimate]) -> dict[str, Recommendation]:
        """Return the recommendation for each server; servers without an allocation keep replicas."""
        listed, pools, system = self.plan.left_out, self.plan.allocations, self.system
        names = [name for name in system.servers if name in pools or name in listed]
        kept, recommendations = by_server(self._kept(listed.keys() & set(names))), {}
        for name in names:
            load_rpm = system.servers[name].current.load.arrival_rate_rpm
            offered = loads[name].level_rpm if name in loads else load_rpm
            served = () if name not in listed else (listed[name], kept.get(name, {}))
            recommendations[name] = Recommendation.of(system, name, offered, pools.get(name, ()), *served)
        return recommendations

    def _kept(self, names: Iterable[str]) -> Kept:
        """Return the replicas that servers without an allocation keep, allocated by priority."""
        listed, pools = self.plan.left_out, self.plan.allocations
        also_kept = {
            key: number
            for key, number in self.plan.kept_replicas.items()
            if key[0] in pools and key[0] not in listed
        }
        cards, runs = left_by(self.system, self.plan, also_kept), kept_of(self.running, self.seen)
        kept = Kept()
        for _, group in groupby(sorted(names, key=self.rank), lambda name: self.rank(name)[0]):
            kept |= share_out({name: runs[name] for name in group}, cards)
        return kept

    def unknown(self, steps: Mapping[str, Mapping[str, int]]) -> dict[str, ServerDecision]:
        """Return the previous decisions for servers that are not in the plan, as far as cards remain.

        `steps` has the replicas of the planned servers, by server and accelerator.
        """
        cards, unknown = self.cards(), {}
        for name, replicas in steps.items():
            cards.take_all(name, replicas)
        for name in sorted(self.before.keys() - steps.keys(), key=self.rank):
            decision = self.before[name]
            targets = {
                on: replace(target, replicas=cards.fitting(name, on, target.replicas))
                for on, target in decision.targets.items()
            }
            unknown[name] = replace(decision, targets=targets)
            cards.take_all(name, unknown[name].replicas)
        return unknown

    def rank(self, name: str) -> tuple[int, str]:
        """Return the sort key of a server in the order in which servers get cards: priority and name."""
        return self.system.priority(self.system.servers[name]), name

    def fitting(self, wanted: Mapping[str, Recommendation]) -> dict[str, Ruled]:
        """Apply the rules to the plan for as many servers as fit on the cards and can be reached.

        If the rules need more cards than are available, servers follow the plan, which fits: those of the
        lowest priority first, and only as many as necessary.
        """
        cost = self.plan.total_cost_cents_per_h
        moving = {name for name, _ in self.plan.kept_replicas}  # these servers move so that cards become free
        moving |= self.shared_cards.keys()
        moving |= {name for name, last in self.before.items() if last.shared_since_s is not None}
        fitting = {
            name: unchanged_plan(item)
            if name in moving
            else ruled(item, self.rules, self.before.get(name), self.seen, self.running.get(name, {}), cost)
            for name, item in wanted.items()
        }
        cards, beyond = self.cards(), {n: _beyond(fitting[n], item) for n, item in wanted.items()}
        for name, item in fitting.items():
            cards.take_all(name, item.replicas)
        for name in sorted(wanted, key=self.rank, reverse=True):
            if any(cards.missing(name, accelerator) for accelerator in beyond[name]):
                cards.take_all(name, fitting[name].replicas, -1)
                fitting[name] = unchanged_plan(wanted[name])
                cards.take_all(name, fitting[name].replicas)
        held = [name for name in sorted(wanted, key=self.rank) if _beyond(fitting[name], wanted[name])]
        while held and self.transition(wanted, fitting).blocked:
            name = held.pop()
            fitting[name] = unchanged_plan(wanted[name])
        return fitting

    def transition(self, wanted: Mapping[str, Recommendation], ways: Mapping[str, Ruled]) -> Transition:
        """Return the transition from the running to the desired replicas."""
        goals = [
            MoveGoal(
                server=name,
                priority=self.rank(name)[0],
                replicas=ways[name].replicas,
                rates_rpm={on: target.rate_rpm for on, target in ways[name].targets.items()},
                load_rpm=item.load_rpm,
                waits=item.unserved is None,
                starting_elsewhere=self._starts_on_shared_cards(name)
                or starts_in_other_roles(self.system, self.plan, self.running, name),
            )
            for name, item in wanted.items()
        ]
        return Transition(goals, self.running, self.cards())

    def cards(self) -> FreeCards:
        """The cards that are not shared; shared cards follow the plan and have precedence."""
        return FreeCards.beside(self.system, placements_of(self.plan))

    @cached_property
    def shared_cards(self) -> Mapping[str, list[PlanRow]]:
        """Rows of each server on shared cards, if any."""
        shared_cards = {
            name: [row for row in rows if row.mode == "shared"] for name, rows in rows_of(self.plan).items()
        }
        return {name: rows for name, rows in shared_cards.items() if rows}

    def shared_since_s(self, name: str) -> float | None:
        """Return the time since which plans have put a server on shared cards [s since the epoch].

        It is None if this plan does not do so.
        """
        if name not in self.shared_cards:
            return None
        last = self.before.get(name)
        known = None if last is None else last.shared_since_s
        return self.seen.now_s if known is None else known

    def _starts_on_shared_cards(self, name: str) -> bool:
        """Return whether a server's shared cards are not ready yet, as reported or by their age."""
        since_s, reported = self.shared_since_s(name), self.seen.replicas
        if since_s is None:
            return False
        mine = self.shared_cards[name]
        if all(row.spot.accelerator in reported.get(row.spot.group, {}) for row in mine):
            return any(reported[row.spot.group][row.spot.accelerator].ready < row.count for row in mine)
        return self.seen.now_s - since_s < self.rules.startup_s


def _beyond(way: Ruled, wanted: Recommendation) -> list[str]:
    """Return the accelerators on which the rules require more replicas than the plan."""
    return [name for name, number in way.replicas.items() if number > wanted.replicas.get(name, 0)]


def _decision(
    wanted: Recommendation, way: Ruled, step: Mapping[str, int], fleet: _PlannedFleet
) -> ServerDecision:
    """Return the decision for a server with the given replicas to run now."""
    name, now_s = wanted.server.name, fleet.seen.now_s
    last = fleet.before.get(name)
    base = last or ServerDecision({}, now_s)
    targets = decided_targets(wanted, way, step, last, fleet.running.get(name, {}), now_s)
    decision = replace(
        base,
        targets=targets,
        load_rpm=wanted.offered_rpm,
        pending_since_s=pending_since(last, fleet.seen.replicas.get(name), now_s),
    )
    if not decision.staying.keys() & base.staying.keys() and decision.staying:
        decision = replace(decision, switched_s=now_s)
    if way.stays_for is None:
        load = wanted.server.current.load
        decision = replace(decision, in_tokens=load.in_tokens, out_tokens=load.out_tokens)
    return _counted(remembered(fleet.rules, decision, way.recommended, now_s), last)


def _with_missing_load(decision: ServerDecision, missing: MissingLoad | None) -> ServerDecision:
    """Return a decision whose replicas state what is missing in the load, unless a rule holds them."""
    if missing is None:
        return decision
    targets = {
        on: replace(target, reason=TargetReason.load_missing, held=True, detail=missing.detail)
        if target.replicas and not target.held
        else target
        for on, target in decision.targets.items()
    }
    return replace(decision, targets=targets)


def _counted(decision: ServerDecision, last: ServerDecision | None) -> ServerDecision:
    """Return a decision with updated numbers of increases and decreases."""
    if last is None:
        return decision
    names = decision.replicas.keys() | last.replicas.keys()
    moves = [decision.replicas.get(name, 0) - last.replicas.get(name, 0) for name in names]
    ups, downs = sum(move > 0 for move in moves), sum(move < 0 for move in moves)
    return replace(decision, ups=last.ups + ups, downs=last.downs + downs)
