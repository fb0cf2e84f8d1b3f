"""Candidates of shared cards: units (cards) of each pattern, and each server on shared cards.

Units belong to an artificial server without load, whose index is the last plus 1. The candidate of a server
on shared cards costs nothing, because the units carry its load.
"""

import numpy as np

from optimizer.candidates.rows import unsized_rows
from optimizer.candidates.table import Candidates, CandidateTable, Source
from optimizer.features.shared_cards.patterns import SharedCards


def card_rows(candidates: Candidates, shared: SharedCards) -> list[CandidateTable]:
    """Return the candidates of shared cards: servers on shared cards, and a unit of each pattern."""
    arrays, count = candidates.arrays, len(shared.servers)
    servers = unsized_rows(
        Source.on_cards,
        shared.servers,
        np.full(count, len(arrays.accelerator_names) + 1),
        np.full(count, len(arrays.type_names)),
        cost_per_replica=np.zeros(count),
        max_rate_rps=shared.load_rps,
        load_rps=shared.load_rps,
    )
    count = len(shared.patterns)
    accelerator = np.array([one.accelerator for one in shared.patterns], np.int64)
    documents = list(candidates.system.accelerators.values())
    cards = [documents[a] for a in accelerator.tolist()]
    units = unsized_rows(
        Source.units,
        np.full(count, len(arrays.server_names)),
        accelerator,
        arrays.type[accelerator],
        units_per_replica=np.array([card.multiplicity for card in cards], np.int64),
        cost_per_replica=np.array([card.cost_cents_per_h for card in cards], np.float64),
        max_rate_rps=np.ones(count),
        load_rps=np.zeros(count),
        meets_targets_below_max_rate=np.ones(count, np.bool_),
        pattern=np.arange(count),
    )
    return [servers, units]
