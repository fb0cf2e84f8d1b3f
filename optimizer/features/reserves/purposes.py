"""Counts replicas by purpose: load, headroom, spares, availability and roll-out (math.md section 33)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import measure_pairs
from optimizer.features.reserves.offers import least_available, replicas_for_both
from optimizer.features.reserves.uses import ReplicaPurposes, ReserveUse
from optimizer.features.rollouts.uses import RolloutUse
from optimizer.plan.rows import pool_pairs
from optimizer.schema.pools import Pool
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE

WANTED_UTILIZATION = 0.8
"""Utilisation target; plans state the replica count from which it is compatible with an availability target.
"""


def replica_counts(
    arrays: SystemArrays,
    pools: Mapping[str, Sequence[Pool]],
    reserves: Sequence[ReserveUse],
    rollouts: Mapping[str, RolloutUse],
) -> dict[str, ReplicaPurposes]:
    """Return replica counts by purpose, for served servers with an availability target or a roll-out.

    Args:
        arrays: the system as arrays, with only the served members of shared queues.
        pools: pools by server.
        reserves: reserves of servers that are served in full.
        rollouts: extra replicas during roll-outs, by server.
    """
    replica_purposes, kept = {}, {item.server: item for item in reserves}
    targeted = [name for name, item in kept.items() if item.availability_target is not None]
    full = _full_utilizations(arrays, [(name, pool) for name in targeted for pool in pools.get(name, ())])
    for name, of_server in pools.items():
        reserve = kept.get(name)
        if not of_server or not (name in targeted or name in rollouts):
            continue
        extra = rollouts[name].replicas if name in rollouts else 0
        replicas = sum(pool.num_replicas for pool in of_server)
        if len(of_server) > 1 or reserve is None:
            replica_purposes[name] = ReplicaPurposes(replicas=replicas, load=replicas, rollout=extra)
        else:
            replica_purposes[name] = _count(arrays, name, of_server[0], reserve, full.get(name), extra)
    return replica_purposes


def _full_utilizations(arrays: SystemArrays, pools: Sequence[tuple[str, Pool]]) -> dict[str, float]:
    """Return the utilisation of a replica of each server's pool at its maximum rate, 0 to 1, by server."""
    if not pools:
        return {}
    each = [pool.max_arrival_rate_rpm / pool.num_replicas / SECONDS_PER_MINUTE for _, pool in pools]
    pairs, _ = pool_pairs(arrays, pools)
    full_utilizations = measure_pairs(arrays, pairs, np.array(each)).performance.utilization.tolist()
    return {name: value for (name, _), value in zip(pools, full_utilizations, strict=True)}


def _count(
    arrays: SystemArrays, name: str, pool: Pool, reserve: ReserveUse, full: float | None, extra: int
) -> ReplicaPurposes:
    """Return the replica counts by purpose of a server with one pool and a required reserve.

    `full` is the utilisation of a replica at its maximum rate, or None without an availability target, and
    `extra` the number of extra replicas during a roll-out.
    """
    s, a = arrays.server_names.index(name), arrays.accelerator_names.index(pool.accelerator)
    load_rps = float(arrays.servers.load_rps[s])
    each_rps = pool.max_arrival_rate_rpm / pool.num_replicas / SECONDS_PER_MINUTE
    least = max(int(arrays.servers.min_replicas[s]), 1)

    def needed(rate_rps: float) -> int:
        return max(math.ceil(rate_rps / each_rps * (1 - ROUNDING)), least)

    # Headroom, spares and availability, in this order, each take the replicas that they need from those that
    # the load and earlier purposes do not need. The rest counts as replicas for the load.
    left = pool.num_replicas - needed(load_rps)
    grown = needed(load_rps * (1 + reserve.headroom_wanted))
    headroom = min(grown - needed(load_rps), left)
    spares = min(reserve.spare_replicas, left - headroom)
    availability, both_from = 0, None
    if reserve.availability_target is not None:
        there = float(arrays.profiles.availability[arrays.profile_of[s, a]])
        target = reserve.availability_target
        enough = least_available(np.array([grown]), np.array([there]), np.array([target]))[0]
        availability = max(int(min(enough - grown - spares, left - headroom - spares)), 0)
        both_from = replicas_for_both(there, target, full or 0.0, WANTED_UTILIZATION)
    return ReplicaPurposes(
        replicas=pool.num_replicas,
        load=pool.num_replicas - headroom - spares - availability,
        headroom=headroom,
        spares=spares,
        availability=availability,
        rollout=extra,
        availability_target=reserve.availability_target,
        utilization=None if reserve.availability_target is None else pool.utilization,
        full_utilization=full,
        both_from=both_from,
    )
