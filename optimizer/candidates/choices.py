"""What servers leave to choose beside accelerators and batches: for every pair the best way to run it."""

from dataclasses import replace

import numpy as np

from optimizer.arrays import IntArray, frozen
from optimizer.candidates.arrays import OwnTable, SystemArrays, tabulate
from optimizer.candidates.pairs import largest_rates, sizable_pairs, targets_of
from optimizer.candidates.table import Verdicts
from optimizer.spec.system import System

RATE_SLACK = 1e-6
"""Relative difference of largest rates that counts as none; the first way is then taken."""


def arrays_of(system: System) -> SystemArrays:
    """Return a system as arrays, in which every pair runs as its server states, or the best way it allows."""
    arrays = tabulate(system)
    for name, own in arrays.servers.own.items():
        if (own.count > 1).any():
            arrays = _with_best_rows(arrays, name, own)
    return arrays


def _with_best_rows(arrays: SystemArrays, name: str, own: OwnTable) -> SystemArrays:
    """Give each pair of some servers the first row whose largest rate is as high as any."""
    pairs = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    pairs = pairs.take(own.count[pairs.server] > 1)
    if not len(pairs.server):
        return arrays
    best_rate, best = np.full(len(pairs.server), -np.inf), own.chosen[pairs.server, pairs.accelerator]
    for row in range(own.count.max()):
        rows = own.first + np.minimum(row, own.count - 1)
        tried = _with_rows(arrays, name, np.broadcast_to(rows[:, np.newaxis], own.chosen.shape))
        rates = largest_rates(tried, pairs, targets_of(tried, pairs))
        better = np.nan_to_num(rates, nan=-np.inf) > best_rate * (1 + RATE_SLACK)
        best_rate = np.where(better, rates, best_rate)
        best = np.where(better, rows[pairs.server], best)
    chosen = own.chosen.copy()
    chosen[pairs.server, pairs.accelerator] = best
    return _with_rows(arrays, name, frozen(chosen))


def _with_rows(arrays: SystemArrays, name: str, chosen: IntArray) -> SystemArrays:
    """Return arrays in which the pairs of one kind run in other ways."""
    own = arrays.servers.own
    changed = {**own, name: replace(own[name], chosen=chosen)}
    return replace(arrays, servers=replace(arrays.servers, own=changed))
