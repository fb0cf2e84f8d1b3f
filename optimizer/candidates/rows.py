"""Rows of the candidate table, from pairs of server and accelerator that were sized."""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import ALL_MEMBERS, SystemArrays
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.table import NO_PATTERN, CandidateTable


def candidate_rows(
    arrays: SystemArrays,
    pairs: Pairs,
    num_replicas: IntArray,
    max_rate_rps: FloatArray,
    *,
    ttft_ms: FloatArray,
    itl_ms: FloatArray,
    utilization: FloatArray,
    loss: FloatArray,
    below: BoolArray | None = None,
) -> CandidateTable:
    """Return the candidates of R pairs; all shapes (R,)."""
    return CandidateTable(
        server=pairs.server,
        accelerator=pairs.accelerator,
        kind=arrays.kind[pairs.accelerator],
        max_batch=pairs.max_batch,
        num_replicas=num_replicas,
        units_per_replica=arrays.profiles.units_per_replica[pairs.profile],
        cost_per_replica=arrays.profiles.cost_per_replica[pairs.profile],
        max_rate_rps=max_rate_rps,
        ttft_ms=ttft_ms + arrays.servers.network_ms[pairs.server, pairs.accelerator],
        itl_ms=itl_ms,
        utilization=utilization,
        loss=loss,
        meets_targets_below_max_rate=np.ones(len(num_replicas), np.bool_) if below is None else below,
        batch_ceiling=pairs.batch_ceiling,
        best_rate_rps=np.where(np.isnan(pairs.best_rate_rps), max_rate_rps, pairs.best_rate_rps),
        reserved=~arrays.servers.reserve.wanted[pairs.server],
        preferred=arrays.servers.preferred[pairs.server, pairs.accelerator],
        members=np.full(len(num_replicas), ALL_MEMBERS),
        load_rps=arrays.servers.load_rps[pairs.server],
        pattern=np.full(len(num_replicas), NO_PATTERN),
    )


def no_rows(arrays: SystemArrays, pairs: Pairs) -> CandidateTable:
    """Return a table without rows."""
    none, rows = np.zeros(0), np.zeros(0, np.int64)
    return candidate_rows(
        arrays, pairs.take(rows), rows, none, ttft_ms=none, itl_ms=none, utilization=none, loss=none
    )
