"""Replicas beyond the load: for headroom, for spares and for an availability (math.md section 23).

Takes candidates sized for the load, gives those that serve it with their server's reserve. Where latencies
step with the rate, the queueing model says whether targets hold at all loads that the reserve is for.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import CHUNK_STEP_TRIES, COUNT_TOLERANCE, measure_pairs, targets_hold
from optimizer.candidates.table import CandidateTable
from optimizer.queueing.roots import smallest_integer

MAX_REPLICAS = 1_000_000
"""Maximum number of replicas in the search for an availability."""
MAX_FOR_BOTH = 10_000
"""Maximum number of replicas in the search for both an availability and a utilisation."""


def least_available(needed: IntArray, availability: FloatArray, target: FloatArray) -> FloatArray:
    """Return the fewest replicas of which enough are there often enough (eq. 142); all shapes (R,).

    Args:
        needed: replicas that have to be there.
        availability: probability that one is there.
        target: probability that enough are; 0: none is asked for.

    Returns:
        Infinity if no searched number suffices.
    """
    fewest = needed.astype(np.float64)
    for row in np.flatnonzero((target > 0) & (availability < 1)).tolist():
        fewest[row] = _least_available(int(needed[row]), float(availability[row]), float(target[row]))
    return fewest


def _least_available(needed: int, availability: float, target: float) -> float:
    """Return the fewest of one row by bisection: more replicas are never worse."""
    from scipy.special import bdtrc  # takes some time to import

    def suffice(count: int) -> bool:
        return bool(bdtrc(needed - 1, count, availability) >= target)

    low, high = needed - 1, max(needed, 1)
    while not suffice(high):
        low, high = high, 2 * high
        if high > MAX_REPLICAS:
            return float("inf")
    return float(smallest_integer(suffice, low, high))


def replicas_for_both(
    availability: float, target: float, full_utilization: float, wanted_utilization: float
) -> int | None:
    """Return the replicas from which on an availability and a utilisation hold together (eq. 235, 236).

    If k replicas carry the load at the largest rate of each, and m run so that k of them are there often
    enough, their utilisation is that at the largest rate times k/m. It is high enough if k are there often
    enough among floor(k/t) replicas, with t the wanted utilisation over that at the largest rate. From the
    k on that (213) gives, Chernoff's bound proves this; below, the binomial is evaluated.

    Args:
        availability: probability that a replica is there.
        target: probability that enough are.
        full_utilization: utilisation of a replica at its largest rate.
        wanted_utilization: the utilisation that the m replicas are to have at least.

    Returns:
        m of the least k from which on both hold for every k; None if there is none, or if it is beyond
        `MAX_FOR_BOTH`.
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
    from scipy.special import bdtrc  # takes some time to import

    needed = np.arange(1, math.ceil(share * proved) + 2)
    most = np.floor(needed / share * (1 + COUNT_TOLERANCE)).astype(np.int64)
    fails = np.flatnonzero(bdtrc(needed - 1, most, availability) < target) if availability < 1 else needed[:0]
    least = int(needed[fails[-1]]) + 1 if len(fails) else 1
    fewest = _least_available(least, availability, target) if availability < 1 else least
    return int(fewest) if fewest <= MAX_FOR_BOTH else None


def with_reserve(arrays: SystemArrays, table: CandidateTable) -> tuple[CandidateTable, CandidateTable]:
    """Return candidates of the load, marked if they have their reserve already, and others that have it.

    No candidate has more replicas than its server may.
    """
    reserve = arrays.servers.reserve
    rows = np.flatnonzero(reserve.wanted[table.server])
    if not len(rows):
        return table, table.take(rows)
    mine = table.take(rows)
    count, holds = _sized(arrays, mine)
    holds &= count <= arrays.servers.max_replicas[mine.server]
    enough = holds & (count <= mine.num_replicas)
    reserved = table.reserved.copy()
    reserved[rows] = enough
    more = np.flatnonzero(holds & ~enough)
    found = replace(
        mine.take(more),
        num_replicas=frozen(count[more].astype(np.int64)),
        reserved=frozen(np.ones(len(more), np.bool_)),
    )
    return replace(table, reserved=frozen(reserved)), _at_load(arrays, found)


def _sized(arrays: SystemArrays, table: CandidateTable) -> tuple[FloatArray, BoolArray]:
    """Return the replicas that serve each load with its reserve, and whether they hold (eq. 141)."""
    servers, reserve = arrays.servers, arrays.servers.reserve
    server = table.server
    grown = table.load_rps * (1 + reserve.headroom_share[server])
    needed = np.ceil(grown / table.max_rate_rps * (1 - COUNT_TOLERANCE))
    needed = np.maximum(np.maximum(needed, servers.min_replicas[server]), 1)
    # Where latencies step with the rate, a plan is asked whether targets hold with at least as many.
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
    """Return whether all targets hold at the load and with headroom, with all replicas and without spares."""
    holds = np.ones(len(table), np.bool_)
    for rate in shares_of_replicas(arrays, table.server, count):
        within = rate <= table.max_rate_rps * (1 + COUNT_TOLERANCE)
        holds &= within & targets_hold(arrays, table.server, table.accelerator, table.max_batch, rate)
    return holds


def shares_of_replicas(arrays: SystemArrays, server: IntArray, count: FloatArray) -> Iterator[FloatArray]:
    """Yield the loads of a replica at which targets have to hold [requests/s], shapes (R,)."""
    reserve, load = arrays.servers.reserve, arrays.servers.load_rps[server]
    headroom, spares = reserve.headroom_share[server], reserve.spare_replicas[server]
    for share in (load, load * (1 + headroom)):
        for left in (count, np.maximum(count - spares, 1)):
            yield share / left


def _at_load(arrays: SystemArrays, table: CandidateTable) -> CandidateTable:
    """Return candidates with their latencies at the load of a replica."""
    if not len(table):
        return table
    rate = table.load_rps / table.num_replicas
    found = measure_pairs(arrays, table.server, table.accelerator, table.max_batch, rate).performance
    names = "ttft_ms", "itl_ms", "utilization", "loss"
    return replace(table, **{name: frozen(getattr(found, name)) for name in names})
