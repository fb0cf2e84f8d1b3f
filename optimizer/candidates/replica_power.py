"""Power of replicas, from the power curve of their accelerator at their share of full activity.

A replica draws power while it computes. Reading the weights draws a fixed share of the power at full
activity. The rest is proportional to the part of the computing time that grows with the tokens in a batch
(``docs/math.md``, eq. 161).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import ALL_MEMBERS, SystemArrays
from optimizer.candidates.measuring import performances
from optimizer.candidates.pairs import Pairs, law_of
from optimizer.candidates.table import Candidates, CandidateTable
from optimizer.features.shared_queues.offers import Subsets
from optimizer.queueing.performance import Performance
from optimizer.schema.accelerators import Power

WEIGHTS_ACTIVITY = 0.55
"""Share of full activity of a computing replica whose times do not grow with the batch. It is fitted to
published measurements on H100 cards (``docs/fidelity.md``).
"""


def activity(performance: Performance, alone_ms: FloatArray) -> FloatArray:
    """Return the share of full activity of each of R replicas, 0 to 1, shape (R,) (eq. 161).

    Args:
        performance: long-run means of the replicas.
        alone_ms: time of the iterations after the prefill of a request that is alone in the replica [ms],
            shape (R,).
    """
    service = performance.service_ms
    # φ: the share of the service time that a request alone in the replica would need, too.
    fixed = np.divide(alone_ms, service, out=np.zeros_like(service), where=service > 0)
    growing = 1 - np.minimum(fixed, 1.0)
    # A replica without requests is idle; a busy one has at least the activity of reading its weights.
    busy = 1 - performance.p_empty
    share: FloatArray = busy * (WEIGHTS_ACTIVITY + (1 - WEIGHTS_ACTIVITY) * growing)
    return share


def power_at_rates_w(
    arrays: SystemArrays, powers: Sequence[Power], pairs: Pairs, rate_rps: FloatArray
) -> FloatArray:
    """Return the power of one replica of each of R pairs at its arrival rate [W], shape (R,).

    Args:
        powers: power curve of each accelerator.
        rate_rps: arrival rate of each replica [requests/s]; 0 if it is idle.
    """
    active, loaded = np.zeros(len(rate_rps)), np.flatnonzero(rate_rps > 0)
    for rows, some, performance in performances(arrays, pairs.take(loaded), rate_rps[loaded]):
        times, _ = law_of(arrays, some).idle_times(some.max_batch)
        tokens = arrays.servers.out_tokens[some.server]
        # O - 1 decode iterations follow the prefill; without output only the prefill remains.
        alone_ms = np.where(tokens > 0, np.maximum(tokens - 1, 0) * times.itl_ms, times.first_token_ms)
        active[loaded[rows]] = activity(performance, alone_ms)
    return _power_w(arrays, powers, pairs, active)


def largest_power_w(
    arrays: SystemArrays, powers: Sequence[Power], pairs: Pairs, max_rate_rps: FloatArray
) -> FloatArray:
    """Return the power of one replica of each of R pairs at its maximum rate [W]; full power without load."""
    # Limits count the power at the maximum rate, so that a plan holds for any division of its load.
    loaded = (arrays.servers.load_rps[pairs.server] > 0) & (max_rate_rps > 0)
    full = _power_w(arrays, powers, pairs, np.ones(len(loaded)))
    at_rates = power_at_rates_w(arrays, powers, pairs, np.where(loaded, max_rate_rps, 0.0))
    return np.where(loaded, at_rates, full)


def power_of_rows(candidates: Candidates, table: CandidateTable) -> FloatArray:
    """Return the power of one replica of each candidate at its largest rate [W], shape (C,)."""
    powers = [item.power for item in candidates.system.accelerators.values()]
    power, own = np.zeros(len(table)), table.units_per_replica > 0  # rentals draw none
    part = own & (table.members != ALL_MEMBERS)
    parts = [(own & ~part, candidates.arrays, table)]
    if part.any():
        subsets = Subsets.of(candidates.system, candidates.arrays)
        parts.append((part, subsets.arrays, replace(table, server=subsets.servers_of(table))))
    for rows, arrays, of_part in parts:
        some = of_part.take(rows)
        power[rows] = largest_power_w(arrays, powers, Pairs.of_rows(arrays, some), some.max_rate_rps)
    return power


def _power_w(arrays: SystemArrays, powers: Sequence[Power], pairs: Pairs, active: FloatArray) -> FloatArray:
    """Return the power of one replica of each of R pairs at its share of full activity [W], shape (R,)."""
    each = np.zeros(len(active))
    for a in np.unique(pairs.accelerator).tolist():
        rows = pairs.accelerator == a
        each[rows] = powers[a].at(active[rows])
    return each * arrays.profiles.accelerators_per_replica[pairs.profile]
