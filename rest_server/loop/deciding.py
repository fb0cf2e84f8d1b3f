"""One cycle as a pure function: from the state and the inputs to the desired replicas and the next state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from optimizer.candidates import SizingMemo
from optimizer.errors import SolverError
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import (
    Decisions,
    Observation,
    ReplicaStatus,
    ReplicaTarget,
    ServerDecision,
    TargetReason,
)
from optimizer.stabilisation.keeping import Planner
from optimizer.stabilisation.stabilise import denoise_loads, plan_next, stabilise
from rest_server.loop.config import LoopConfig
from rest_server.loop.draining import PlannedReplicas, planned_replicas, with_backlogs, with_target_shares
from rest_server.loop.drift import Drifts, with_factors, with_windows
from rest_server.loop.loads import EstimatedLoad, LoadMemory, with_measured_loads, with_reading
from rest_server.loop.window import Hold, HoldReason, Reading, Window


@dataclass(frozen=True, slots=True)
class ExistingReplicas:
    """Replicas of a server on one accelerator."""

    desired: int
    """Replicas that its workload asks for."""
    ready: int


Existing = Mapping[str, Mapping[str, ExistingReplicas]]
"""Replicas by server and accelerator, of all workloads that exist."""


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """Desired replicas by a remote planner."""

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
    """Everything that a cycle reads."""

    now_s: float
    """Time [s since the epoch]."""
    readings: Mapping[str, Reading]
    """Measurements by server."""
    replicas: Existing
    """Existing replicas; servers whose workloads cannot be read are absent."""
    problems: Mapping[str, Hold] = field(default_factory=dict)
    """Reasons that the workloads of servers cannot be read."""
    remote: RemoteTargets | Hold | None = None
    """Answer of a remote planner; None without one."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """State passed from one cycle to the next."""

    decisions: Decisions | None = None
    loads: Mapping[str, LoadMemory] = field(default_factory=dict)
    drifts: Drifts = field(default_factory=dict)
    """Comparisons of token times, by profile."""


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
    """Whether the number differs from the plan, or the server is not planned at all."""
    blocked: bool = False
    """Whether the workload must not be scaled in this cycle."""

    @property
    def changes(self) -> bool:
        """Whether the workload is to be scaled."""
        return not self.blocked and self.replicas != self.existing


@dataclass(frozen=True, slots=True)
class CycleOutcome:
    """Result of a cycle."""

    state: LoopState
    loads: Mapping[str, EstimatedLoad]
    """Measured loads, by server."""
    holds: Mapping[str, Hold]
    """Servers that keep their replicas, with the reason."""
    workloads: tuple[WorkloadDecision, ...]
    plan: Plan | None
    """The plan; None if there is none."""
    planned: Mapping[str, PlannedReplicas] = field(default_factory=dict)
    """Planned replicas by server."""


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
        seen: the inputs.
        memo: cache of sizings.
    """
    memories, loads, holds = _measured(system, config, state, seen)
    following = LoopState(_seeded(state.decisions, seen), memories, state.drifts)
    system = with_factors(system, state.drifts)
    system = _reachable(with_measured_loads(system, loads, variation=config.variation), seen, config)
    observed = _observation(system, seen, holds)
    rules, last = config.applied_rules, following.decisions
    to_plan, estimates = denoise_loads(system, rules, last, observed)
    planner = Planner(Deadline.after(system.options.time_limit_s), memo)
    try:
        plan = plan_next(to_plan, rules, last, observed, planner)
        for_rates = planned_replicas(plan)
        loads = with_target_shares(loads, to_plan, plan)
        draining = with_backlogs(to_plan, loads)
        if draining is not to_plan:
            to_plan = draining
            plan = plan_next(to_plan, rules, last, observed, planner)
        decisions = stabilise(plan, to_plan, rules, last, observed, estimates)
        while (starved := _starved(decisions, config, seen, holds)) and starved.keys() - to_plan.kept.keys():
            to_plan = to_plan.with_kept({**to_plan.kept, **starved})
            plan = plan_next(to_plan, rules, last, observed, planner)
            decisions = stabilise(plan, to_plan, rules, last, observed, estimates)
    except SolverError as error:
        failed = dict.fromkeys(system.servers, Hold(HoldReason.plan_failed, str(error))) | holds
        return CycleOutcome(following, loads, failed, _workloads(system, last, seen, failed), None)
    holds |= _unplanned(plan, system, holds) | {name: _LAST for name, _ in starved}
    workloads = _workloads(system, decisions, seen, holds)
    steady = _steady(memories, seen, holds, config.window_s)
    drifts = with_windows(state.drifts, system, plan, steady, seen.now_s, config.drift)
    following = replace(following, decisions=decisions, drifts=drifts)
    in_all = planned_replicas(plan)
    planned = {
        name: PlannedReplicas(number, in_all.get(name, 0) - number) for name, number in for_rates.items()
    }
    return CycleOutcome(following, loads, holds, workloads, plan, planned)


def decide_remotely(
    system: System, config: LoopConfig, state: LoopState, seen: CycleInputs, ask: AskPlanner
) -> tuple[CycleOutcome, CycleInputs]:
    """Return the outcome with the targets of a remote planner, and the inputs with its answer.

    The same servers are held as by the loop's own planner, and so is a server for which the planner has no
    target, or none above zero unless it can be scaled to zero.

    Args:
        system: the documented system.
        config: the configuration.
        state: the state after the last cycle.
        seen: the inputs.
        ask: asks the planner.
    """
    memories, loads, holds = _measured(system, config, state, seen)
    given = {name: load for name, load in loads.items() if name not in holds}
    answer = ask(given, seen.replicas)
    targets: RemoteTargets = {}
    if isinstance(answer, Hold):
        holds = dict.fromkeys(system.servers, answer) | holds
    else:
        targets = answer
        holds = _without_targets(targets, config, seen) | holds
    decisions = Decisions(seen.now_s, {name: _remote_decision(mine) for name, mine in targets.items()})
    following = LoopState(None, memories, state.drifts)
    workloads = tuple(
        item if item.blocked else replace(item, reason=mine.reason)
        for item in _workloads(system, decisions, seen, holds)
        for mine in [targets.get(item.server, {}).get(item.accelerator, _NONE)]
    )
    return CycleOutcome(following, loads, holds, workloads, None), replace(seen, remote=answer)


_NONE = RemoteTarget(0, TargetReason.not_chosen.value, "", held=False)


def _without_targets(targets: RemoteTargets, config: LoopConfig, seen: CycleInputs) -> dict[str, Hold]:
    """Return the servers that a remote planner does not know, or would stop."""
    found = {}
    for name, there in seen.replicas.items():
        wanted = sum(item.replicas for item in targets.get(name, {}).values())
        if name not in targets:
            found[name] = Hold(HoldReason.not_in_plan, "the service has no target for this server")
        elif not wanted and not config.scale_to_zero and any(item.desired for item in there.values()):
            found[name] = Hold(HoldReason.not_in_plan, "the service wants no replica, and scaleToZero is off")
    return found


def _remote_decision(mine: Mapping[str, RemoteTarget]) -> ServerDecision:
    """Return targets as a decision; the reason is a text of the service."""
    targets = {
        on: ReplicaTarget(item.replicas, TargetReason.replanned, held=item.held, detail=item.detail)
        for on, item in mine.items()
    }
    return ServerDecision(targets, 0.0)


def _steady(
    memories: Mapping[str, LoadMemory], seen: CycleInputs, holds: Mapping[str, Hold], window_s: float
) -> dict[str, tuple[Window, EstimatedLoad, Mapping[str, int]]]:
    """Return servers whose replicas have not changed during the window, with measurements and replicas."""
    found = {}
    for name, memory in memories.items():
        reading, load = seen.readings.get(name), memory.load
        unchanged = memory.ready and seen.now_s - memory.ready_since_s >= window_s
        if unchanged and name not in holds and isinstance(reading, Window) and load is not None:
            found[name] = reading, load, memory.ready
    return found


def _measured(
    system: System, config: LoopConfig, state: LoopState, seen: CycleInputs
) -> tuple[dict[str, LoadMemory], dict[str, EstimatedLoad], dict[str, Hold]]:
    """Return the stored state of each server's load, the loads to plan for, and the reasons to hold.

    A held server is planned with its last measured load, so that others do not get its cards. A server
    without replicas starts with the load of its document, because nothing could be measured.
    """
    memories, loads, holds = dict(state.loads), {}, {}
    for name in system.servers:
        reading = seen.readings.get(name, Hold(HoldReason.no_series, "the source does not know this server"))
        memory, hold = with_reading(reading, memories.get(name, LoadMemory()), config, seen.now_s)
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


def _all_ready(there: Mapping[str, ExistingReplicas]) -> dict[str, int]:
    """Return the ready replicas by accelerator; none if others are desired or are stopping."""
    if any(item.ready != item.desired for item in there.values()):
        return {}
    return {on: item.ready for on, item in there.items() if item.ready}


def _seeded(last: Decisions | None, seen: CycleInputs) -> Decisions:
    """Return the last decisions; servers without one have the replicas that exist."""
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
    """Return the system in which servers can use the accelerators that have a workload.

    Unless it can be scaled to zero, a server with replicas keeps at least one.
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
    return replace(system, servers={**system.servers, **changed})


_LAST = Hold(HoldReason.not_in_plan, "the plan has no replica for this server, and scaleToZero is off")


def _starved(
    decisions: Decisions, config: LoopConfig, seen: CycleInputs, holds: Mapping[str, Hold]
) -> dict[tuple[str, str], int]:
    """Return one replica of each server that would lose its last one, by server and accelerator."""
    found = {}
    for name, mine in decisions.servers.items():
        running = {on: item for on, item in seen.replicas.get(name, {}).items() if item.desired}
        if running and name not in holds and not config.scale_to_zero and not mine.replicas:
            found[name, max(running, key=lambda on: running[on].ready)] = 1
    return found


def _observation(system: System, seen: CycleInputs, holds: Mapping[str, Hold]) -> Observation:
    replicas = {
        name: {on: ReplicaStatus(item.ready, max(0, item.desired - item.ready)) for on, item in there.items()}
        for name, there in seen.replicas.items()
    }
    return Observation(seen.now_s, frozenset(holds) & system.servers.keys(), replicas)


def _unplanned(plan: Plan, system: System, holds: Mapping[str, Hold]) -> dict[str, Hold]:
    """Return the servers that the plan does not contain; they are never scaled."""
    known = plan.allocations.keys() | plan.left_out.keys() | {item.server for item in plan.unserved}
    hold = Hold(HoldReason.not_in_plan, "the plan does not contain this server")
    return {name: hold for name in system.servers if name not in known and name not in holds}


def _workloads(
    system: System, decisions: Decisions | None, seen: CycleInputs, holds: Mapping[str, Hold]
) -> tuple[WorkloadDecision, ...]:
    """Return the decision for each existing workload; held ones keep their replicas."""
    found = []
    for name, there in sorted(seen.replicas.items()):
        if name not in system.servers:
            continue
        decision = None if decisions is None else decisions.servers.get(name)
        hold = holds.get(name)
        for on, item in sorted(there.items()):
            target = None if decision is None else decision.targets.get(on)
            if hold is not None or decision is None:
                reason, detail = ("", "") if hold is None else (hold.reason.value, hold.detail)
                numbers = item.desired, item.desired, item.ready
                held = WorkloadDecision(name, on, *numbers, reason, detail, held=True, blocked=True)
                found.append(held)
                continue
            wanted = target or ReplicaTarget(0, TargetReason.not_chosen)
            reason, detail = wanted.reason.value, wanted.detail
            numbers = wanted.replicas, item.desired, item.ready
            found.append(WorkloadDecision(name, on, *numbers, reason, detail, held=wanted.held))
    return tuple(found)
