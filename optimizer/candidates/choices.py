"""Choose the best row of kinds with several ways to run a server, for each pair."""

from dataclasses import replace

import numpy as np

from optimizer.arrays import IntArray, frozen
from optimizer.candidates.arrays import OwnTable, SystemArrays, tabulate
from optimizer.candidates.pairs import largest_rates, sizable_pairs, targets_of
from optimizer.candidates.table import Verdicts
from optimizer.spec.system import System
from optimizer.tolerances import SAME


def arrays_of(system: System) -> SystemArrays:
    """Return a system as arrays, with the best row of each pair that has several."""
    arrays = tabulate(system)
    for name, own in arrays.servers.own.items():
        if (own.count > 1).any():
            arrays = _with_best_rows(arrays, name, own)
    return arrays


def _with_best_rows(arrays: SystemArrays, name: str, own: OwnTable) -> SystemArrays:
    """Choose for each pair the first row with the highest maximum rate."""
    pairs = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    pairs = pairs.take(own.count[pairs.server] > 1)
    if not len(pairs.server):
        return arrays
    best_rate, best = np.full(len(pairs.server), -np.inf), own.chosen[pairs.server, pairs.accelerator]
    for row in range(own.count.max()):
        rows = own.first + np.minimum(row, own.count - 1)
        tried = _with_rows(arrays, name, np.broadcast_to(rows[:, np.newaxis], own.chosen.shape))
        rates = largest_rates(tried, pairs, targets_of(tried, pairs))
        better = np.nan_to_num(rates, nan=-np.inf) > best_rate * (1 + SAME)
        best_rate = np.where(better, rates, best_rate)
        best = np.where(better, rows[pairs.server], best)
    chosen = own.chosen.copy()
    chosen[pairs.server, pairs.accelerator] = best
    return _with_rows(arrays, name, frozen(chosen))


def _with_rows(arrays: SystemArrays, name: str, chosen: IntArray) -> SystemArrays:
    """Return arrays with other chosen rows of one kind."""
    own = arrays.servers.own
    changed = {**own, name: replace(own[name], chosen=chosen)}
    return replace(arrays, servers=replace(arrays.servers, own=changed))
