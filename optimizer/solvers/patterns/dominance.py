"""Options that another of the same server matches in everything that a level counts, each with each.

Takes a level and options, gives those that are needed, by their keys (units, and what else counts). Nothing
here asks a solver.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.program import Program

BLOCK = 256
"""Options of a server that are compared with those kept before them at a time."""
MOST_OF_SERVER = 4_000
"""Options of a server up to which they are compared; with more, all of them are kept."""


def essential(program: Program, options: Options) -> IntArray:
    """Return which of some options no other of them matches in all that counts at a level.

    A level of service, and those before it, count units alone: many patterns are then alike.
    """
    measures = [program.measure, *(pin.measure for pin in program.pins)]
    keys = [options.units, ~options.served[:, None]]
    if any(measure.on_value for measure in measures):
        keys.append(options.value[:, None])
    if any(measure.on_changes for measure in measures):
        keys.append(options.changed[:, None])
    return np.flatnonzero(unmatched(options.server, np.hstack(keys)))


def unmatched(server: IntArray, keys: FloatArray) -> BoolArray:
    """Return the options that no other of their server matches, shape (P,).

    An option matches another if none of its keys is larger; of equal ones the first stays.

    Args:
        server: shape (P,).
        keys: what counts, the less the better; shape (P, K).
    """
    kept = np.ones(len(server), np.bool_)
    if not len(server):
        return kept
    order = np.lexsort((keys.sum(axis=1), server))
    starts = np.flatnonzero(np.diff(server[order], prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        if 1 < end - start <= MOST_OF_SERVER:
            mine = order[start:end]
            kept[mine] = _minimal(keys[mine])
    return kept


def _minimal(keys: FloatArray) -> BoolArray:
    """Return which rows no other matches; rows come in the order of their sums, so that it comes before."""
    kept = np.zeros(len(keys), np.bool_)
    front = keys[:0]
    for begin in range(0, len(keys), BLOCK):
        block = keys[begin : begin + BLOCK]
        rows = np.flatnonzero(~_matched_by(front, block))
        inner = _matches(block[rows], block[rows])
        rows = rows[~np.triu(inner, 1).any(axis=0)]
        kept[begin + rows] = True
        front = np.concatenate([front, block[rows]])
    return kept


def _matched_by(others: FloatArray, keys: FloatArray) -> BoolArray:
    return np.asarray(_matches(others, keys).any(axis=0), np.bool_)


def _matches(others: FloatArray, keys: FloatArray) -> BoolArray:
    """Return which of some rows match which of others, shape (others, keys)."""
    matches = np.ones((len(others), len(keys)), np.bool_)
    for key in range(keys.shape[1]):
        matches &= np.less_equal(others[:, None, key], keys[None, :, key])
    return matches
