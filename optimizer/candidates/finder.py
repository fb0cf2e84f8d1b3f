"""From a system to candidates: every pair of server and accelerator is sized, or rejected with a reason.

All pairs are worked on at once. Sizing runs law by law in chunks of rows with similar batch limits, so that
memory stays small and the time per pair is the same for one pair and for a million.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates.table import Candidates, CandidateTable, Reason, Verdicts
from optimizer.fleet import Fleet, tabulate
from optimizer.queueing.performance import Performance, ReplicaQueues
from optimizer.queueing.sizing import Sizing, Targets, largest_rate
from optimizer.spec.schema import MAX_BATCH_LIMIT, MAX_COUNT
from optimizer.spec.system import System
from optimizer.timing import IterationLaw, LinearLaw, TimingLaw

CHUNK_ELEMENTS = 2**17
"""Entries of one chunk's table of states: small enough for the processor's cache."""
MAX_THREADS = 8
COUNT_TOLERANCE = 1e-9
"""Relative excess of load over replicas × rate that does not yet call for another replica."""
MISS_TOLERANCE = 1e-6
"""Relative excess over a target at the load per replica that rounding may cause."""
QUEUE_TO_BATCH_RATIO = 10
"""Room to wait, as a multiple of the batch, where a server states none."""
CHUNK_STEP_TRIES = 16
"""Replicas added at most where a step of the prefill chunks makes the first count miss a target."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs that may become columns, as equally long arrays of shape (R,)."""

    server: IntArray
    accelerator: IntArray
    profile: IntArray
    max_batch: IntArray
    max_queue: IntArray

    def take(self, rows: IntArray | BoolArray) -> "_Pairs":
        return _Pairs(*(getattr(self, field.name)[rows] for field in fields(self)))


def find_candidates(system: System) -> Candidates:
    """Size every pair of server and accelerator of a system.

    Never fails for a pair that cannot serve: that is a rejection with its reason.
    """
    fleet = tabulate(system)
    shape = fleet.profile_of.shape
    verdicts = Verdicts(np.zeros(shape, np.int64), np.full(shape, np.nan), np.full(shape, np.nan))
    table = _sized(fleet, _sizable(fleet, verdicts), verdicts)

    limit = fleet.servers.max_replicas[table.server]
    over = table.num_replicas > limit
    verdicts.reject(
        table.server[over],
        table.accelerator[over],
        Reason.replica_limit,
        table.num_replicas[over],
        limit[over],
    )
    for array in (verdicts.reason, verdicts.value, verdicts.limit):
        frozen(array)
    bounded = replace(table, num_replicas=np.minimum(table.num_replicas, limit))
    return Candidates(fleet, table.take(~over), bounded.take(over), verdicts, system)


def analyze_pairs(
    fleet: Fleet, server: IntArray, accelerator: IntArray, max_batch: IntArray, rate_rps: FloatArray
) -> Performance:
    """Return the performance of one replica per row at a given arrival rate > 0; all shapes (R,)."""
    found = [np.zeros(len(server)) for _ in fields(Performance)]
    pairs = _Pairs(
        server, accelerator, fleet.profile_of[server, accelerator], max_batch, _room(fleet, server, max_batch)
    )
    for linear, rows in _chunks_by_law(fleet, pairs, np.arange(len(server))):
        some = pairs.take(rows)
        law = _law(fleet, some, linear=linear)
        performance = ReplicaQueues.build(law, some.max_batch, some.max_queue).analyze(rate_rps[rows])
        for array, field in zip(found, fields(Performance), strict=True):
            array[rows] = getattr(performance, field.name)
    return Performance(*found)


def _sizable(fleet: Fleet, verdicts: Verdicts) -> _Pairs:
    """Reject what needs no queue to be seen, and return the rest with batch limit and queue room."""
    servers, profiles = fleet.servers, fleet.profiles
    timed = np.zeros(fleet.profile_of.shape, np.bool_)
    known = fleet.profile_of >= 0
    timed[known] = profiles.timed[fleet.profile_of[known]]
    verdicts.reason[~timed] = Reason.no_profile
    verdicts.reason[~servers.has_target] = Reason.no_target
    verdicts.reason[~servers.allowed] = Reason.not_allowed

    needed = (servers.load_rps > 0) | (servers.min_replicas > 0)
    server, accelerator = np.nonzero((verdicts.reason == 0) & needed[:, None])
    profile = fleet.profile_of[server, accelerator]
    batch, room = _batch_and_room(fleet, server, profile)
    for rows, reason, value, limit in (
        (room < 1, Reason.does_not_fit, _tokens(fleet, server), profiles.kv_capacity_tokens[profile]),
        (batch > MAX_BATCH_LIMIT, Reason.batch_limit, batch, np.full(len(batch), float(MAX_BATCH_LIMIT))),
    ):
        verdicts.reject(server[rows], accelerator[rows], reason, value[rows], limit[rows])
    fits = (room >= 1) & (batch <= MAX_BATCH_LIMIT)
    max_batch = np.where(fits, batch, 1).astype(np.int64)
    return _Pairs(server, accelerator, profile, max_batch, _room(fleet, server, max_batch)).take(fits)


def _room(fleet: Fleet, server: IntArray, max_batch: IntArray) -> IntArray:
    """Return the room to wait behind a full batch."""
    own = fleet.servers.max_queue[server]
    return np.where(own >= 0, own, QUEUE_TO_BATCH_RATIO * max_batch)


def _tokens(fleet: Fleet, server: IntArray) -> FloatArray:
    """Return the tokens of one request of each given server."""
    return fleet.servers.in_tokens[server] + fleet.servers.out_tokens[server]


def _batch_and_room(fleet: Fleet, server: IntArray, profile: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the batch limit of each pair, and how many requests its KV cache has room for.

    The limit is the server's own, else the profile's scaled to the length of the answers (eq. 19); an idle
    server's is not scaled. The KV cache caps either.
    """
    servers, profiles = fleet.servers, fleet.profiles
    idle = servers.load_rps[server] == 0
    scaled = np.maximum(profiles.batch_tokens[profile] // np.maximum(servers.out_tokens[server], 1), 1)
    unscaled = idle | (profiles.batch_tokens[profile] == 0)
    own = servers.max_batch[server]
    batch = np.where(own > 0, own, np.where(unscaled, profiles.batch_limit[profile], scaled))
    requests = np.floor(profiles.kv_capacity_tokens[profile] / np.maximum(_tokens(fleet, server), 1))
    room = np.where(idle, np.inf, requests)
    return np.minimum(batch, room), room


# --- from pairs to columns -----------------------------------------------------------------------------


def _sized(fleet: Fleet, pairs: _Pairs, verdicts: Verdicts) -> CandidateTable:
    """Size all pairs, law by law and chunk by chunk, and return the columns of those that can serve."""
    idle = fleet.servers.load_rps[pairs.server] == 0
    tables = [_no_columns(fleet, pairs)]
    for linear in (True, False):
        rows = np.flatnonzero(idle & (fleet.profiles.linear[pairs.profile] == linear))
        if len(rows):
            tables.append(
                _idle_columns(fleet, pairs.take(rows), _law(fleet, pairs.take(rows), linear=linear))
            )
    chunks = list(_chunks_by_law(fleet, pairs, np.flatnonzero(~idle)))

    def size(chunk: tuple[bool, IntArray]) -> CandidateTable:
        linear, rows = chunk
        some = pairs.take(rows)
        return _loaded_columns(fleet, some, _law(fleet, some, linear=linear), verdicts)

    if len(chunks) > 1:  # chunks touch different pairs, and NumPy lets other threads run meanwhile
        with ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as pool:
            tables += pool.map(size, chunks)
    else:
        tables += map(size, chunks)
    return CandidateTable.joined(tables)


def _law(fleet: Fleet, pairs: _Pairs, *, linear: bool) -> TimingLaw:
    times = fleet.profiles.times[:, pairs.profile]
    in_tokens, out_tokens = fleet.servers.in_tokens[pairs.server], fleet.servers.out_tokens[pairs.server]
    if linear:
        return LinearLaw(times[0], times[1], times[2], times[3], in_tokens, out_tokens)
    budget = fleet.profiles.max_num_tokens[pairs.profile]
    return IterationLaw(times[0], times[1], times[2], in_tokens, out_tokens, budget)


def _chunks_by_law(fleet: Fleet, pairs: _Pairs, rows: IntArray) -> Iterator[tuple[bool, IntArray]]:
    """Split rows by law, and each part, sorted by batch limit, into runs with a bounded table of states."""
    is_linear = fleet.profiles.linear[pairs.profile[rows]]
    for linear in (True, False):
        part = rows[is_linear == linear]
        part = part[np.argsort(pairs.max_batch[part], kind="stable")]
        end = len(part)
        while end:
            count = max(1, CHUNK_ELEMENTS // (int(pairs.max_batch[part[end - 1]]) + 1))
            yield linear, part[max(0, end - count) : end]
            end = max(0, end - count)


def _columns(
    fleet: Fleet, pairs: _Pairs, num_replicas: IntArray, max_rate_rps: FloatArray, *figures: FloatArray
) -> CandidateTable:
    """Return the columns of pairs; `figures` are TTFT, ITL, utilisation and loss."""
    return CandidateTable(
        pairs.server,
        pairs.accelerator,
        fleet.kind[pairs.accelerator],
        pairs.max_batch,
        num_replicas,
        fleet.profiles.units_per_replica[pairs.profile],
        fleet.profiles.cost_per_replica[pairs.profile],
        max_rate_rps,
        *figures,
    )


def _no_columns(fleet: Fleet, pairs: _Pairs) -> CandidateTable:
    none = np.zeros(0)
    return _columns(
        fleet, pairs.take(np.zeros(0, np.int64)), np.zeros(0, np.int64), none, none, none, none, none
    )


def _idle_columns(fleet: Fleet, pairs: _Pairs, law: TimingLaw) -> CandidateTable:
    """Give idle servers their least number of replicas, and the figures the reference quotes for them."""
    times, turnaround_ms = law.idle_times(pairs.max_batch)
    nothing = np.zeros(len(pairs.server))
    return _columns(
        fleet,
        pairs,
        fleet.servers.min_replicas[pairs.server],
        1000.0 * pairs.max_batch / turnaround_ms,
        times.first_token_ms,
        times.itl_ms,
        nothing,
        nothing,
    )


def _loaded_columns(fleet: Fleet, pairs: _Pairs, law: TimingLaw, verdicts: Verdicts) -> CandidateTable:
    """Find the largest rate of a replica, the replicas the load needs, and the latencies at its share."""
    works = law.service_time_ms(np.ones(len(pairs.server))) > 0
    if not works.all():
        verdicts.reject(pairs.server[~works], pairs.accelerator[~works], Reason.no_work, np.nan, np.nan)
        pairs, law = pairs.take(works), law.take(np.flatnonzero(works))
    if not len(pairs.server):
        return _no_columns(fleet, pairs)
    servers = fleet.servers
    targets = Targets(servers.ttft_ms[pairs.server], servers.itl_ms[pairs.server], servers.tps[pairs.server])
    replicas = ReplicaQueues.build(law, pairs.max_batch, pairs.max_queue)
    sizing = largest_rate(replicas, targets)
    load = servers.load_rps[pairs.server]
    rate = np.where(sizing.attainable, sizing.max_rate_rps, np.inf)
    needed = np.maximum(np.ceil(load / rate * (1 - COUNT_TOLERANCE)), servers.min_replicas[pairs.server])
    needed = np.maximum(needed, 1.0)
    performance, holds = _settled(replicas, targets, load, needed, sizing.attainable)
    _reject_unattainable(verdicts, pairs, targets, sizing, ~holds)
    table = _columns(
        fleet,
        pairs,
        np.minimum(needed, 4.0 * MAX_COUNT).astype(np.int64),
        sizing.max_rate_rps,
        performance.ttft_ms,
        performance.itl_ms,
        performance.utilization,
        performance.loss,
    )
    return table.take(holds)


def _settled(
    replicas: ReplicaQueues, targets: Targets, load_rps: FloatArray, needed: FloatArray, attainable: BoolArray
) -> tuple[Performance, BoolArray]:
    """Return the performance at the load per replica, and whether the targets hold there.

    They hold at the first count wherever latencies grow with the rate. Where a step of the prefill chunks
    breaks that, replicas are added to `needed`, in place, until they do.
    """
    performance = replicas.analyze(load_rps / needed)
    holds = attainable & (targets.excess(performance) <= MISS_TOLERANCE)
    for _ in range(CHUNK_STEP_TRIES):
        missed = np.flatnonzero(attainable & ~holds)
        if not len(missed):
            break
        needed[missed] += 1
        again = replicas.take(missed).analyze(load_rps[missed] / needed[missed])
        for field in fields(again):
            getattr(performance, field.name)[missed] = getattr(again, field.name)
        holds[missed] = targets.take(missed).excess(again) <= MISS_TOLERANCE
    return performance, holds


def _reject_unattainable(
    verdicts: Verdicts, pairs: _Pairs, targets: Targets, sizing: Sizing, rows: BoolArray
) -> None:
    """Note the target that is missed by the larger factor at the least load."""
    itl_worse = sizing.least_itl_ms / targets.itl_ms >= sizing.least_ttft_ms / targets.ttft_ms
    for chosen, reason, value, limit in (
        (rows & itl_worse, Reason.itl_unattainable, sizing.least_itl_ms, targets.itl_ms),
        (rows & ~itl_worse, Reason.ttft_unattainable, sizing.least_ttft_ms, targets.ttft_ms),
    ):
        verdicts.reject(pairs.server[chosen], pairs.accelerator[chosen], reason, value[chosen], limit[chosen])
