"""What replicas draw: their accelerators' power curves at the share of the batch that is in use."""

from collections.abc import Sequence

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.measuring import analyze_pairs
from optimizer.candidates.table import Candidates, CandidateTable
from optimizer.spec.schema import Power


def power_of_rows(candidates: Candidates, table: CandidateTable) -> FloatArray:
    """Return the power of one replica of each candidate at its largest rate [W], shape (C,)."""
    powers = [item.power for item in candidates.system.accelerators.values()]
    power, own = np.zeros(len(table)), np.flatnonzero(table.units_per_replica > 0)  # others are rented
    rows = table.server[own], table.accelerator[own], table.max_batch[own], table.max_rate_rps[own]
    power[own] = largest_power_w(candidates.arrays, powers, *rows)
    return power


def power_w(
    arrays: SystemArrays, powers: Sequence[Power], server: IntArray, accelerator: IntArray, use: FloatArray
) -> FloatArray:
    """Return the power of one replica of each row [W], at a share of its batch that is in use; shapes (R,).

    Args:
        arrays: the system as arrays.
        powers: the power curve of each accelerator.
        server: the server of each row.
        accelerator: its accelerator.
        use: mean batch over batch limit.
    """
    each = np.zeros(len(server))
    for a in np.unique(accelerator).tolist():
        rows = accelerator == a
        each[rows] = powers[a].at(use[rows])
    profile = arrays.profile_of[server, accelerator]
    return each * arrays.profiles.accelerators_per_replica[profile]


def largest_power_w(
    arrays: SystemArrays,
    powers: Sequence[Power],
    server: IntArray,
    accelerator: IntArray,
    max_batch: IntArray,
    max_rate_rps: FloatArray,
) -> FloatArray:
    """Return the power of one replica of each row at its largest rate [W]; idle servers in full use."""
    use = np.ones(len(server))
    loaded = np.flatnonzero((arrays.servers.load_rps[server] > 0) & (max_rate_rps > 0))
    rows = server[loaded], accelerator[loaded], max_batch[loaded], max_rate_rps[loaded]
    use[loaded] = analyze_pairs(arrays, *rows).utilization
    return power_w(arrays, powers, server, accelerator, use)
