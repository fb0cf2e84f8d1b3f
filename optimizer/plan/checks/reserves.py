"""Check the reserves that the plan states for servers.

Rates and replicas are counted from the pools, and availability follows from the binomial distribution. Queue
models recompute the target measures at the load and with headroom, with all replicas and without the spare
ones.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from optimizer.candidates.measuring import measure_pairs, targets_hold
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, Facts, differing
from optimizer.plan.checks.prices import enough_probability, headroom_of
from optimizer.plan.document import Pool, ReserveUse
from optimizer.plan.rows import pool_rows
from optimizer.quantities import counted, precise
from optimizer.queueing.targets import MISS_TOLERANCE, meets_target
from optimizer.spec.schema import Server
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

ROUNDING = 1e-9
"""Relative shortfall of a rate that counts as rounding."""


def check_reserves(facts: Facts) -> list[str]:
    """Return the errors of the reserves."""
    said = {item.server: item for item in facts.plan.reserves}
    own = facts.system.servers.keys() - facts.listed.keys() - facts.rented.keys()
    wanted = {name for name in own if asks_for_reserve(facts, name)}
    problems = [f"{name}: in reserves, but has none to have" for name in sorted(said.keys() - wanted)]
    problems += [
        f"{name}: is to have a reserve, but is not in reserves" for name in sorted(wanted - said.keys())
    ]
    if len(said) < len(facts.plan.reserves):
        problems.append("reserves: a server is listed twice")
    for name in sorted(wanted & said.keys()):
        problems += [f"{name}: {line}" for line in _item(facts, facts.system.servers[name], said[name])]
    return problems


def asks_for_reserve(facts: Facts, name: str) -> bool:
    """Return whether a server requires a reserve."""
    return has_reserve_to_have(facts.system, facts.system.servers[name], facts.load_rpm[name])


def has_reserve_to_have(system: System, server: Server, load_rpm: float) -> bool:
    """Return whether a server requires a reserve at a given load."""
    spares = server.spare_replicas or server.availability_target is not None
    return bool(load_rpm and (spares or headroom_of(system, server)))


def _item(facts: Facts, server: Server, item: ReserveUse) -> Iterator[str]:
    pools, load = facts.pools_of(server.name), facts.load_rpm[server.name]
    for field, said, true in (
        ("headroomWanted", item.headroom_wanted, headroom_of(facts.system, server)),
        ("spareReplicas", item.spare_replicas, server.spare_replicas),
        ("availabilityTarget", item.availability_target, server.availability_target),
    ):
        if said != true:
            yield f"{field} is {true}, the plan says {said}"
    cost = _cost(facts, server, pools, load)
    yield from differing("its reserve costs", cost, item.cost_cents_per_h)
    if (server.spare_replicas or server.availability_target) and len(pools) > 1:
        yield f"{len(pools)} pools, a server with spares or an availability target has only one"
        return
    lacks = next(lacking(facts, server), None)
    if lacks is not None and item.has_reserve:
        yield lacks
    if lacks is None and not item.has_reserve:
        yield "keeps its reserve, the plan says that it does not"


def lacking(facts: Facts, server: Server) -> Iterator[str]:
    """Yield the missing parts of a server's reserve."""
    pools, load = facts.pools_of(server.name), facts.load_rpm[server.name]
    grown, gone = load * (1 + headroom_of(facts.system, server)), server.spare_replicas
    left = sum(pool.max_arrival_rate_rpm * max(1 - gone / pool.num_replicas, 0.0) for pool in pools)
    without = f" without {gone} of its replicas" if gone else ""
    least, replicas = server.min_num_replicas, sum(pool.num_replicas for pool in pools)
    if replicas < least + gone:
        yield f"has {counted(replicas, 'replica')}, its reserve requires {least} and {gone} spares"
        return
    if left < grown * (1 - RELATIVE_TOLERANCE):
        yield f"carries at most {precise(left)}{without}, its reserve requires {precise(grown)} requests/min"
        return
    if server.availability_target is not None:
        there = _availability(facts, server, grown)
        if there < server.availability_target * (1 - RELATIVE_TOLERANCE):
            target = precise(server.availability_target)
            yield f"enough replicas are available with probability {precise(there)}, its target is {target}"
    for rate in (load, grown):
        for spares in {0, gone}:
            yield from _missed(facts, server, rate, spares)


def _availability(facts: Facts, server: Server, grown_rpm: float) -> float:
    """Return the probability that enough replicas are available for the load with headroom."""
    (pool,) = facts.pools_of(server.name)
    each = pool.max_arrival_rate_rpm / pool.num_replicas
    needed = max(math.ceil(grown_rpm / each * (1 - RELATIVE_TOLERANCE)), server.min_num_replicas, 1)
    count = facts.system.profiles[server.model, pool.accelerator].acc_count
    there = facts.system.accelerators[pool.accelerator].availability ** count
    return enough_probability(pool.num_replicas, needed, there)


def _cost(facts: Facts, server: Server, pools: Sequence[Pool], load_rpm: float) -> float:
    """Return the cost of the reserve, if the replicas with the highest cost per request are removed first."""
    each = {pool.accelerator: pool.max_arrival_rate_rpm / pool.num_replicas for pool in pools}
    price = {pool.accelerator: facts.cost_of(server.name, pool) / pool.num_replicas for pool in pools}
    keep, cost = {pool.accelerator: pool.num_replicas for pool in pools}, 0.0
    for name in sorted(keep, key=lambda name: (-price[name] / each[name], name)):
        others = {other: count for other, count in keep.items() if other != name}
        missing = load_rpm * (1 - ROUNDING) - sum(each[other] * count for other, count in others.items())
        least = max(
            math.ceil(missing / each[name]), max(server.min_num_replicas, 1) - sum(others.values()), 0
        )
        cost += price[name] * max(keep[name] - least, 0)
        keep[name] = min(keep[name], least)
    return cost


def _missed(facts: Facts, server: Server, load_rpm: float, gone: int) -> Iterator[str]:
    """Yield the targets that are missed at a load if some replicas are unavailable."""
    arrays, pools = facts.arrays, facts.pools_of(server.name)
    most = sum(pool.max_arrival_rate_rpm for pool in pools)
    count = np.array([pool.num_replicas for pool in pools])
    rate = np.array([load_rpm * pool.max_arrival_rate_rpm / most for pool in pools])
    s, a, batch, _ = pool_rows(arrays, ((server.name, pool) for pool in pools))
    each = rate / SECONDS_PER_MINUTE / np.maximum(count - gone, 1)
    if arrays.servers.is_queue[s[0]]:
        if not targets_hold(arrays, s, a, batch, each).all():
            at = f"{precise(load_rpm)} requests/min" + (f" without {gone} replicas" if gone else "")
            yield f"a server of the queue misses a target at {at}"
        return
    found = measure_pairs(arrays, s, a, batch, each)
    targets = arrays.servers.targets.take(s)
    for k, row in np.argwhere(~meets_target(found.targets, targets.limits, 2 * MISS_TOLERANCE)).tolist():
        measure, limit = targets.measures[k], targets.limits[k, row]
        at = f"{precise(load_rpm)} requests/min" + (f" without {gone} replicas" if gone else "")
        figure = measure.text(found.targets[k, row])
        yield f"{measure.label} at {at} is {figure}, target {measure.text(limit)}"
