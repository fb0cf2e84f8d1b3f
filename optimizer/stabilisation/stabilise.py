"""From the last decisions and a new plan to the replicas that are desired now: a pure function.

Rules first change what the plan recommends, as far as cards exist for it. Then each server moves as far as it
can without giving up replicas that nothing replaces yet. A server that the plan cannot serve keeps what
others leave of what it runs. The desired replicas of all servers together never take more cards than exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType

from optimizer.plan import Plan
from optimizer.spec.system import System
from optimizer.stabilisation.cards import Cards
from optimizer.stabilisation.decisions import Decisions, Observation, ServerDecision
from optimizer.stabilisation.keeping import Kept, Planner, by_server, left_by, share_out
from optimizer.stabilisation.loads import LoadEstimate, with_load
from optimizer.stabilisation.planning import plan_running_fleet
from optimizer.stabilisation.pools import Recommendation, Ruled, as_planned, pending_since, remembered, ruled
from optimizer.stabilisation.reasons import decided_targets
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.running import Running, kept_of, running_pools
from optimizer.stabilisation.transition import Goal, Transition


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


def plan_next(
    system: System,
    rules: Rules,
    last: Decisions | None,
    seen: Observation,
    planner: Planner,
) -> Plan:
    """Return the plan of a running fleet that `stabilise` can follow.

    Args:
        system: what to plan, with settled loads.
        rules: what may keep replicas from following the plan.
        last: what was desired before; none: nothing was.
        seen: when, whose loads are missing, and which replicas are there.
        planner: solves; when its time is over, nothing is planned again.

    Raises:
        SolverError: the solver failed.
    """
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
    """Return what is desired of every server.

    Args:
        plan: the new plan.
        system: what it was made for.
        rules: what may keep replicas from following it.
        last: what was desired before; none: nothing was.
        seen: when, whose loads are missing, and which replicas are there.
        estimates: what is known of the loads, where they were settled before planning.
    """
    loads = estimates or {}
    before = {} if last is None else {n: d for n, d in last.servers.items() if n in system.servers}
    before |= {name: replace(before[name], load=item) for name, item in loads.items() if name in before}
    running = running_pools(system, Decisions(seen.now_s, before), seen, rules.startup_s)
    fleet = _Fleet(plan, system, rules, before, seen, running)
    wanted = fleet.recommendations(loads)
    goals = fleet.fitting(wanted)
    steps = fleet.transition(wanted, goals).step()
    servers = fleet.unknown(steps)
    for name, item in wanted.items():
        decision = _decision(item, goals[name], steps[name], fleet)
        servers[name] = replace(decision, load=loads.get(name, decision.load))
    return Decisions(seen.now_s, servers)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """A plan, and the fleet that is to follow it."""

    plan: Plan
    system: System
    rules: Rules
    before: Mapping[str, ServerDecision]
    seen: Observation
    running: Running

    def recommendations(self, loads: Mapping[str, LoadEstimate]) -> dict[str, Recommendation]:
        """Return the plan's recommendation for each server, and what those without pools keep."""
        listed, pools = {item.server: item for item in self.plan.unserved}, self.plan.allocations
        names = [name for name in self.system.servers if name in self.plan.allocations or name in listed]
        kept, found = by_server(self._kept(set(names) - self.plan.allocations.keys())), {}
        for name in names:
            load_rpm = self.system.servers[name].current.load.arrival_rate_rpm
            offered = loads[name].level_rpm if name in loads else load_rpm
            served = () if name in pools else (listed[name], kept.get(name, {}))
            found[name] = Recommendation.of(self.system, name, offered, pools.get(name, ()), *served)
        return found

    def _kept(self, names: Iterable[str]) -> Kept:
        """Return what servers without an allocation keep of what they run, those of a priority together."""
        beside = {
            key: number for key, number in self.plan.kept_replicas.items() if key[0] in self.plan.allocations
        }
        cards, runs = left_by(self.system, self.plan, beside), kept_of(self.running, self.seen)
        kept = Kept()
        for _, group in groupby(sorted(names, key=self.rank), lambda name: self.rank(name)[0]):
            kept |= share_out({name: runs[name] for name in group}, cards)
        return kept

    def unknown(self, steps: Mapping[str, Mapping[str, int]]) -> dict[str, ServerDecision]:
        """Return the decisions about servers that the plan does not know, as far as cards are left."""
        cards, found = Cards.of(self.system), {}
        for name, replicas in steps.items():
            cards.take_all(name, replicas)
        for name in sorted(self.before.keys() - steps.keys(), key=self.rank):
            decision = self.before[name]
            targets = {
                on: replace(target, replicas=cards.most(name, on, target.replicas))
                for on, target in decision.targets.items()
            }
            found[name] = replace(decision, targets=targets)
            cards.take_all(name, found[name].replicas)
        return found

    def rank(self, name: str) -> tuple[int, str]:
        """Return the place of a server in the order in which servers get cards."""
        return self.system.priority(self.system.servers[name]), name

    def fitting(self, wanted: Mapping[str, Recommendation]) -> dict[str, Ruled]:
        """Return what the rules make of the plan, for as many servers as that fits and can be reached.

        The plan fits, so servers follow it where the rules want more cards than exist: those of the lowest
        priority first, and only as many as have to.
        """
        cost = self.plan.total_cost_cents_per_h
        moving = {name for name, _ in self.plan.kept_replicas}  # which makes way for others
        found = {
            name: as_planned(item)
            if name in moving
            else ruled(item, self.rules, self.before.get(name), self.seen, self.running.get(name, {}), cost)
            for name, item in wanted.items()
        }
        cards, beyond = Cards.of(self.system), {n: _beyond(found[n], item) for n, item in wanted.items()}
        for name, item in found.items():
            cards.take_all(name, item.replicas)
        for name in sorted(wanted, key=self.rank, reverse=True):
            if any(cards.missing(name, accelerator) for accelerator in beyond[name]):
                cards.take_all(name, found[name].replicas, -1)
                found[name] = as_planned(wanted[name])
                cards.take_all(name, found[name].replicas)
        held = [name for name in sorted(wanted, key=self.rank) if _beyond(found[name], wanted[name])]
        while held and self.transition(wanted, found).blocked:
            name = held.pop()
            found[name] = as_planned(wanted[name])
        return found

    def transition(self, wanted: Mapping[str, Recommendation], ways: Mapping[str, Ruled]) -> Transition:
        """Return the way from what runs to what the servers are to run."""
        goals = [
            Goal(
                server=name,
                priority=self.rank(name)[0],
                replicas=ways[name].replicas,
                rates_rpm={on: target.rate_rpm for on, target in ways[name].targets.items()},
                load_rpm=item.load_rpm,
                waits=item.unserved is None,
            )
            for name, item in wanted.items()
        ]
        return Transition(goals, self.running, Cards.of(self.system))


def _beyond(way: Ruled, wanted: Recommendation) -> list[str]:
    """Return the accelerators on which the rules want more replicas than the plan."""
    return [name for name, number in way.replicas.items() if number > wanted.replicas.get(name, 0)]


def _decision(wanted: Recommendation, way: Ruled, step: Mapping[str, int], fleet: _Fleet) -> ServerDecision:
    """Return the decision about a server that is to run some replicas now."""
    name, now_s = wanted.server.name, fleet.seen.now_s
    last = fleet.before.get(name)
    base = last or ServerDecision({}, now_s)
    targets = decided_targets(wanted, way, step, last, fleet.running.get(name, {}), now_s)
    decision = replace(
        base,
        targets=targets,
        load_rpm=wanted.offered_rpm,
        pending_since_s=pending_since(last, fleet.seen.replicas.get(name, {}), now_s),
    )
    if not decision.staying.keys() & base.staying.keys() and decision.staying:
        decision = replace(decision, switched_s=now_s)
    if way.stays_for is None:
        load = wanted.server.current.load
        decision = replace(decision, in_tokens=load.in_tokens, out_tokens=load.out_tokens)
    return _counted(remembered(fleet.rules, decision, way.recommended, now_s), last)


def _counted(decision: ServerDecision, last: ServerDecision | None) -> ServerDecision:
    """Return a decision that has counted how its numbers have moved."""
    if last is None:
        return decision
    names = decision.replicas.keys() | last.replicas.keys()
    moves = [decision.replicas.get(name, 0) - last.replicas.get(name, 0) for name in names]
    ups, downs = sum(move > 0 for move in moves), sum(move < 0 for move in moves)
    return replace(decision, ups=last.ups + ups, downs=last.downs + downs)
