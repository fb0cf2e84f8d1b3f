"""Replays a load trace through planning, stabilisation, and replicas that take time to start.

At each time, the plan is made for the loads counted until then, and has to serve those counted at the next
time. So plans do not know the load that they will serve, as in a control loop.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from optimizer.candidates import SizingMemo
from optimizer.features.disaggregation.streams import check_without_roles
from optimizer.features.nodes.replayed import OnNodes, node_costs_cents_per_h
from optimizer.features.offline.streams import without_past_deadlines
from optimizer.features.routes.replayed import RoutedLoad, routed_loads
from optimizer.features.shared_cards.replayed import ReplayedCards, seen_cards
from optimizer.pipeline import Solved, solve, solve_in_full
from optimizer.plan import Plan
from optimizer.plan.placements import rows_of
from optimizer.schema import AllocationData, Route, Server
from optimizer.schema.current_pools import with_replicas
from optimizer.solvers.deadline import Deadline
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.loads import planned_loads, rate_rpm
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, ReplicaTarget
from optimizer.stabilisation.keeping import Kept, Planner
from optimizer.stabilisation.rules import Rules
from optimizer.stabilisation.stabilise import denoise_loads, plan_next, stabilise
from optimizer.studies.replay.loop_replay import LoopSettings, loop_variants
from optimizer.studies.replay.pods import Place, Pods, replica_targets
from optimizer.studies.replay.replay_document import (
    Replay,
    ReplayedRoute,
    ReplayedServer,
    ReplayPolicy,
    ReplayStep,
)
from optimizer.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from optimizer.stabilisation.loads import LoadEstimate

FOLLOWED = "every plan"
MEAN = "one plan for the mean load"


def replay(
    system: System,
    steps: Sequence[LoadStep],
    variants: Mapping[str, Rules],
    startup_s: float,
    loop: LoopSettings | None = None,
) -> Replay:
    """Replay a load trace for each set of rules, and with one fixed plan for the mean load.

    Args:
        system: the fleet; a server without a reported load keeps its last one, or the document's.
        variants: rules by display name.
        startup_s: start-up time of a replica or a shared card [s].
        loop: settings of the control loop to replay, too; None for none.

    Raises:
        SpecError: a server can have prefill and decode pools.
    """
    check_without_roles(system.servers.values(), "replay")
    memo = SizingMemo(MEMO_ROWS)
    runs = [
        _PolicyReplay(system, steps, rules, startup_s, memo).variant(name) for name, rules in variants.items()
    ]
    constant = _PolicyReplay(system, steps, Rules(), startup_s, memo, constant=True).variant(MEAN)
    loops, headrooms = ([], ()) if loop is None else loop_variants(system, steps, loop)
    return Replay(
        hours=(steps[-1].time_s - steps[0].time_s) / SECONDS_PER_HOUR,
        steps=len(steps) - 1,
        startup_s=startup_s,
        currency=system.currency,
        variants=(*runs, *loops, constant.model_copy(update={"rules": None})),
        headrooms=headrooms,
    )


MEMO_ROWS = 2**15
"""Maximum number of cached sizings; caching helps because loads change but profiles do not."""


@dataclass(slots=True)
class _RouteTally:
    """Requests of one route counted so far."""

    offered: float = 0.0
    rerun: float = 0.0
    missed: float = 0.0
    worse: float = 0.0

    def add(self, load: RoutedLoad, span_min: float) -> None:
        """Add the requests of a time span [min] to the counts."""
        self.offered += load.offered_rpm * span_min
        self.rerun += load.rerun_rpm * span_min
        self.worse += load.quality_lost * load.offered_rpm * span_min


@dataclass(slots=True)
class _Tally:
    """Counts and state of one server so far in a replay."""

    offered: float = 0.0
    missed: float = 0.0
    cost: float = 0.0
    switches: int = 0
    held: int = 0
    most_replicas: int = 0
    without_reserve_h: float | None = None
    """Time without the required reserve [h]; None if no plan requires one."""
    places: frozenset[str] = frozenset()
    on_cards: Mapping[Place, int] | None = None
    """Replicas on shared cards, by place; None before the first plan."""
    card_changes: int = 0

    def count_cards(self, now: Mapping[Place, int]) -> None:
        """Count the changes of replicas on shared cards since the last call."""
        if self.on_cards is not None:
            before = self.on_cards
            places = now.keys() | before.keys()
            self.card_changes += sum(now.get(place, 0) != before.get(place, 0) for place in places)
        self.on_cards = now


_Known = dict[tuple[frozenset[tuple[tuple[str, str], int]], frozenset[str]], tuple[System, Solved]]
"""The last solved system and its solution, by kept replicas and excluded servers."""


@dataclass(frozen=True, slots=True)
class _RememberingPlanner(Planner):
    """Planner that reuses its last solution if the system has not changed."""

    known: _Known = field(default_factory=dict)

    def solve(self, system: System, kept: Kept, excluded: Iterable[str]) -> Solved:
        """Return the previous solution if it was for the same system; otherwise solve."""
        key = frozenset(kept.items()), frozenset(excluded)
        last = self.known.get(key)
        if last is None or (last[0].servers, last[0].routes) != (system.servers, system.routes):
            solved = solve_in_full(
                system.with_kept(kept), deadline=self.deadline, memo=self.memo, excluded=key[1]
            )
            self.known[key] = last = system, solved
        return last[1]


@dataclass(slots=True)
class _PolicyReplay:
    """Replay of one policy over the load trace."""

    system: System
    steps: Sequence[LoadStep]
    rules: Rules
    startup_s: float
    memo: SizingMemo
    constant: bool = False
    """Whether a single plan for the mean load is followed all the time."""
    known: _Known = field(default_factory=dict)
    """Solutions of the last systems, for reuse."""
    tallies: dict[str, _Tally] = field(default_factory=dict)
    routes: dict[str, _RouteTally] = field(default_factory=dict)
    cards: ReplayedCards = field(default_factory=ReplayedCards)
    points: list[ReplayStep] = field(default_factory=list)

    def variant(self, name: str) -> ReplayPolicy:
        """Run the replay, and return the outcome of the policy; `name` is its name for readers."""
        self.tallies = {server: _Tally() for server in self.system.servers}
        self.routes = {name: _RouteTally() for name in self.system.routes}
        system, stated, pods = self.system, self.system, Pods(self.startup_s)
        decisions: Decisions | None = None
        plan = solve(self._mean(), memo=self.memo) if self.constant else None
        for step, following in zip(self.steps, self.steps[1:], strict=False):
            missing = frozenset(
                name
                for name, server in system.servers.items()
                if step.reported(system.routed.get(name, server)) is None
            )
            there = pods.seen(step.time_s) if decisions else {server: {} for server in system.servers}
            seen = Observation(step.time_s, missing, there)
            estimates: Mapping[str, LoadEstimate] = {}
            if not self.constant:
                passed_h = (step.time_s - self.steps[0].time_s) / SECONDS_PER_HOUR
                stated = with_step(stated, step)
                stated = stated.with_items(*without_past_deadlines(stated.spec.servers, passed_h))
                system = _with_existing(stated, pods, step.time_s)
                to_plan, estimates = denoise_loads(system, self.rules, decisions, seen)
                deadline = Deadline.after(to_plan.options.time_limit_s)
                planner = _RememberingPlanner(deadline, self.memo, known=self.known)
                plan = plan_next(to_plan, self.rules, decisions, seen, planner)
            assert plan is not None
            if decisions is None or not self.constant:
                first = decisions is None
                seen = replace(seen, replicas={**there, **seen_cards(plan, pods, step.time_s)})
                decisions = stabilise(plan, system, self.rules, decisions, seen, estimates)
                own = {place: target.replicas for place, target in replica_targets(decisions)}
                self.cards.follow(plan, system, own, pods, step.time_s)
                pods.follow(own | self.cards.there, step.time_s, at_once=first)
            self._count(system, plan, decisions, pods, step.time_s, following)
        assert decisions is not None
        return self._result(name, decisions)

    def _mean(self) -> System:
        """Return the system with the mean loads over the entire time."""
        changed = []
        for owner in planned_loads(self.system):
            counted = [
                (reported, step.time_s - before.time_s)
                for before, step in pairwise(self.steps)
                if (reported := step.reported(owner)) is not None
            ]
            if counted:
                total_s = sum(span_s for _, span_s in counted)
                mean = sum(rate_rpm(reported) * span_s for reported, span_s in counted) / total_s
                changed.append(_with_mean(owner, counted[-1][0], mean))
        return self.system.with_planned(
            {item.name: item for item in changed if isinstance(item, Server)},
            {item.name: item for item in changed if isinstance(item, Route)},
        )

    def _count(
        self, system: System, plan: Plan, decisions: Decisions, pods: Pods, now_s: float, following: LoadStep
    ) -> None:
        """Count requests, costs and changes from a time until the next one."""
        loads = {
            name: rate_rpm(following.reported(server) or server) for name, server in system.servers.items()
        }
        routed = routed_loads(system, plan, following)
        loads |= {name: rate for load in routed for name, rate in load.by_server.items()}
        span_s, targets = following.time_s - now_s, dict(replica_targets(decisions))
        rates = {place: {place[0]: target.rate_rpm} for place, target in targets.items()}
        rates |= self.cards.rates_rpm()
        capacity_rpm = self._serve(loads, routed, rates, pods, (now_s, following.time_s))
        for each in routed:
            self.routes[each.route].add(each, span_s / SECONDS_PER_MINUTE)
        in_nodes = node_costs_cents_per_h(system, self._on_nodes(system, targets))
        for server, load in loads.items():
            self.tallies[server].cost += in_nodes.get(server, 0.0) * span_s / SECONDS_PER_HOUR
            self.tallies[server].offered += load * span_s / SECONDS_PER_MINUTE
            self.tallies[server].count_cards(self.cards.replicas(server))
            self.tallies[server].cost += self.cards.cost_cents_per_h(server) * span_s / SECONDS_PER_HOUR
            self._count_server(server, decisions, span_s)
        lacking = frozenset(plan.lacks_reserve)
        for server in plan.requires_reserve:
            hours = span_s / SECONDS_PER_HOUR if server in lacking else 0.0
            self.tallies[server].without_reserve_h = hours + (self.tallies[server].without_reserve_h or 0.0)
        cards = self.cards
        ready = pods.ready(following.time_s)
        self.points.append(
            ReplayStep(
                time_s=now_s,
                load_rpm=sum(loads.values()) - sum(each.rerun_rpm for each in routed),
                capacity_rpm=capacity_rpm,
                planned=sum(row.replicas for rows in rows_of(plan).values() for row in rows),
                desired=sum(target.replicas for target in targets.values())
                + sum(number * cards.replicas_on(place) for place, number in cards.there.items()),
                ready=sum(
                    number * (cards.replicas_on(place) if place in cards.there else 1)
                    for place, number in ready.items()
                ),
                cost_per_h=sum(target.replicas * target.cost_cents_per_h for target in targets.values())
                + sum(cards.cost_cents_per_h(server) for server in loads)
                + sum(in_nodes.values()),
                lacks_reserve=len(plan.lacks_reserve),
            )
        )

    def _on_nodes(self, system: System, targets: Mapping[Place, ReplicaTarget]) -> Iterator[OnNodes]:
        """Yield the replicas and shared cards that exist, if the system has nodes."""
        if not system.nodes:
            return
        for (server, accelerator), target in targets.items():
            yield OnNodes((server,), *system.units_per_replica(server, accelerator), target.replicas)
        for place, number in self.cards.there.items():
            card = system.accelerators[place[1]]
            yield OnNodes(tuple(self.cards.servers[place]), card.type, card.multiplicity, number)

    def _serve(
        self,
        loads: Mapping[str, float],
        routed: Sequence[RoutedLoad],
        rates: Mapping[Place, Mapping[str, float]],
        pods: Pods,
        times_s: tuple[float, float],
    ) -> float:
        """Count the missed requests between two times.

        Args:
            loads: offered requests, by server [requests/min].
            routed: offered requests of routes.
            rates: maximum rates of one replica or shared card, by place and server [requests/min].
            pods: the replicas.
            times_s: both times [s].

        Returns:
            Mean over time of the maximum rate of ready replicas [requests/min].
        """
        capacity_s: dict[str, float] = dict.fromkeys(loads, 0.0)
        for length_s, ready in pods.spans(*times_s):
            takes = dict.fromkeys(loads, 0.0)
            for place, number in ready.items():
                for server, each_rpm in rates[place].items():
                    takes[server] += number * each_rpm
            missed = {server: max(0.0, load - takes[server]) for server, load in loads.items()}
            for each in routed:
                here = each.missed_rpm(takes)
                self.routes[each.route].missed += sum(here.values()) * length_s / SECONDS_PER_MINUTE
                missed |= here
            for server, number_rpm in missed.items():
                capacity_s[server] += takes[server] * length_s
                self.tallies[server].missed += number_rpm * length_s / SECONDS_PER_MINUTE
        return sum(capacity_s.values()) / (times_s[1] - times_s[0])

    def _count_server(self, server: str, decisions: Decisions, span_s: float) -> None:
        tally, decision = self.tallies[server], decisions.servers.get(server)
        if decision is None:
            return
        tally.cost += decision.cost_cents_per_h * span_s / SECONDS_PER_HOUR
        tally.held += any(target.held for target in decision.targets.values())
        places = frozenset(
            name for name, target in decision.targets.items() if target.replicas and not target.leaving
        ) | frozenset(map(repr, tally.on_cards or ()))
        tally.switches += bool(places and tally.places and not places & tally.places)
        tally.places = places or tally.places
        replicas = sum(decision.replicas.values()) + sum((tally.on_cards or {}).values())
        tally.most_replicas = max(tally.most_replicas, replicas)

    def _result(self, name: str, decisions: Decisions) -> ReplayPolicy:
        hours = (self.steps[-1].time_s - self.steps[0].time_s) / SECONDS_PER_HOUR
        servers = []
        for server, tally in self.tallies.items():
            decision = decisions.servers.get(server)
            servers.append(
                ReplayedServer.taken_from(
                    tally,
                    server=server,
                    changes=tally.card_changes + (0 if decision is None else decision.ups + decision.downs),
                )
            )
        alone = [item for item in servers if item.server not in self.system.routed]
        counted: list[ReplayedServer | _RouteTally] = [*alone, *self.routes.values()]
        return ReplayPolicy.of_servers(
            servers,
            hours,
            name=name,
            rules=self.rules,
            offered=sum(item.offered for item in counted),
            missed=sum(item.missed for item in counted),
            lack_reserve=_lacking(servers),
            routes=tuple(
                ReplayedRoute.taken_from(
                    tally, route=route, quality_lost=tally.worse / tally.offered if tally.offered else 0.0
                )
                for route, tally in self.routes.items()
            ),
            points=tuple(self.points),
        )


def _lacking(servers: Sequence[ReplayedServer]) -> tuple[str, ...] | None:
    """Return the servers that lack their reserve at any time; None if no plan requires one."""
    required = [item for item in servers if item.without_reserve_h is not None]
    return tuple(item.server for item in required if item.without_reserve_h) if required else None


def _with_mean(owner: Server | Route, last: Server | Route, rate_rpm: float) -> Server | Route:
    """Return a server or a route with its last reported token lengths and another rate."""
    changes = {"arrival_rate_rpm": rate_rpm}
    if isinstance(owner, Route) or isinstance(last, Route):
        return owner.model_copy(update=changes)
    return owner.with_load(last.current.load.model_copy(update=changes))


def _with_existing(system: System, pods: Pods, now_s: float) -> System:
    """Return the system with the existing replicas as current allocations, if any replica was started."""
    seen, changed = pods.seen(now_s), {}
    for name, server in system.servers.items() if pods.ready_at_s else ():
        numbers = {on: there.ready + there.pending for on, there in sorted(seen.get(name, {}).items())}
        nothing = AllocationData(max_batch=server.current.max_batch, load=server.current.load)
        current = with_replicas(nothing, numbers, mixed=system.options.heterogeneous)
        changed[name] = server.model_copy(update={"current": current})
    return system.with_planned(changed)


def each_alone(rules: Rules) -> dict[str, Rules]:
    """Return each active rule as a separate set of rules, by name of the rule."""
    settings = {"load_window_s", "startup_s", "switch_saving"}
    shared = {name: getattr(rules, name) for name in settings}
    return {
        field.alias or name: Rules().model_copy(update=shared | {name: getattr(rules, name)})
        for name, field in Rules.model_fields.items()
        if name not in settings and getattr(rules, name)
    }
