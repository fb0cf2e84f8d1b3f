"""The limit that decides the number of replicas of each pool, from the sizing of its replicas.

A replica is evaluated at the maximum rate for which its pool was sized: the target that is reached there
decides. If the replica is saturated at this rate, its throughput decides, or the memory that limits its
batch.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays, tabulate_as_served
from optimizer.candidates.class_rows import ServerRows, rows_of
from optimizer.candidates.measuring import parts
from optimizer.candidates.pairs import Pairs, arrays_of, batch_limit, requests_in_memory
from optimizer.candidates.table import CandidateTable
from optimizer.plan import Plan, Pool
from optimizer.plan.rows import pool_pairs
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.sizing import TPS_STABILITY_SHARE
from optimizer.queueing.targets import target_ratio
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE

SATURATED_SHARE = 0.95
"""Share of the maximum stable rate above which a replica counts as saturated: without any latency target, its
maximum rate would be at most a twentieth higher.
"""
HALF_A_REPLICA = 0.5
"""Largest share of the capacity of a single replica at which the number of replicas decides: half a replica
would be enough.
"""

Decider = Literal["throughput", "memory", "one replica", "minimum replicas", "simulation"] | TargetMeasure
"""A limit that decides: a target, or what limits replicas that meet all targets."""


def deciding_limits(system: System, plan: Plan) -> dict[tuple[str, str], Decider]:
    """Return the limit that decides the size of each pool with load, by planned server and accelerator."""
    system = plan.planned_in(system)
    arrays = tabulate_as_served(system, arrays_of(system), plan.served_rpm)
    pools = [
        (name, pool)
        for name in plan.allocations
        for pool in plan.serving_pools_of(name)
        if pool.arrival_rate_rpm > 0
    ]
    if not pools:
        return {}
    pairs, _ = pool_pairs(arrays, pools)
    factor = plan.factor_of_pair
    numbers = np.array([pool.num_replicas for _, pool in pools])
    most_rps = np.array([pool.max_arrival_rate_rpm for _, pool in pools]) / SECONDS_PER_MINUTE / numbers
    reached = reached_limits(arrays, pairs, most_rps)
    single = {name for name in plan.allocations if len(plan.serving_pools_of(name)) == 1}
    return {
        (name, pool.accelerator): _by_number(pool, int(arrays.servers.min_replicas[s]), alone=name in single)
        or ("simulation" if factor.get((name, pool.accelerator), 1.0) < 1 else reached[i])
        for i, ((name, pool), s) in enumerate(zip(pools, pairs.server.tolist(), strict=True))
    }


def _by_number(pool: Pool, least: int, *, alone: bool) -> Decider | None:
    """Return the limit on the number of replicas if it decides; None if the load needs all replicas.

    Args:
        pool: the pool.
        least: minimum number of replicas of its server.
        alone: whether the server has no other pool.
    """
    share = pool.arrival_rate_rpm / pool.max_arrival_rate_rpm
    if alone and pool.num_replicas == 1 and share <= HALF_A_REPLICA:
        return "one replica"
    needed = np.ceil(share * pool.num_replicas * (1 - ROUNDING))
    return "minimum replicas" if alone and needed < pool.num_replicas <= least else None


def reached_limits(arrays: SystemArrays, pairs: Pairs, most_rps: FloatArray) -> list[Decider]:
    """Return the limit that each of R pairs reaches at its maximum rate [requests/s], shape (R,)."""
    reached: dict[int, Decider] = {}
    for rows, some in parts(arrays, pairs):
        reached |= zip(rows.tolist(), _reached(arrays, some, most_rps[rows]), strict=True)
    return [reached[i] for i in range(len(most_rps))]


def deciding_limits_of(arrays: SystemArrays, rows: CandidateTable) -> list[Decider | None]:
    """Return the limit that decides the size of each candidate; None without load, and for shared queues."""
    load = arrays.servers.load_rps[rows.server]
    loaded = np.flatnonzero((load > 0) & ~arrays.servers.is_queue[rows.server])
    deciders: list[Decider | None] = [None] * len(rows)
    if len(loaded):
        few = rows.take(loaded)
        reached = reached_limits(arrays, Pairs.of_rows(arrays, few), few.max_rate_rps)
        one = (few.num_replicas == 1) & (load[loaded] <= HALF_A_REPLICA * few.max_rate_rps)
        for i, (row, is_one) in enumerate(zip(loaded.tolist(), one.tolist(), strict=True)):
            deciders[row] = "one replica" if is_one else reached[i]
    return deciders


def _reached(arrays: SystemArrays, pairs: Pairs, most_rps: FloatArray) -> list[Decider]:
    """Return the limit that R pairs of the same models reach at their maximum rates.

    Args:
        most_rps: maximum rate of a replica of each pair [requests/s], shape (R,).
    """
    mine = rows_of(arrays, pairs)
    ratios = target_ratio(mine.targets.figures(mine.analyze(most_rps)), mine.targets.limits)
    measure: IntArray = ratios.argmax(axis=0)
    row = mine.worst(ratios.max(axis=0), measure)
    in_memory = requests_in_memory(arrays, pairs.server, pairs.profile)
    stated = batch_limit(arrays, pairs.server, pairs.profile, choose_batch=False)
    by_memory = (in_memory < stated) & (pairs.max_batch >= in_memory)
    has_target = np.isfinite(mine.targets.limits[measure[row], row])
    saturated = _saturated(mine, most_rps) | ~has_target
    return [
        ("memory" if memory else "throughput") if full else mine.targets.measures[k]
        for memory, full, k in zip(by_memory.tolist(), saturated.tolist(), measure[row].tolist(), strict=True)
    ]


def _saturated(rows: ServerRows, most_rps: FloatArray) -> BoolArray:
    """Return a mask of pairs that are saturated at their maximum rates [requests/s], shape (R,)."""
    stable = rows.of_pairs(np.minimum, rows.queues.stable_rate_rps)
    capped = rows.of_pairs(np.logical_or, rows.targets.tps)
    share = np.where(capped, TPS_STABILITY_SHARE * (1 - ROUNDING), SATURATED_SHARE)
    return np.asarray(most_rps >= share * stable)


def decider_text(decider: Decider, names: Mapping[str, str] | None = None) -> str:
    """Return a deciding limit as text: "ITL target", "p95 TTFT target", "throughput", "one replica".

    Args:
        names: display names of metrics that differ from those of all kinds, by metric.
    """
    if not isinstance(decider, TargetMeasure):
        return decider
    if decider.is_missed:
        return "share of late requests"
    if decider.metric == "loss":
        return "rejected requests"
    label = TargetMeasure(decider.metric).label
    return f"{decider.label.replace(label, (names or {}).get(decider.metric, label))} target"
