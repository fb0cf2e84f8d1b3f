"""From a system to candidates: each pair of server and accelerator is sized, or rejected with a reason.

Sizing is vectorised by law, in chunks of rows with similar batch limits, so that memory is bounded and the
time per pair does not depend on the number of pairs.
"""

from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.choices import arrays_of
from optimizer.candidates.measuring import CHUNK_STEP_TRIES, COUNT_TOLERANCE
from optimizer.candidates.memo import SizedRows, SizingMemo
from optimizer.candidates.pairs import (
    Pairs,
    chunks,
    law_of,
    replicas_of,
    sizable_pairs,
    targets_of,
)
from optimizer.candidates.renting import rented
from optimizer.candidates.reserve import with_reserve
from optimizer.candidates.rows import candidate_rows, no_rows
from optimizer.candidates.shared_cards import find_patterns
from optimizer.candidates.shared_queues import queue_candidates
from optimizer.candidates.table import Candidates, CandidateTable, RejectionReason, Verdicts
from optimizer.candidates.undivided import undivided_candidates
from optimizer.documents import MAX_COUNT
from optimizer.parallel import in_threads
from optimizer.queueing.performance import Performance, QueueModel
from optimizer.queueing.sizing import Sizing
from optimizer.queueing.targets import Targets, target_ratio
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

WINDOW_TOLERANCE = 1e-9
"""Relative tolerance below the minimum rate of a batch server."""


def find_candidates(system: System, memo: SizingMemo | None = None) -> Candidates:
    """Size every pair of server and accelerator of a system.

    A pair that cannot serve is not an error, but a rejection with its reason.

    Args:
        system: the system.
        memo: cache of sizings, to reuse for systems with the same profiles and targets; it does not change
            the candidates.
    """
    arrays = arrays_of(system)
    shape = arrays.profile_of.shape
    verdicts = Verdicts.none(shape)
    choose_batch = system.options.batch_sizing == "optimal"
    pairs = sizable_pairs(arrays, verdicts, choose_batch=choose_batch)
    pairs = pairs.take(~arrays.servers.is_queue[pairs.server])
    table = _sized(arrays, with_best_batches(arrays, pairs) if choose_batch else pairs, verdicts, memo)

    limit = arrays.servers.max_replicas[table.server]
    over = table.num_replicas > limit
    bounded = replace(table, num_replicas=np.minimum(table.num_replicas, limit))
    within, more = with_reserve(arrays, table.take(~over))
    queues = queue_candidates(system, arrays, verdicts, memo)
    if queues is not None:
        within = CandidateTable.joined([within, queues.table])
        more = CandidateTable.joined([more, queues.with_reserve])
    verdicts.freeze()
    external = rented(arrays, system, arrays.servers.load_rps)
    shared = find_patterns(system, find_candidates)
    undivided = undivided_candidates(system, arrays, lambda other: find_candidates(other, memo).table)
    tables = within, bounded.take(over), more, external
    return Candidates(arrays, *tables, verdicts, system, shared=shared, undivided=undivided)


# --- from pairs to candidates --------------------------------------------------------------------------


def _sized(arrays: SystemArrays, pairs: Pairs, verdicts: Verdicts, memo: SizingMemo | None) -> CandidateTable:
    """Size all pairs, and return candidates for those that can serve."""
    idle = arrays.servers.load_rps[pairs.server] == 0
    tables = [no_rows(arrays, pairs)]
    tables += [
        _idle_candidates(arrays, pairs.take(rows)) for rows in chunks(arrays, pairs, np.flatnonzero(idle))
    ]
    loaded = chunks(arrays, pairs, np.flatnonzero(~idle))
    tables += in_threads(lambda rows: _loaded_candidates(arrays, pairs.take(rows), verdicts, memo), loaded)
    return CandidateTable.joined(tables)


def _idle_candidates(arrays: SystemArrays, pairs: Pairs) -> CandidateTable:
    """Return candidates of idle servers, with the minimum replicas and the reference's metrics."""
    times, turnaround_ms = law_of(arrays, pairs).idle_times(pairs.max_batch)
    nothing = np.zeros(len(pairs.server))
    return candidate_rows(
        arrays,
        pairs,
        arrays.servers.min_replicas[pairs.server],
        1000.0 * pairs.max_batch / turnaround_ms,
        ttft_ms=times.first_token_ms,
        itl_ms=times.itl_ms,
        utilization=nothing,
        loss=nothing,
    )


def _loaded_candidates(
    arrays: SystemArrays, pairs: Pairs, verdicts: Verdicts, memo: SizingMemo | None
) -> CandidateTable:
    """Return candidates with the maximum rate, the replicas needed, and the latencies at that load."""
    works = law_of(arrays, pairs).has_work()
    if not works.all():
        verdicts.reject(
            pairs.server[~works], pairs.accelerator[~works], RejectionReason.no_work, np.nan, np.nan
        )
        pairs = pairs.take(works)
    pairs, factor = _tightened(arrays, pairs, verdicts)
    if not len(pairs.server):
        return no_rows(arrays, pairs)
    servers = arrays.servers
    targets = targets_of(arrays, pairs)
    replicas = replicas_of(arrays, pairs)
    sized = SizedRows.of(replicas, targets) if memo is None else memo.rows(replicas, targets)
    sizing = sized.sizing
    load = servers.load_rps[pairs.server]
    rate = np.where(sizing.attainable, sizing.max_rate_rps * factor, np.inf)
    needed = np.maximum(np.ceil(load / rate * (1 - COUNT_TOLERANCE)), servers.min_replicas[pairs.server])
    needed = np.maximum(needed, 1.0)
    in_window = ~(load / needed < sizing.lowest_rate_rps * (1 - WINDOW_TOLERANCE))
    performance, holds = _settled(replicas, targets, load, needed, sizing.attainable & in_window)
    _reject_unattainable(arrays, verdicts, pairs, targets, sizing, performance, ~holds & in_window)
    early = sizing.attainable & ~in_window
    _reject_early(verdicts, pairs.take(early), (load / needed)[early], sizing.lowest_rate_rps[early])
    limit = servers.max_replicas[pairs.server]
    over = holds & (needed > limit)
    verdicts.reject(
        pairs.server[over], pairs.accelerator[over], RejectionReason.replica_limit, needed[over], limit[over]
    )
    table = candidate_rows(
        arrays,
        pairs,
        np.minimum(needed, 2.0 * MAX_COUNT).astype(np.int64),
        sizing.max_rate_rps * factor,
        ttft_ms=performance.ttft_ms,
        itl_ms=performance.itl_ms,
        utilization=performance.utilization,
        loss=performance.loss,
        below=sized.meets_below,
    )
    return table.take(holds)


def _reject_early(verdicts: Verdicts, pairs: Pairs, rate_rps: FloatArray, lowest_rps: FloatArray) -> None:
    """Reject pairs whose load per replica is so low that a batching window is too long."""
    rate_rpm, lowest_rpm = rate_rps * SECONDS_PER_MINUTE, lowest_rps * SECONDS_PER_MINUTE
    verdicts.reject(pairs.server, pairs.accelerator, RejectionReason.window, rate_rpm, lowest_rpm)


def _tightened(arrays: SystemArrays, pairs: Pairs, verdicts: Verdicts) -> tuple[Pairs, FloatArray]:
    """Return the pairs with a usable rate, and the usable fraction of their maximum rates."""
    factor = arrays.rate_factor[pairs.server, pairs.accelerator]
    never = factor == 0
    if never.any():
        reason = RejectionReason.simulation_missed
        verdicts.reject(pairs.server[never], pairs.accelerator[never], reason, np.nan, np.nan)
        pairs, factor = pairs.take(~never), factor[~never]
    return replace(pairs, best_rate_rps=pairs.best_rate_rps * factor), factor


def _settled(
    replicas: QueueModel, targets: Targets, load_rps: FloatArray, needed: FloatArray, attainable: BoolArray
) -> tuple[Performance, BoolArray]:
    """Return the performance at the load per replica, and whether the targets are met.

    The first replica count meets them if latencies increase with the rate. If a chunk-count jump breaks that,
    replicas are added to `needed`, in place, until the targets are met.
    """
    performance = replicas.analyze(load_rps / needed)
    holds = attainable & targets.met(performance)
    missed = np.flatnonzero(attainable & ~holds)
    if not len(missed):
        return performance, holds
    for _ in range(CHUNK_STEP_TRIES):
        needed[missed] += 1
        again = replicas.take(missed).analyze(load_rps[missed] / needed[missed])
        holds[missed] = targets.take(missed).met(again)
        missed = missed[~holds[missed]]
        if not len(missed):
            break
    return replicas.analyze(load_rps / needed), holds


def _reject_unattainable(
    arrays: SystemArrays,
    verdicts: Verdicts,
    pairs: Pairs,
    targets: Targets,
    sizing: Sizing,
    performance: Performance,
    rows: BoolArray,
) -> None:
    """Reject rows with their worst target, at the minimum rate or at the load per replica."""
    if not rows.any():
        return
    found, figures = sizing.attainable, sizing.least
    if (rows & found).any():
        figures = np.where(found, targets.figures(performance), figures)
    worst = target_ratio(figures, targets.limits).argmax(axis=0)
    every = np.arange(len(worst))
    delay_ms = targets.delays(arrays.servers.network_ms[pairs.server, pairs.accelerator])[worst, every]
    value, limit = figures[worst, every] + delay_ms, targets.limits[worst, every] + delay_ms
    for chosen, reason in (
        (rows & ~found, RejectionReason.slo_unattainable),
        (rows & found, RejectionReason.slo_missed),
    ):
        server, accelerator = pairs.server[chosen], pairs.accelerator[chosen]
        verdicts.reject(server, accelerator, reason, value[chosen], limit[chosen])
        verdicts.measure[server, accelerator] = worst[chosen]
