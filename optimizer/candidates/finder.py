"""Finds candidates: sizes each server–accelerator pair of a system, or rejects it with a reason.

Sizing is vectorised over pairs with the same latency model, in chunks with similar batch limits. So memory is
bounded, and the time per pair does not depend on the number of pairs.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.memo import SizingMemo
from optimizer.candidates.pairs import Pairs, arrays_of, chunks, law_of, sizable_pairs
from optimizer.candidates.rows import MEANS, candidate_rows, no_rows
from optimizer.candidates.sized import loaded_candidates
from optimizer.candidates.table import Candidates, CandidateTable, Verdicts
from optimizer.features.reserves.offers import with_reserve
from optimizer.features.shared_cards.feature import SHARED_CARDS
from optimizer.features.shared_cards.offers import find_patterns
from optimizer.features.shared_queues.feature import SHARED_QUEUES
from optimizer.features.shared_queues.offers import queue_candidates
from optimizer.features.table import FEATURES, part_of
from optimizer.parallel import in_threads
from optimizer.spec.arguments import checks_documents
from optimizer.spec.system import System


@checks_documents
def find_candidates(
    system: System, memo: SizingMemo | None = None, is_over: Callable[[], bool] | None = None
) -> Candidates:
    """Size every server–accelerator pair of a system.

    A pair that cannot serve is not an error, but a rejection with its reason.

    Args:
        memo: cache of sizings, to reuse for systems with the same profiles and targets; it does not change
            the candidates.
        is_over: function that returns whether the time limit has passed; asked before replicas are simulated.

    Raises:
        SpecError: the time limit has passed before all replicas are simulated.
    """
    arrays = arrays_of(system)
    verdicts = Verdicts.none(arrays.profile_of.shape)
    choose_batch = system.options.batch_sizing == "optimal"
    pairs = sizable_pairs(arrays, verdicts, choose_batch=choose_batch)
    # Queues are sized for each subset of their members, so separately.
    pairs = pairs.take(~arrays.servers.is_queue[pairs.server])
    pairs = with_best_batches(arrays, pairs) if choose_batch else pairs
    table = _size_pairs(arrays, pairs, verdicts, memo, is_over)

    limit = arrays.servers.max_replicas[table.server]
    over = table.num_replicas > limit
    # Candidates beyond the server's limit stay with as many replicas as allowed, for partial service.
    bounded = replace(table, num_replicas=np.minimum(table.num_replicas, limit))
    within = table.take(~over)
    reserved = within.take(np.zeros(0, np.int64))
    if arrays.servers.reserve.wanted.any():
        within, reserved = with_reserve(arrays, within)
    if SHARED_QUEUES.name in system.features:
        queues = queue_candidates(system, arrays, verdicts, memo)
        within, reserved = (
            CandidateTable.joined(pair) for pair in zip((within, reserved), queues, strict=True)
        )
    verdicts.freeze()
    size = partial(find_candidates, memo=memo)
    shared = find_patterns(system, size) if SHARED_CARDS.name in system.features else None
    offered = {
        feature.name: part_of(feature, "offers").offered(system, arrays, size)
        for feature in FEATURES
        if feature.has_offers and feature.name in system.features
    }
    return Candidates(arrays, within, bounded.take(over), reserved, verdicts, system, shared, offered)


# --- from pairs to candidates --------------------------------------------------------------------------


def _size_pairs(
    arrays: SystemArrays,
    pairs: Pairs,
    verdicts: Verdicts,
    memo: SizingMemo | None,
    is_over: Callable[[], bool] | None,
) -> CandidateTable:
    """Size all pairs; return candidates for those that can serve, and record rejections in `verdicts`."""
    idle = arrays.servers.load_rps[pairs.server] == 0
    tables = [no_rows(arrays, pairs)]
    tables += [
        _idle_candidates(arrays, pairs.take(rows)) for rows in chunks(arrays, pairs, np.flatnonzero(idle))
    ]

    def candidates_of_chunk(rows: IntArray) -> CandidateTable:
        return loaded_candidates(arrays, pairs.take(rows), verdicts, memo, is_over)

    loaded, roles = np.flatnonzero(~idle), arrays.roles
    later = np.zeros(len(loaded), np.bool_) if roles is None else roles.decode[pairs.server[loaded]] >= 0
    tables += in_threads(candidates_of_chunk, chunks(arrays, pairs, loaded[~later]))
    table = CandidateTable.joined(tables)
    if roles is None:
        return table
    rows = loaded[later]
    rows = rows[roles.needed(pairs.server[rows], (table.server, table.accelerator, table.num_replicas))]
    return CandidateTable.joined([table, *in_threads(candidates_of_chunk, chunks(arrays, pairs, rows))])


def _idle_candidates(arrays: SystemArrays, pairs: Pairs) -> CandidateTable:
    """Return candidates of idle servers, with the minimum number of replicas and llm-inferno's metrics."""
    times, turnaround_ms = law_of(arrays, pairs).idle_times(pairs.max_batch)
    means = dict.fromkeys(MEANS, np.zeros(len(pairs.server)))
    means |= {"ttft_ms": times.first_token_ms, "itl_ms": times.itl_ms}
    # Without load there is no queue: a full batch per turnaround time [ms].
    largest_rps = 1000.0 * pairs.max_batch / turnaround_ms
    return candidate_rows(arrays, pairs, arrays.servers.min_replicas[pairs.server], largest_rps, means)
