"""Windows as a decision: for every pair the best of those that the server leaves to choose."""

from dataclasses import replace

import numpy as np

from optimizer.arrays import IntArray, frozen
from optimizer.candidates.pairs import largest_rates, sizable_pairs, targets_of
from optimizer.candidates.table import Verdicts
from optimizer.spec.system import System
from optimizer.tabulation import SystemArrays, tabulate

SHARES = (0.0, 0.25, 0.5, 1.0)
"""Of the window that a server gives: what is tried where the choice is left open."""
RATE_SLACK = 1e-6
"""Relative difference of largest rates that counts as none; the shortest window is then taken."""


def arrays_of(system: System) -> SystemArrays:
    """Return a system as arrays, with the windows of its batch servers as given or chosen."""
    arrays = tabulate(system)
    servers = system.servers.values()
    open_rows = np.flatnonzero([server.batch_window == "optimal" for server in servers])
    return _with_best_windows(arrays, open_rows) if len(open_rows) else arrays


def _with_best_windows(arrays: SystemArrays, servers: IntArray) -> SystemArrays:
    """Give each pair of some servers the shortest window whose largest rate is as high as any."""
    pairs = sizable_pairs(arrays, Verdicts.none(arrays.profile_of.shape), choose_batch=False)
    pairs = pairs.take(np.isin(pairs.server, servers))
    if not len(pairs.server):
        return arrays
    given = arrays.servers.window_ms
    best_rate, best = np.full(len(pairs.server), -np.inf), given[pairs.server, pairs.accelerator].copy()
    for share in SHARES:
        windows = share * given
        tried = replace(arrays, servers=replace(arrays.servers, window_ms=windows))
        rates = largest_rates(tried, pairs, targets_of(tried, pairs))
        better = np.nan_to_num(rates, nan=-np.inf) > best_rate * (1 + RATE_SLACK)
        best_rate = np.where(better, rates, best_rate)
        best = np.where(better, windows[pairs.server, pairs.accelerator], best)
    chosen = given.copy()
    chosen[pairs.server, pairs.accelerator] = best
    return replace(arrays, servers=replace(arrays.servers, window_ms=frozen(chosen)))
