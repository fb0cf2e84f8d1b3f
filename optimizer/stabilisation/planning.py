"""Plans that a running fleet can reach step by step.

A plan can be unreachable because servers wait for each other's cards. Then some of them stay on their current
accelerators, or keep their old replicas in addition to the new ones, and the other servers are planned again
around them. The two servers of a route are treated together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from optimizer.arrays import totals
from optimizer.candidates import find_candidates
from optimizer.features.routes.view import with_savings
from optimizer.plan import Plan
from optimizer.plan.placements import placements_of
from optimizer.spec.system import System
from optimizer.stabilisation.free_cards import FreeCards
from optimizer.stabilisation.keeping import Kept, Planner, Runs, by_server, left_by, plan_keeping, share_out
from optimizer.stabilisation.running import Running
from optimizer.stabilisation.transition import MoveGoal, Transition
from optimizer.tolerances import ROUNDING


def plan_running_fleet(system: System, running: Running, runs: Runs, planner: Planner) -> Plan:
    """Return a plan of a running fleet that can be reached in steps.

    Args:
        system: the system to plan; its kept replicas stay.
        running: the pools of each server, with the loads that they can carry.
        runs: replicas that servers keep if they cannot be served.
        planner: the solver; no re-solves after its deadline.

    Raises:
        SolverError: the solver failed.
    """
    search = _Search(system, running, runs, planner, kept=dict(system.kept))
    plan = search.plan()
    while planner.may_repeat:
        blocked = search.blocked(plan)
        if not blocked:
            break
        plan = search.without(blocked, plan)
    while planner.may_repeat and not (transition := search.transition(plan)).is_reachable:
        runs_now = [name for name in transition.blocked if runs.get(name)]
        plan = search.elsewhere(runs_now[-1], plan)
    if system.routed and search.allowed:
        return with_savings(plan, find_candidates(system, planner.memo))
    return plan


@dataclass(slots=True)
class _Search:
    """Search for a reachable plan by restricting servers that block the transition."""

    system: System
    running: Running
    runs: Runs
    planner: Planner
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Accelerators to which servers are restricted."""
    kept: Kept = field(default_factory=dict)
    """Old replicas that servers keep, in addition to new replicas or because the servers are excluded."""
    excluded: set[str] = field(default_factory=set)
    """Servers that are not served because no accelerator for them is reachable."""
    tried: set[str] = field(default_factory=set)
    """Servers that already stay on their accelerators or keep both pools."""

    def plan(self) -> Plan:
        """Return a plan under the current restrictions.

        Restrictions that make a server unserved are lifted.
        """
        while True:
            system = _restricted(self.system, self.allowed).with_kept(self.kept)
            plan = plan_keeping(system, self.runs, self.planner, self.excluded)
            unserved = self.allowed.keys() & {*plan.left_out, *(item.server for item in plan.unserved)}
            if not unserved:
                return plan
            self.allowed = {name: numbers for name, numbers in self.allowed.items() if name not in unserved}

    def blocked(self, plan: Plan) -> list[str]:
        """Return the servers of the highest priority that the transition to a plan blocks."""
        names = [name for name in self.transition(plan).blocked if name not in self.tried]
        first = min((self._priority(name) for name in names), default=0)
        return [name for name in names if self._priority(name) == first]

    def without(self, blocked: Sequence[str], plan: Plan) -> Plan:
        """Return a plan in which blocked servers stay, or the first of them keeps both pools while it moves.

        They stay if no server loses service as a result, or if moving would reduce service at their priority.
        """
        before, lowest = (self.allowed, self.kept), self._priority(blocked[0])
        served_with = self.system.served_with
        here = {name: _accelerators_of(self.system, self.running, name) for name in served_with(blocked)}
        self.allowed = before[0] | {name: accelerators for name, accelerators in here.items() if accelerators}
        staying: Plan | None = self.plan()
        stays = self.allowed
        assert staying is not None
        if set(blocked) & set(self.transition(staying).blocked):
            staying = None
        elif _serves_as_much(staying, plan, self.system):
            self.tried |= set(blocked)
            return staying
        movers = [name for name in served_with(blocked[:1]) if plan.allocations.get(name)]
        goals = {name: tuple(pool.accelerator for pool in plan.serving_pools_of(name)) for name in movers}
        self.allowed = before[0] | goals
        self.kept = before[1] | _both(plan, self.system, self.running, self.kept, movers)
        moving = self.plan()
        moves = blocked[0] in self.allowed and _serves_as_much(moving, staying or plan, self.system, lowest)
        if staying is None or moves:
            self.tried.add(blocked[0])
            return moving
        self.allowed, self.kept = stays, before[1]
        self.tried |= set(blocked)
        return staying

    def elsewhere(self, name: str, plan: Plan) -> Plan:
        """Return a plan with a server on other accelerators.

        If there are none, the server keeps its replicas.
        """
        self.kept = {key: number for key, number in self.kept.items() if key[0] != name}
        goal = {pool.accelerator for pool in plan.serving_pools_of(name)}
        open_to_it = self.allowed.get(name, _may_use(self.system, name))
        self.allowed = {**self.allowed, name: tuple(on for on in open_to_it if on not in goal)}
        elsewhere = self.plan()
        if name in self.allowed:
            return elsewhere
        cards = left_by(self.system, plan, self.kept, self._priority(name) - 1)
        runs = {each: self.runs.get(each, {}) for each in self.system.served_with([name])}
        # 0 kept replicas: the server must stop on these accelerators before it can move.
        none = {(each, on): 0 for each in runs for on in runs[each] if on in self.system.accelerators}
        self.kept |= none | share_out(runs, cards)
        self.excluded.update(runs)
        return self.plan()

    def transition(self, plan: Plan) -> Transition:
        cards = FreeCards.beside(self.system, placements_of(plan))
        return Transition(goals_of(plan, self.system), self.running, cards)

    def _priority(self, name: str) -> int:
        return self.system.priority(self.system.servers[name])


def goals_of(plan: Plan, system: System) -> list[MoveGoal]:
    """Return the replicas that each server should run: those of its allocation, or else the kept ones."""
    goals, kept, left_out = [], by_server(plan.kept_replicas), plan.left_out
    for name, server in system.servers.items():
        pools = [pool for pool in plan.serving_pools_of(name) if pool.num_replicas]
        served = name in plan.allocations and name not in left_out
        left = {on: number for on, number in kept.get(name, {}).items() if number}
        goals.append(
            MoveGoal(
                server=name,
                priority=system.priority(server),
                replicas={pool.accelerator: pool.num_replicas for pool in pools} if served else left,
                rates_rpm={pool.accelerator: pool.max_arrival_rate_rpm / pool.num_replicas for pool in pools},
                load_rpm=sum(pool.arrival_rate_rpm for pool in pools),
                waits=served,
            )
        )
    return goals


def _restricted(system: System, allowed: Mapping[str, tuple[str, ...]]) -> System:
    """Return a copy of the system in which some servers are restricted to given accelerators."""
    changed = {
        name: system.servers[name].model_copy(update={"accelerators": accelerators})
        for name, accelerators in allowed.items()
    }
    return system.with_planned(changed)


def _may_use(system: System, name: str) -> tuple[str, ...]:
    allowed = system.servers[name].accelerators
    return tuple(on for on in system.accelerators if allowed is None or on in allowed)


def _accelerators_of(system: System, running: Running, name: str) -> tuple[str, ...]:
    """Return the accelerators of a server's pools; only that of the largest pool if plans are not mixed."""
    may_use = _may_use(system, name)
    pools = {on: pool for on, pool in running.get(name, {}).items() if on in may_use}
    if system.options.heterogeneous or not pools:
        return tuple(pools)
    return (max(pools, key=lambda on: (pools[on].ready * pools[on].rate_rpm, pools[on].replicas)),)


def _serves_as_much(plan: Plan, other: Plan, system: System, lowest: float = inf) -> bool:
    """Return whether a plan serves as much as another at every priority, or at those down to `lowest`."""
    mine, theirs = _unserved(plan, system), _unserved(other, system)
    return all(
        mine.get(priority, 0.0) <= theirs.get(priority, 0.0) * (1 + ROUNDING)
        for priority in mine
        if priority <= lowest
    )


def _unserved(plan: Plan, system: System) -> dict[int, float]:
    """Return the load of servers that are not served in full, by priority [requests/min].

    A small constant for each such server is added.
    """
    streams = system.streams
    return totals(
        (item.priority, streams[item.server].load.arrival_rate_rpm + ROUNDING) for item in plan.unserved
    )


def _both(plan: Plan, system: System, running: Running, doubled: Kept, names: Sequence[str]) -> Kept:
    """Return the old replicas that servers can keep in addition to their new ones.

    Args:
        plan: the plan with the new replicas.
        running: the running replicas.
        doubled: replicas that other servers already keep.
        names: the servers, all of one priority.
    """
    # Cards that servers of lower priority use can be taken for the old replicas.
    cards = left_by(system, plan, doubled, system.priority(system.servers[names[0]]) - 1)
    old: dict[str, dict[str, int]] = {}
    for name in names:
        new = {pool.accelerator: pool.num_replicas for pool in plan.serving_pools_of(name)}
        cards.take_all(name, new)
        # Replicas that run beyond those of the plan, on each accelerator.
        left = {on: pool.replicas - new.get(on, 0) for on, pool in running.get(name, {}).items()}
        old[name] = {on: number for on, number in left.items() if number > 0}
    return share_out(old, cards)
