"""Chooses batch limits: for each server–accelerator pair the smallest batch with almost the highest rate."""

from dataclasses import replace

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.pairs import Pairs, largest_rates, queue_capacity, targets_of

BATCH_SLACK = 0.01
"""Maximum relative loss of rate accepted for a smaller batch."""
SCANNED_BATCHES = 512
"""Number of batch limits evaluated per pair: all if the ceiling is at most this number, otherwise a geometric
grid of about this many.
"""
SCANNED_ROWS = 2**20
"""Maximum number of pairs times batch limits that are evaluated at once."""


def with_best_batches(arrays: SystemArrays, pairs: Pairs) -> Pairs:
    """Replace each batch limit by the smallest batch whose rate is within 1 % of the best up to the limit.

    The rate is not monotone in the batch, so all batches are evaluated (eq. 26).
    """
    max_batch, best_rate = pairs.max_batch.copy(), pairs.best_rate_rps.copy()
    loaded = np.flatnonzero(arrays.servers.load_rps[pairs.server] > 0)
    # Pairs times batches are evaluated in blocks, so that memory stays bounded.
    width = np.minimum(pairs.max_batch[loaded], SCANNED_BATCHES)
    block = np.cumsum(width) // SCANNED_ROWS
    for b in np.unique(block):
        rows = loaded[block == b]
        tried = [_batches(int(ceiling)) for ceiling in pairs.max_batch[rows]]
        pair = np.repeat(np.arange(len(rows)), [len(batches) for batches in tried])
        batch = np.concatenate(tried)
        expanded = pairs.take(rows[pair])
        expanded = replace(
            expanded, max_batch=batch, max_queue=queue_capacity(arrays, expanded.server, batch)
        )
        rate = largest_rates(arrays, expanded, targets_of(arrays, expanded))
        # fmax ignores NaN, the rate of batches that miss a target at every rate.
        best = np.full(len(rows), -np.inf)
        np.fmax.at(best, pair, rate)
        # The first batch within the slack is the smallest, because the batches of a pair ascend.
        close = np.flatnonzero(rate >= (1 - BATCH_SLACK) * best[pair])
        pairs_close, first = np.unique(pair[close], return_index=True)
        max_batch[rows[pairs_close]] = batch[close[first]]
        best_rate[rows[pairs_close]] = best[pairs_close]
    return replace(
        pairs,
        max_batch=max_batch,
        max_queue=queue_capacity(arrays, pairs.server, max_batch),
        best_rate_rps=best_rate,
    )


def _batches(ceiling: int) -> IntArray:
    """Return the batch limits to evaluate up to a ceiling, in ascending order."""
    if ceiling <= SCANNED_BATCHES:
        return np.arange(1, ceiling + 1)
    return np.unique(np.round(np.geomspace(1, ceiling, SCANNED_BATCHES))).astype(np.int64)
