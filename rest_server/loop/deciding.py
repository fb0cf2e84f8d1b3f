"""One cycle of the control loop as a pure function of state and inputs.

It returns the desired replicas and the next state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from optimizer.candidates import SizingMemo
from optimizer.errors import SolverError
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.plan import Plan
from optimizer.schema import Load, Server
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System
from optimizer.stabilisation.backlog import Queue, starting_times
from optimizer.stabilisation.decisions import (
    Decisions,
    Observation,
    ReplicaStatus,
    ReplicaTarget,
    ServerDecision,
    TargetReason,
)
from optimizer.stabilisation.draining import with_backlogs, with_capacities, with_recommendations
from optimizer.stabilisation.keeping import Planner
from optimizer.stabilisation.missing_loads import MissingLoad, missing_values, with_one_replica
from optimizer.stabilisation.stabilise import plan_next, stabilise
from rest_server.loop.config import LoopConfig
from rest_server.loop.drift import Drifts, with_factors, with_windows
from rest_server.loop.loads import EstimatedLoad, LoadMemory, with_measured_loads, with_reading
from rest_server.loop.window import Hold, HoldReason, Reading, Window


@dataclass(frozen=True, slots=True)
class ExistingReplicas:
    """Existing replicas of a server on one accelerator, as its workload reports them."""

    desired: int
    """Number of replicas that the workload requests."""
    ready: int


Existing = Mapping[str, Mapping[str, ExistingReplicas]]
"""Existing replicas by server and accelerator, of all workloads that exist."""


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """Desired replicas of a server on an accelerator, from a remote planner."""

    replicas: int
    reason: str
    detail: str
    held: bool


RemoteTargets = Mapping[str, Mapping[str, RemoteTarget]]
"""Targets of a remote planner, by server and accelerator."""
AskPlanner = Callable[[Mapping[str, EstimatedLoad], Existing], RemoteTargets | Hold]
"""Function that sends loads and existing replicas to a remote planner, and returns its targets."""


@dataclass(frozen=True, slots=True)
class CycleInputs:
    """All inputs of a cycle."""

    now_s: float
    """Time of the cycle [s since the epoch]."""
    readings: Mapping[str, Reading]
    """Measurements by server, or the reason why there are none."""
    replicas: Existing
    """Existing replicas by server and accelerator; servers whose workloads cannot be read are absent."""
    problems: Mapping[str, Hold] = field(default_factory=dict)
    """Reasons why the workloads of servers cannot be read, by server."""
    remote: RemoteTargets | Hold | None = None
    """Targets of a remote planner, or the reason why there are none; None without a remote planner."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """State of the control loop, passed from one cycle to the next."""

    decisions: Decisions | None = None
    loads: Mapping[str, LoadMemory] = field(default_factory=dict)
    drifts: Drifts = field(default_factory=dict)
    """Comparisons of measured and predicted token times, by profile."""


@dataclass(frozen=True, slots=True)
class WorkloadDecision:
    """Desired replicas of one workload."""

    server: str
    accelerator: str
    replicas: int
    existing: int
    ready: int
    reason: str
    detail: str = ""
    held: bool = False
    """Whether the number differs from the plan, or the server is not planned."""
    blocked: bool = False
    """Whether the workload must not be scaled in this cycle."""

    @property
    def changes(self) -> bool:
        """Whether the workload should be scaled."""
        return not self.blocked and self.replicas != self.existing


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """Planned replicas of a server, on all accelerators together."""

    for_rate: int
    """Number of replicas that serve the expected arrivals within their targets."""
    for_backlog: int = 0
    """Number of additional replicas for the waiting requests."""


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """Result of one cycle of the control loop."""

    state: LoopState
    loads: Mapping[str, EstimatedLoad]
    """Measured loads, by server."""
    holds: Mapping[str, Hold]
    """Servers that keep their replicas, with the reasons."""
    workloads: tuple[WorkloadDecision, ...]
    plan: Plan | None
    """Plan of this cycle; None if there is none."""
    planned: Mapping[str, PlannedReplicas] = field(default_factory=dict)
    """Planned replicas by server, for the rate and for the backlog."""


def decide(
    system: System,
    config: LoopConfig,
    state: LoopState,
    seen: CycleInputs,
    memo: SizingMemo | None = None,
) -> CycleOutcome:
    """Plan a fleet for its measured loads, and return the desired replicas of its workloads.

    A server without a measured load, without known replicas, or without a place in the plan keeps its
    replicas.

    Args:
        system: the documented system.
        config: the configuration.
        state: the state after the last cycle.
        memo: cache of sizings.
    """
    memories, loads, holds = _measured(system, config, state, seen)
    following = LoopState(_seeded(state.decisions, seen), memories, state.drifts)
    system = with_factors(system, state.drifts)
    system = _reachable(with_measured_loads(system, loads, variation=config.variation), seen, config)
    system, incomplete = _with_one_replica_each(system, seen)
    demands = {name: load.demand for name, load in loads.items() if load.demand is not None}
    observed = replace(_observation(system, seen, holds, incomplete), demands=demands)
    planner = Planner(Deadline.after(system.options.time_limit_s), memo)
    cycle = _Cycle(config, seen, following.decisions, planner, holds, observed)
    try:
        followed = for_rates = cycle.followed(system)
        queues = with_capacities(system, followed.plan, _queues(system, config, seen, following, holds))
        drained = with_backlogs(system, followed.plan, queues, followed.desired, seen.now_s)
        if drained:
            followed = cycle.drained(system, drained, for_rates)
    except SolverError as error:
        failed = dict.fromkeys(system.servers, Hold(HoldReason.plan_failed, str(error))) | holds
        return CycleOutcome(following, loads, failed, _workloads(system, {}, seen, failed), None)
    plan, decisions = followed.plan, followed.decisions
    in_all, planned = followed.planned, {}
    for name, number in for_rates.planned.items():
        planned[name] = PlannedReplicas(number, in_all.get(name, 0) - number)
    for name, queue in queues.items():
        extra_rps = planned[name].for_backlog * queue.capacity.within_rps
        loads[name] = replace(loads[name], backlog=queue.backlog(seen.now_s), backlog_rps=extra_rps)
    holds |= _unplanned(plan, system, holds) | {name: _LAST for name, _ in followed.starved}
    targets = {name: decision.targets for name, decision in decisions.servers.items()}
    workloads = _workloads(system, targets, seen, holds)
    steady = _steady(memories, seen, holds, config.window_s)
    drifts = with_windows(state.drifts, system, plan, steady, seen.now_s, config)
    following = replace(following, decisions=decisions, drifts=drifts)
    return CycleOutcome(following, loads, holds, workloads, plan, planned)


@dataclass(frozen=True, slots=True)
class _Followed:
    """A plan, and the decisions that follow it."""

    plan: Plan
    decisions: Decisions
    starved: Mapping[tuple[str, str], int]
    """Replicas of servers that would lose their last one, by server and accelerator."""

    @property
    def planned(self) -> dict[str, int]:
        """Number of replicas of each server in the plan."""
        pools = self.plan.allocations.items()
        return {name: sum(pool.num_replicas for pool in mine) for name, mine in pools}

    @property
    def desired(self) -> dict[str, int]:
        """Desired replicas of each server."""
        return {name: sum(mine.replicas.values()) for name, mine in self.decisions.servers.items()}


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Settings and inputs that all plans of a cycle have in common."""

    config: LoopConfig
    seen: CycleInputs
    last: Decisions | None
    planner: Planner
    holds: Mapping[str, Hold]
    observed: Observation

    def followed(self, system: System) -> _Followed:
        """Plan a system so that no server loses its last replica, and return the decisions that follow.

        Raises:
            SolverError: the solver failed.
        """
        rules = self.config.applied_rules
        while True:
            plan = plan_next(system, rules, self.last, self.observed, self.planner)
            decisions = stabilise(plan, system, rules, self.last, self.observed)
            starved = _starved(decisions, self.config, self.seen, self.holds)
            if not starved.keys() - system.kept.keys():
                return _Followed(plan, decisions, starved)
            system = system.with_kept({**system.kept, **starved})

    def drained(self, system: System, servers: Mapping[str, Server], before: _Followed) -> _Followed:
        """Plan a system with replicas for backlogs; return the plan without them if it serves more of them.

        Args:
            system: the system without them.
            servers: servers with replicas for their backlogs.
            before: plan and decisions without them.
        """
        found = self.followed(system.with_planned(servers))
        if servers.keys() & (found.plan.left_out.keys() - before.plan.left_out.keys()):
            return before
        if not self.config.releases_early:
            return found
        return replace(found, decisions=with_recommendations(found.decisions, before.decisions))


def decide_remotely(
    system: System, config: LoopConfig, state: LoopState, seen: CycleInputs, ask: AskPlanner
) -> tuple[CycleOutcome, CycleInputs]:
    """Return the outcome of a cycle with a remote planner's targets, and the inputs with its response.

    The same servers are held as with the loop's own planner. A server is also held if the planner has no
    target for it, or if all its targets are zero and it must not be scaled to zero.

    Args:
        system: the documented system.
        config: the configuration.
        state: the state after the last cycle.
        ask: function that requests the targets.
    """
    memories, loads, holds = _measured(system, config, state, seen)
    if any(load.waiting for load in loads.values()):  # the loop's own plan gives the rates for backlogs
        loads = dict(decide(system, config, replace(state, decisions=None), seen).loads)
    given = {name: load for name, load in loads.items() if name not in holds}
    answer = ask(given, seen.replicas)
    targets: RemoteTargets = {}
    if isinstance(answer, Hold):
        holds = dict.fromkeys(system.servers, answer) | holds
    else:
        targets = answer
        holds = _without_targets(targets, config, seen) | holds
    following = LoopState(None, memories, state.drifts)
    workloads = _workloads(system, targets, seen, holds)
    return CycleOutcome(following, loads, holds, workloads, None), replace(seen, remote=answer)


def _without_targets(targets: RemoteTargets, config: LoopConfig, seen: CycleInputs) -> dict[str, Hold]:
    """Return the servers that a remote planner does not know or would stop, with the reason to hold them."""
    result = {}
    for name, there in seen.replicas.items():
        wanted = sum(item.replicas for item in targets.get(name, {}).values())
        if name not in targets:
            result[name] = Hold(HoldReason.not_in_plan, "the service has no target for this server")
        elif not wanted and not config.scale_to_zero and any(item.desired for item in there.values()):
            result[name] = Hold(
                HoldReason.not_in_plan, "the service wants no replica, and scaleToZero is off"
            )
    return result


def _steady(
    memories: Mapping[str, LoadMemory], seen: CycleInputs, holds: Mapping[str, Hold], window_s: float
) -> dict[str, tuple[Window, EstimatedLoad, Mapping[str, int]]]:
    """Return the servers whose replicas have not changed during the window.

    Returns:
        Measurements, load and ready replicas by accelerator, for each server.
    """
    steady = {}
    for name, memory in memories.items():
        reading, load = seen.readings.get(name), memory.load
        unchanged = memory.ready and seen.now_s - memory.ready_since_s >= window_s
        if unchanged and name not in holds and isinstance(reading, Window) and load is not None:
            steady[name] = reading, load, memory.ready
    return steady


def _measured(
    system: System, config: LoopConfig, state: LoopState, seen: CycleInputs
) -> tuple[dict[str, LoadMemory], dict[str, EstimatedLoad], dict[str, Hold]]:
    """Return the stored state of each server's load, the loads to plan for, and the reasons to hold servers.

    A held server is planned with its last measured load, so that other servers do not get its cards. A server
    without replicas starts with the load of its document, because nothing could be measured.
    """
    memories, loads, holds = dict(state.loads), {}, {}
    for name in system.servers:
        reading = seen.readings.get(name, Hold(HoldReason.no_series, "the source does not know this server"))
        last, stated = memories.get(name, LoadMemory()), system.servers[name].current.load
        startup_s = _startup_s(config, seen, name)
        memory, hold = with_reading(reading, last, config, seen.now_s, stated, startup_s)
        memories[name] = memory.with_ready(_all_ready(seen.replicas.get(name, {})), seen.now_s)
        load = memories[name].load
        if load is not None:
            loads[name] = load
        if name not in seen.replicas:
            unknown = Hold(HoldReason.replicas_unknown, "its workloads were not read")
            holds[name] = seen.problems.get(name, unknown)
        elif hold is not None and any(item.desired for item in seen.replicas[name].values()):
            holds[name] = hold
    return memories, loads, holds


def _startup_s(config: LoopConfig, seen: CycleInputs, name: str) -> float:
    """Return the longest start-up time of a server's accelerators that have replicas, or of all [s]."""
    there = seen.replicas.get(name, {})
    used = [on for on, item in there.items() if item.desired] or list(there)
    return max(map(config.startup_of, used), default=config.longest_startup_s)


def _queues(
    system: System, config: LoopConfig, seen: CycleInputs, following: LoopState, holds: Mapping[str, Hold]
) -> dict[str, Queue]:
    """Return the queue of each server that is not held."""
    queues = {}
    decided = following.decisions.servers if following.decisions else {}
    for name, there in seen.replicas.items():
        memory, reading = following.loads.get(name), seen.readings.get(name)
        load = None if memory is None else memory.load
        if load is None or load.demand is None or name in holds or not isinstance(reading, Window):
            continue
        past, starting_s = decided[name].past if name in decided else (), list[float]()
        for on, item in there.items():
            number, startup_s = item.desired - item.ready, config.startup_of(on)
            starting_s += starting_times(past, on, number, startup_s, seen.now_s)
        queues[name] = Queue(
            waiting=load.waiting,
            rate_rps=load.demand.now.rate_rps,
            desired=sum(item.desired for item in there.values()),
            ready=sum(item.ready for item in there.values()),
            starting_s=starting_s,
            startup_s=_startup_s(config, seen, name),
            late_cost=config.late_cost,
            is_common=config.is_common(name, shared=isinstance(system.servers[name], SharedQueue)),
            of_replicas=reading.of_replicas,
        )
    return queues


def _all_ready(there: Mapping[str, ExistingReplicas]) -> dict[str, int]:
    """Return the number of ready replicas by accelerator; empty if more are desired or any are stopping."""
    if any(item.ready != item.desired for item in there.values()):
        return {}
    return {on: item.ready for on, item in there.items() if item.ready}


def _seeded(last: Decisions | None, seen: CycleInputs) -> Decisions:
    """Return the last decisions, in which servers without a decision have their existing replicas."""
    known = {} if last is None else dict(last.servers)
    for name, there in seen.replicas.items():
        if name not in known and any(item.desired for item in there.values()):
            targets = {
                on: ReplicaTarget(item.desired, TargetReason.unchanged, ready_before=item.ready)
                for on, item in there.items()
            }
            known[name] = ServerDecision(targets, 0.0)
    return Decisions(seen.now_s if last is None else last.made_at_s, known)


def _reachable(system: System, seen: CycleInputs, config: LoopConfig) -> System:
    """Return the system in which servers can only use accelerators for which they have a workload.

    A server with replicas keeps at least one, unless it can be scaled to zero.
    """
    changed = {}
    for name, server in system.servers.items():
        there = seen.replicas.get(name)
        if there is None:
            continue
        allowed = tuple(on for on in there if server.accelerators is None or on in server.accelerators)
        least = server.min_num_replicas
        if not config.scale_to_zero and any(item.desired for item in there.values()):
            least = max(1, least)
        changed[name] = server.model_copy(update={"accelerators": allowed, "min_num_replicas": least})
    return system.with_planned(changed)


_LAST = Hold(HoldReason.not_in_plan, "the plan has no replica for this server, and scaleToZero is off")


def _starved(
    decisions: Decisions, config: LoopConfig, seen: CycleInputs, holds: Mapping[str, Hold]
) -> dict[tuple[str, str], int]:
    """Return one replica of each server that would lose its last one, by server and accelerator."""
    starved = {}
    for name, mine in decisions.servers.items():
        running = {on: item for on, item in seen.replicas.get(name, {}).items() if item.desired}
        if running and name not in holds and not config.scale_to_zero and not mine.replicas:
            starved[name, max(running, key=lambda on: running[on].ready)] = 1
    return starved


def _with_one_replica_each(system: System, seen: CycleInputs) -> tuple[System, dict[str, MissingLoad]]:
    """Return the system in which servers of unknown lengths get a replica, and what their loads lack."""
    missing = {}
    for name, server in system.servers.items():
        runs = any(item.desired for item in seen.replicas.get(name, {}).values())
        profiles = system.profiles_of(server.model)
        result = missing_values(server.current.load, None, profiles, runs=runs)
        if result is not None and server.current.load.arrival_rate_rpm:
            missing[name] = result
    changed = {name: with_one_replica(system.servers[name]).with_load(Load()) for name in missing}
    return system.with_planned(changed), missing


def _observation(
    system: System, seen: CycleInputs, holds: Mapping[str, Hold], incomplete: Mapping[str, MissingLoad]
) -> Observation:
    replicas = {
        name: {on: ReplicaStatus(item.ready, max(0, item.desired - item.ready)) for on, item in there.items()}
        for name, there in seen.replicas.items()
    }
    missing = frozenset({*holds, *incomplete}) & system.servers.keys()
    return Observation(seen.now_s, missing, replicas, incomplete)


def _unplanned(plan: Plan, system: System, holds: Mapping[str, Hold]) -> dict[str, Hold]:
    """Return the servers that the plan does not contain, with the reason; they are never scaled."""
    known = plan.allocations.keys() | plan.left_out.keys() | {item.server for item in plan.unserved}
    hold = Hold(HoldReason.not_in_plan, "the plan does not contain this server")
    return {name: hold for name in system.servers if name not in known and name not in holds}


_NOT_CHOSEN = ReplicaTarget(0, TargetReason.not_chosen)


def _workloads(
    system: System,
    targets: Mapping[str, Mapping[str, ReplicaTarget | RemoteTarget]],
    seen: CycleInputs,
    holds: Mapping[str, Hold],
) -> tuple[WorkloadDecision, ...]:
    """Return the decision for each existing workload; held workloads keep their replicas."""
    workloads = []
    for name, there in sorted(seen.replicas.items()):
        if name not in system.servers:
            continue
        hold, mine = holds.get(name), targets.get(name)
        for on, item in sorted(there.items()):
            if hold is not None or mine is None:
                reason, detail = ("", "") if hold is None else (hold.reason.value, hold.detail)
                numbers = item.desired, item.desired, item.ready
                held = WorkloadDecision(name, on, *numbers, reason, detail, held=True, blocked=True)
                workloads.append(held)
                continue
            wanted = mine.get(on, _NOT_CHOSEN)
            numbers = wanted.replicas, item.desired, item.ready
            held = WorkloadDecision(name, on, *numbers, str(wanted.reason), wanted.detail, held=wanted.held)
            workloads.append(held)
    return tuple(workloads)
