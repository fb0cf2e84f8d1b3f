"""Builds rows of the candidate table from sized server–accelerator pairs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, frozen
from optimizer.candidates.arrays import ALL_MEMBERS, SystemArrays
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.table import CandidateTable, Source

MEANS = ("ttft_ms", "itl_ms", "utilization", "loss")
"""Columns of the candidate table that are means of a replica at its load, as in `Performance`."""


def candidate_rows(
    arrays: SystemArrays,
    pairs: Pairs,
    num_replicas: IntArray,
    max_rate_rps: FloatArray,
    means: Mapping[str, FloatArray],
    below: BoolArray | None = None,
) -> CandidateTable:
    """Return the candidates of R sized pairs; all shapes (R,).

    Args:
        num_replicas: number of replicas of each candidate.
        max_rate_rps: maximum rate of one replica [requests/s].
        means: means of one replica at its load, by column (`MEANS`).
        below: whether the targets are also met at all lower rates; None: they are.
    """
    return CandidateTable(
        server=pairs.server,
        accelerator=pairs.accelerator,
        type=arrays.type[pairs.accelerator],
        max_batch=pairs.max_batch,
        num_replicas=num_replicas,
        units_per_replica=arrays.profiles.units_per_replica[pairs.profile],
        cost_per_replica=arrays.profiles.cost_per_replica[pairs.profile],
        max_rate_rps=max_rate_rps,
        **{**means, "ttft_ms": means["ttft_ms"] + arrays.servers.delay_ms[pairs.server, pairs.accelerator]},
        meets_targets_below_max_rate=np.ones(len(num_replicas), np.bool_) if below is None else below,
        batch_ceiling=pairs.batch_ceiling,
        best_rate_rps=np.where(np.isnan(pairs.best_rate_rps), max_rate_rps, pairs.best_rate_rps),
        reserved=~arrays.servers.reserve.wanted[pairs.server],
        preferred=arrays.servers.preferred[pairs.server, pairs.accelerator],
        members=np.full(len(num_replicas), ALL_MEMBERS),
        load_rps=arrays.servers.load_rps[pairs.server],
        source=np.zeros(len(num_replicas), np.int64),
        pattern=np.full(len(num_replicas), -1),
    )


def unsized_rows(
    source: Source,
    server: IntArray,
    accelerator: IntArray,
    types: IntArray,
    *,
    cost_per_replica: FloatArray,
    max_rate_rps: FloatArray,
    load_rps: FloatArray,
    **others: BoolArray | FloatArray | IntArray,
) -> CandidateTable:
    """Return candidates that need no sizing: one replica with batch limit 1 and without cards by default.

    `others` replaces further columns of the table. All shapes (R,).
    """
    ones, zeros = np.ones(len(server), np.int64), np.zeros(len(server))
    columns: dict[str, Any] = {
        "server": server,
        "accelerator": accelerator,
        "type": types,
        "max_batch": ones,
        "num_replicas": ones,
        "units_per_replica": 0 * ones,
        "cost_per_replica": cost_per_replica,
        "max_rate_rps": max_rate_rps,
        **dict.fromkeys(MEANS, zeros),
        "meets_targets_below_max_rate": ones == 0,
        "batch_ceiling": ones,
        "best_rate_rps": max_rate_rps,
        "reserved": ones > 0,
        "preferred": ones > 0,
        "members": ones * ALL_MEMBERS,
        "load_rps": load_rps,
        "source": ones * source,
        "pattern": -ones,
    }
    return CandidateTable(**{name: frozen(np.asarray(values)) for name, values in (columns | others).items()})


def no_rows(arrays: SystemArrays, pairs: Pairs) -> CandidateTable:
    """Return a candidate table without rows."""
    none, rows = np.zeros(0), np.zeros(0, np.int64)
    return candidate_rows(arrays, pairs.take(rows), rows, none, dict.fromkeys(MEANS, none))
