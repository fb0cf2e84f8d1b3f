"""Candidates with replicas for headroom, spares and an availability target (math.md section 23).

Adds the replicas of their server's reserve to candidates that are sized for the load. If latencies are not
monotone in the rate, the queue model checks the targets at all loads that the reserve must cover.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import CHUNK_STEP_TRIES, measure_pairs, targets_hold
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.rows import MEANS
from optimizer.candidates.table import CandidateTable
from optimizer.queueing.roots import smallest_integer
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING

MAX_REPLICAS = 1_000_000
"""Maximum number of replicas in the search for an availability target."""
MAX_FOR_BOTH = 10_000
"""Maximum number of replicas in the search for a count that meets an availability and a utilisation target.
"""


def availability_of(system: System, model: str, accelerator: str) -> float:
    """Return the probability that a replica of a model on an accelerator is available."""
    count = system.profiles[model, accelerator].acc_count
    return float(system.accelerators[accelerator].availability ** count)


def least_available(needed: IntArray, availability: FloatArray, target: FloatArray) -> FloatArray:
    """Return the minimum number of replicas that meets the availability target (eq. 142); shapes (R,).

    Args:
        needed: number of replicas that must be available.
        availability: probability that a replica is available.
        target: required probability that at least the needed replicas are available; 0 if none.

    Returns:
        Number of replicas; inf if more than `MAX_REPLICAS` would be needed.
    """
    fewest = needed.astype(np.float64)
    for row in np.flatnonzero((target > 0) & (availability < 1)).tolist():
        fewest[row] = _least_available(int(needed[row]), float(availability[row]), float(target[row]))
    return fewest


def _least_available(needed: int, availability: float, target: float) -> float:
    """Return the minimum count for one row by bisection; more replicas never lower the availability."""
    from scipy.special import bdtrc  # slow import

    def suffice(count: int) -> bool:
        return bool(bdtrc(needed - 1, count, availability) >= target)

    low, high = needed - 1, max(needed, 1)
    while not suffice(high):
        low, high = high, 2 * high
        if high > MAX_REPLICAS:
            return float("inf")
    return float(smallest_integer(suffice, low, high))


def share_beside_reserve(arrays: SystemArrays, server: int, accelerator: int, replicas: int) -> float:
    """Return the share of the replicas' maximum rate that is usable if the server keeps its reserve (eq. 59).

    Args:
        server: index of the server.
        accelerator: index of the accelerator of its replicas, or of any of its pools.
        replicas: number of its replicas.
    """
    reserve = arrays.servers.reserve
    share, left = 1 / (1 + float(reserve.headroom_share[server])), replicas
    if reserve.one_pool[server]:
        left -= int(reserve.spare_replicas[server])
        there = arrays.profiles.availability[arrays.profile_of[[server], [accelerator]]]
        target = reserve.availability_target[[server]]
        while left > 0 and least_available(np.array([left]), there, target)[0] > replicas:
            left -= 1
    return share * left / replicas


def replicas_for_both(
    availability: float, target: float, full_utilization: float, wanted_utilization: float
) -> int | None:
    """Return the replica count from which availability and utilisation targets are compatible (eq. 235, 236).

    Let k replicas carry the load at their maximum rate, and let m be the number that makes k of them
    available with the target probability. The utilisation of m replicas is then k/m of that at the maximum
    rate. It is high enough if floor(k/t) replicas meet the availability target, where t is the target
    utilisation divided by that at the maximum rate. If floor(k/t) is above the value of (236), Chernoff's
    bound proves this; for smaller k the binomial distribution is evaluated.

    Args:
        availability: probability that a replica is available.
        target: required probability that enough are available.
        full_utilization: utilisation of a replica at its maximum rate, 0 to 1.
        wanted_utilization: required utilisation of the m replicas, 0 to 1.

    Returns:
        m for the smallest k such that both targets hold for it and every larger k; None if there is none, or
        if it exceeds `MAX_FOR_BOTH`.
    """
    share = wanted_utilization / full_utilization if full_utilization > 0 else math.inf
    if share >= availability and not share <= availability == 1:
        return None
    proved = 1
    if availability < 1:
        divergence = share * math.log(share / availability)
        divergence += (1 - share) * math.log((1 - share) / (1 - availability))
        proved = math.ceil(-math.log1p(-target) / divergence) + 1 if target < 1 else MAX_REPLICAS + 1
    if proved > MAX_REPLICAS:
        return None
    from scipy.special import bdtrc  # slow import

    needed = np.arange(1, math.ceil(share * proved) + 2)
    most = np.floor(needed / share * (1 + ROUNDING)).astype(np.int64)
    fails = np.flatnonzero(bdtrc(needed - 1, most, availability) < target) if availability < 1 else needed[:0]
    least = int(needed[fails[-1]]) + 1 if len(fails) else 1
    fewest = _least_available(least, availability, target) if availability < 1 else least
    return int(fewest) if fewest <= MAX_FOR_BOTH else None


def with_reserve(arrays: SystemArrays, table: CandidateTable) -> tuple[CandidateTable, CandidateTable]:
    """Return the candidates with their `reserved` flag set, and additional candidates with the reserve.

    If the reserve must be in one pool, it always gets an additional candidate, because the original one can
    also be one of several pools in a mixed plan, or serve a further member of its queue in part. No candidate
    exceeds its server's limit on replicas.
    """
    reserve = arrays.servers.reserve
    rows = np.flatnonzero(reserve.wanted[table.server])
    if not len(rows):
        return table, table.take(rows)
    some = table.take(rows)
    count, holds = _sized(arrays, some)
    holds &= count <= arrays.servers.max_replicas[some.server]
    in_one_pool = reserve.one_pool[some.server] | arrays.servers.is_queue[some.server]
    enough = holds & (count <= some.num_replicas) & ~in_one_pool
    reserved = table.reserved.copy()
    reserved[rows] = enough
    more = np.flatnonzero(holds & ~enough)
    changed = replace(
        some.take(more),
        num_replicas=frozen(count[more].astype(np.int64)),
        reserved=frozen(np.ones(len(more), np.bool_)),
    )
    return replace(table, reserved=frozen(reserved)), _at_load(arrays, changed)


def _sized(arrays: SystemArrays, table: CandidateTable) -> tuple[FloatArray, BoolArray]:
    """Return the replicas for each load with its reserve, and a mask of those that meet targets (eq. 141)."""
    servers, reserve = arrays.servers, arrays.servers.reserve
    server = table.server
    grown = table.load_rps * (1 + reserve.headroom_share[server])
    needed = np.ceil(grown / table.max_rate_rps * (1 - ROUNDING))
    needed = np.maximum(np.maximum(needed, servers.min_replicas[server]), 1)
    # If latencies are not monotone in the rate, targets are checked with at least this number of replicas.
    needed = np.where(table.meets_targets_below_max_rate, needed, np.maximum(needed, table.num_replicas))
    availability = arrays.profiles.availability[arrays.profile_of[server, table.accelerator]]
    target, spares = reserve.availability_target[server], reserve.spare_replicas[server]

    def with_spares(rows: IntArray) -> FloatArray:
        least = least_available(needed[rows].astype(np.int64), availability[rows], target[rows])
        return np.maximum(needed[rows] + spares[rows], least)

    every = np.arange(len(table))
    count = with_spares(every)
    finite = np.isfinite(count) & (count <= MAX_REPLICAS)
    holds = finite & table.meets_targets_below_max_rate
    open_rows = np.flatnonzero(finite & ~holds)
    for _ in range(CHUNK_STEP_TRIES):
        if not len(open_rows):
            break
        holds[open_rows] = _targets_hold(arrays, table.take(open_rows), count[open_rows])
        open_rows = open_rows[~holds[open_rows]]
        needed[open_rows] += 1
        count[open_rows] = with_spares(open_rows)
        open_rows = open_rows[count[open_rows] <= MAX_REPLICAS]
    return count, holds


def _targets_hold(arrays: SystemArrays, table: CandidateTable, count: FloatArray) -> BoolArray:
    """Return a mask of candidates that meet all targets in every case of `shares_of_replicas`."""
    holds, pairs = np.ones(len(table), np.bool_), Pairs.of_rows(arrays, table)
    for rate in shares_of_replicas(arrays, table.server, count):
        within = rate <= table.max_rate_rps * (1 + ROUNDING)
        holds &= within & targets_hold(arrays, pairs, rate)
    return holds


def shares_of_replicas(arrays: SystemArrays, server: IntArray, count: FloatArray) -> Iterator[FloatArray]:
    """Yield the loads per replica at which targets must be met [requests/s], shape (R,).

    The cases are the load, and the load with headroom, each with all replicas and without the spare ones.
    """
    reserve, load = arrays.servers.reserve, arrays.servers.load_rps[server]
    headroom, spares = reserve.headroom_share[server], reserve.spare_replicas[server]
    for share in (load, load * (1 + headroom)):
        for left in (count, np.maximum(count - spares, 1)):
            yield share / left


def _at_load(arrays: SystemArrays, table: CandidateTable) -> CandidateTable:
    """Return the candidates with latencies, utilisation and loss recomputed at the load per replica."""
    if not len(table):
        return table
    rate = table.load_rps / table.num_replicas
    performance = measure_pairs(arrays, Pairs.of_rows(arrays, table), rate).performance
    return replace(table, **{name: frozen(getattr(performance, name)) for name in MEANS})
