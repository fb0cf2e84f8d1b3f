"""Computes the shared queues of a plan: served members, their metrics, and unserved members."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from optimizer.candidates import Candidates
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import MemberMetrics, measure_members
from optimizer.documents import MIN_RATE
from optimizer.features.shared_queues.streams import SharedQueue
from optimizer.features.shared_queues.uses import QueueMember, SharedQueueUse
from optimizer.plan.document import Plan
from optimizer.plan.pool_shapes import fields_of_load
from optimizer.plan.rows import pool_pairs, target_figures
from optimizer.quantities import precise
from optimizer.queueing.measures import TargetMeasure
from optimizer.schema.pools import Pool
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.system import System
from optimizer.tolerances import SAME
from optimizer.units import SECONDS_PER_MINUTE

Served = Mapping[str, Mapping[str, float]]
"""Served arrival rates [requests/min], by queue and member."""
Members = Sequence[tuple[tuple[str, str], MemberMetrics]]
"""Names of queue and member, and metrics, of each loaded member of a shared queue."""


def queues_as_served(candidates: Candidates, problem: Problem, solution: Solution) -> Served:
    """Return the served rates of members of each shared queue in a solution; empty without replicas."""
    served: dict[str, dict[str, float]] = {}
    members, table = problem.members, problem.table
    for s, name in enumerate(candidates.arrays.server_names):
        server = candidates.system.servers[name]
        if not isinstance(server, SharedQueue):
            continue
        chosen = np.flatnonzero((solution.replicas > 0) & (table.server == s))
        rates = members.load_rps[members.server == s] * SECONDS_PER_MINUTE
        bits = int(table.members[chosen[0]]) if len(chosen) else 0
        if not problem.min_replicas[s]:
            bits |= sum(1 << place for place, rate in enumerate(rates.tolist()) if not rate)
        served[name] = {
            part.name: float(rates[place]) for place, part in enumerate(server.members) if bits >> place & 1
        }
    return served


def queue_uses(
    system: System, served: Served, figures: Mapping[tuple[str, str], dict[str, object]]
) -> dict[str, SharedQueueUse]:
    """Return the plan's entry for each shared queue, with the metrics of its members, by name.

    Args:
        system: the planned system.
        served: served arrival rates [requests/min], by queue and member.
        figures: metrics of the loaded members, by queue and member.
    """
    uses = {}
    for name, rates in served.items():
        server = system.servers[name]
        assert isinstance(server, SharedQueue)
        uses[name] = SharedQueueUse(
            members={
                member: QueueMember.model_validate(
                    {"arrival_rate_rpm": rate, **figures.get((name, member), {})}
                )
                for member, rate in rates.items()
            },
            unserved=tuple(part.name for part in server.members if part.name not in rates),
        )
    return uses


def measured_members(
    arrays: SystemArrays, pools: Iterable[tuple[str, Pool]]
) -> Iterator[tuple[tuple[str, str], MemberMetrics]]:
    """Yield the names of queue and member, and the metrics, of each loaded member of the pools' queues.

    Args:
        arrays: the system as arrays, with only the members that the plan serves.
        pools: the pools of a plan, with the names of their servers.
    """
    queues = dict(zip(arrays.server_names, arrays.servers.is_queue.tolist(), strict=True))
    rows = [(name, pool) for name, pool in pools if queues[name] and pool.arrival_rate_rpm > 0]
    if not rows:
        return
    for members in measure_members(arrays, *pool_pairs(arrays, rows)):
        yield (rows[members.row][0], arrays.servers.members.names[members.member]), members


def member_figures(
    system: System, arrays: SystemArrays, members: Iterable[tuple[tuple[str, str], MemberMetrics]]
) -> Iterator[tuple[tuple[str, str], dict[str, object]]]:
    """Yield the names of queue and member, and the fields of `QueueMember`, of each measured member."""
    measures = arrays.servers.members.targets.measures
    for key, measured in members:
        shown = target_figures(measures, measured.targets, measured.limits)
        yield key, {**measured.means, "targets": shown, **_shape_fields(system, key[1], measures, measured)}


def _shape_fields(
    system: System, name: str, measures: Sequence[TargetMeasure], member_metrics: MemberMetrics
) -> Mapping[str, object]:
    """Return the fields of a member about request shapes; empty if no load has any."""
    load, shaped = system.streams[name].load, member_metrics.shaped
    if shaped is None:
        return {}
    limits = dict(zip(measures, member_metrics.limits.tolist(), strict=True))
    finite = {measure: limit for measure, limit in limits.items() if limit < math.inf}
    return fields_of_load(load, shaped, finite, member_metrics.delay_ms)


def queue_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield errors for missing, unknown and duplicate members of shared queues, and for their rates."""
    queues = {name: server for name, server in system.servers.items() if isinstance(server, SharedQueue)}
    yield from (f"{name}: not in sharedQueues" for name in queues if name not in plan.shared_queues)
    yield from (f"{name}: no shared queue of the system" for name in plan.shared_queues if name not in queues)
    unplaced = (name for name in queues if name not in plan.allocations)
    yield from (f"{name}: a shared queue is not in allocations" for name in unplaced)
    listed = {item.server for item in plan.unserved}
    for name, use in plan.shared_queues.items():
        if name not in queues:
            continue
        rates = {part.name: part.current.load.arrival_rate_rpm for part in queues[name].members}
        if sorted([*use.members, *use.unserved]) != sorted(rates):
            yield f"{name}: its servers are {', '.join(sorted(rates))}, each once"
        for member, item in use.members.items():
            load = rates.get(member, 0.0)
            if not (MIN_RATE <= item.arrival_rate_rpm <= load * (1 + SAME) or item.arrival_rate_rpm == load):
                yield f"{member}: {precise(item.arrival_rate_rpm)} of {precise(load)} requests/min in {name}"
        unlisted = (member for member in use.unserved if member not in listed)
        yield from (f"{member}: not served in {name}, but not in unserved" for member in unlisted)


# --- members that are not served -----------------------------------------------------------------------


def short_members(
    candidates: Candidates, problem: Problem, served: Served
) -> Iterator[tuple[int, int, float]]:
    """Yield index of the queue, index of the member and served share of each member not served in full.

    Args:
        problem: the planning problem.
        served: served arrival rates [requests/min], by queue and member.
    """
    members = problem.members
    for s, name in enumerate(candidates.arrays.server_names):
        for m in np.flatnonzero(members.server == s).tolist() if name in served else ():
            load = float(members.load_rps[m]) * SECONDS_PER_MINUTE
            rate = served[name].get(members.names[m])
            if rate is None or rate < load:
                yield s, m, 0.0 if rate is None else rate / load
