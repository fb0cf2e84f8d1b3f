"""Shared cards as rows of a candidate table: units of each pattern, and each server on shared cards.

The units belong to an artificial server with the index after the last and no load. The row of a server on
shared cards costs nothing, because the units carry its load.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray, frozen
from optimizer.candidates.arrays import ALL_MEMBERS
from optimizer.candidates.card_patterns import SharedCards
from optimizer.candidates.table import ON_SHARED_CARDS, Candidates, CandidateTable


def card_rows(candidates: Candidates, shared: SharedCards) -> list[CandidateTable]:
    """Return the rows of shared cards: servers on them, and a unit of each pattern."""
    return [_servers(candidates, shared), _units(candidates, shared)]


def _servers(candidates: Candidates, shared: SharedCards) -> CandidateTable:
    arrays, server = candidates.arrays, shared.servers
    count = len(server)
    return _rows(
        server=server,
        accelerator=np.full(count, len(arrays.accelerator_names) + 1),
        kind=np.full(count, len(arrays.type_names)),
        units=np.zeros(count, np.int64),
        cost=np.zeros(count),
        rate=shared.load_rps,
        pattern=np.full(count, ON_SHARED_CARDS),
        divisible=False,
    )


def _units(candidates: Candidates, shared: SharedCards) -> CandidateTable:
    arrays, count = candidates.arrays, len(shared.patterns)
    accelerator = np.array([one.accelerator for one in shared.patterns], np.int64)
    cards = list(candidates.system.accelerators.values())
    return _rows(
        server=np.full(count, len(arrays.server_names)),
        accelerator=accelerator,
        kind=arrays.kind[accelerator],
        units=np.array([cards[a].multiplicity for a in accelerator.tolist()], np.int64),
        cost=np.array([cards[a].cost_cents_per_h for a in accelerator.tolist()], np.float64),
        rate=np.ones(count),
        pattern=np.arange(count),
        divisible=True,
    )


def _rows(
    *,
    server: IntArray,
    accelerator: IntArray,
    kind: IntArray,
    units: IntArray,
    cost: FloatArray,
    rate: FloatArray,
    pattern: IntArray,
    divisible: bool,
) -> CandidateTable:
    ones, zeros = np.ones(len(server), np.int64), np.zeros(len(server))
    return CandidateTable(
        server=frozen(server),
        accelerator=frozen(accelerator),
        kind=frozen(kind),
        max_batch=frozen(ones),
        num_replicas=frozen(ones),
        units_per_replica=frozen(units),
        cost_per_replica=frozen(cost),
        max_rate_rps=frozen(rate),
        ttft_ms=frozen(zeros),
        itl_ms=frozen(zeros),
        utilization=frozen(zeros),
        loss=frozen(zeros),
        meets_targets_below_max_rate=frozen(ones > 0) if divisible else frozen(ones == 0),
        batch_ceiling=frozen(ones),
        best_rate_rps=frozen(rate),
        reserved=frozen(ones > 0),
        preferred=frozen(ones > 0),
        members=frozen(ones * ALL_MEMBERS),
        load_rps=frozen(zeros if divisible else rate),
        pattern=frozen(pattern),
    )
