"""Check shared queues: the members served, their metrics, and that every class meets its targets.

The other checks treat a queue as one server with the members that the plan serves, and each unserved member
as a separate server.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from optimizer.candidates.class_rows import ClassRows
from optimizer.candidates.measuring import measure_members, measure_pairs, parts
from optimizer.documents import MIN_RATE
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, SHARE_TOLERANCE, Facts, close, differing
from optimizer.plan.checks.queues import FIGURES
from optimizer.plan.checks.service import is_well_formed
from optimizer.plan.document import Plan, Pool, QueueMember, SharedQueueUse
from optimizer.plan.rows import pool_rows
from optimizer.plan.shared_queues import member_figures
from optimizer.quantities import counted, precise
from optimizer.queueing.sizing import largest_rate
from optimizer.queueing.targets import MISS_TOLERANCE, meets_target
from optimizer.spec.routes import with_undivided_lengths
from optimizer.spec.schema import AllocationData, Server
from optimizer.spec.shared_queues import SharedQueue, as_served
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


def check_queue_names(plan: Plan, system: System) -> list[str]:
    """Return missing, unknown and duplicate members, and rates of unknown members."""
    queues = {name: server for name, server in system.servers.items() if isinstance(server, SharedQueue)}
    problems = [f"{name}: not in sharedQueues" for name in queues if name not in plan.shared_queues]
    problems += [
        f"{name}: no shared queue of the system" for name in plan.shared_queues if name not in queues
    ]
    problems += [
        f"{name}: a shared queue is not in allocations" for name in queues if name not in plan.allocations
    ]
    listed = {item.server: item for item in plan.unserved}
    for name, use in plan.shared_queues.items():
        if name not in queues:
            continue
        rates = {part.name: part.current.load.arrival_rate_rpm for part in queues[name].parts}
        if sorted([*use.members, *use.unserved]) != sorted(rates):
            problems.append(f"{name}: its servers are {', '.join(sorted(rates))}, each once")
        for member, item in use.members.items():
            load = rates.get(member, 0.0)
            if not (
                MIN_RATE <= item.arrival_rate_rpm <= load * (1 + RELATIVE_TOLERANCE)
                or item.arrival_rate_rpm == load
            ):
                problems.append(
                    f"{member}: {precise(item.arrival_rate_rpm)} of {precise(load)} requests/min in {name}"
                )
        problems += [
            f"{member}: not served in {name}, but not in unserved"
            for member in use.unserved
            if member not in listed
        ]
    return problems


def as_planned(plan: Plan, system: System) -> System:
    """Return the system with only the load that a plan serves of queues and routes."""
    servers = as_served(system.servers, plan.served_rpm)
    servers = with_undivided_lengths(servers, system.routes.values())
    if servers is system.servers:
        return system
    alone = {
        part.name: _alone(part)
        for queue in system.servers.values()
        if isinstance(queue, SharedQueue)
        for part in queue.parts
        if any(item.server == part.name for item in plan.unserved)
    }
    together = {**servers, **alone}
    return replace(system, servers=MappingProxyType({name: together[name] for name in sorted(together)}))


def _alone(part: Server) -> Server:
    """Return a member as a server without replicas, with only its load."""
    changes = {
        "current": AllocationData(load=part.current.load),
        "min_num_replicas": 0,
        "headroom_share": 0.0,
        "spare_replicas": 0,
        "availability_target": None,
        "surge": 0.0,
        "preferred": None,
    }
    return part.model_copy(update=changes)


def check_shared_queues(facts: Facts) -> list[str]:
    """Return the errors of the pools and members of shared queues."""
    problems = []
    for name, use in facts.plan.shared_queues.items():
        problems += [f"{name}: {line}" for line in _queue(facts, name, use)]
    return problems


def _queue(facts: Facts, name: str, use: SharedQueueUse) -> Iterator[str]:
    pools = facts.pools_of(name)
    if len(pools) > 1:
        yield f"{len(pools)} pools, a shared queue has only one"
        return
    carried = math.fsum(member.arrival_rate_rpm for member in use.members.values())
    if pools and not close(carried, pools[0].arrival_rate_rpm):
        pool_rpm = precise(pools[0].arrival_rate_rpm)
        yield f"its servers have {precise(carried)} requests/min, its pool {pool_rpm}"
    if carried and not pools:
        yield "serves requests without replicas"
    yield from _service(facts, name, use)
    if pools and pools[0].arrival_rate_rpm > 0 and is_well_formed(facts, name, pools[0]):
        yield from _figures(facts, name, pools[0])
        yield from _members(facts, name, use)


def _service(facts: Facts, name: str, use: SharedQueueUse) -> Iterator[str]:
    """Check that members are served in full or not at all; a policy can serve at most one in part."""
    queue, partly = facts.whole.servers[name], []
    assert isinstance(queue, SharedQueue)
    for part in queue.parts:
        load, item = part.current.load.arrival_rate_rpm, facts.listed.get(part.name)
        member = use.members.get(part.name)
        share = 0.0 if member is None else member.arrival_rate_rpm / load if load else 1.0
        if item is None and share < 1 - RELATIVE_TOLERANCE:
            yield f"{part.name} is served {precise(share)}, but not in unserved"
        if item is not None and not close(item.served_fraction, share, SHARE_TOLERANCE):
            yield f"{part.name} is served {precise(share)}, the plan says {precise(item.served_fraction)}"
        if item is not None and share:
            partly.append(part.name)
    if partly and not facts.shares_leftover:
        yield f"{partly[0]} is partially served, which the options do not allow"
    if len(partly) > 1:
        yield f"{counted(len(partly), 'server')} are partially served, at most one can be"


def _figures(facts: Facts, name: str, pool: Pool) -> Iterator[str]:
    """Check the metrics of a queue's pool over all requests, and its maximum rate along the mix."""
    arrays = facts.arrays
    row = pool_rows(arrays, [(name, pool)])
    found = measure_pairs(arrays, *row).performance
    for field, label, unit, tolerance in FIGURES:
        value, stated = float(getattr(found, field)[0]), getattr(pool, field)
        yield from differing(f"{label} is", value, stated, unit, tolerance)
    ((_, some),) = parts(arrays, *row[:3])
    classes = ClassRows.of(arrays, some)
    factor = float(arrays.rate_factor[row[0][0], row[1][0]])
    maximum = float(largest_rate(classes.queues, classes.targets).max_rate_rps.min())
    maximum *= factor * SECONDS_PER_MINUTE * pool.num_replicas
    if not close(maximum, pool.max_arrival_rate_rpm):
        stated = precise(pool.max_arrival_rate_rpm)
        yield f"its maximum rate is {precise(maximum)} requests/min, the plan says {stated}"
    if pool.targets:
        yield "its pool has targets, which its servers have"


def _members(facts: Facts, name: str, use: SharedQueueUse) -> Iterator[str]:
    """Check the metrics of each member, and that its targets are met."""
    figures = {
        member: found for (_, member), found in member_figures(facts.arrays, {name: facts.pools_of(name)})
    }
    for member, item in use.members.items():
        if not item.arrival_rate_rpm:
            continue
        true = QueueMember.model_validate({"arrivalRate": item.arrival_rate_rpm, **figures[member]})
        for field in ("itl_ms", "ttft_ms", "wait_ms", "wait_p95_ms"):
            value, stated = getattr(true, field), getattr(item, field)
            yield from differing(f"{member}: {field.removesuffix('_ms')} is", value, stated, " ms")
        if [each.measure for each in true.targets] != [each.measure for each in item.targets]:
            yield f"{member}: its targets must be on {[each.measure for each in true.targets]}"
            continue
        for target, claim in zip(true.targets, item.targets, strict=True):
            for value, stated in ((target.value, claim.value), (target.limit, claim.limit)):
                yield from differing(
                    f"{member}: {target.measure} is", value, stated, absolute=SHARE_TOLERANCE
                )
    yield from _missed(facts, name)


def _missed(facts: Facts, name: str) -> Iterator[str]:
    """Yield the targets of members that are missed at the load per replica."""
    arrays, (pool,) = facts.arrays, facts.pools_of(name)
    measures, names = arrays.servers.members.targets.measures, arrays.servers.members.names
    for found in measure_members(arrays, *pool_rows(arrays, [(name, pool)])):
        met = meets_target(found.targets, found.limits, 2 * MISS_TOLERANCE)
        for k in np.flatnonzero(~met).tolist():
            value, limit = measures[k].text(found.targets[k]), measures[k].text(found.limits[k])
            yield f"{names[found.member]}: {measures[k].label} is {value}, target {limit}"
