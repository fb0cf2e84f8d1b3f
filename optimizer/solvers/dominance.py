"""Dominance filter: removes rows that another row of the same group matches or beats in every key.

The functions work on arrays of groups and keys, and are independent of their meaning.
"""

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, pairs_of_equal

PAIRWISE = 32
"""Maximum rows of a group for which all pairs are compared at once; larger groups are compared in blocks."""
BLOCK = 256
"""Number of rows in a block."""
MAX_COMPARED = 4_000
"""Maximum rows of a group that are compared; larger groups keep all their rows."""


def nondominated(group: IntArray, keys: FloatArray) -> BoolArray:
    """Return a mask of the rows that no other row of their group dominates, shape (P,).

    A row dominates another if none of its keys is larger; the first of equal rows is kept.

    Args:
        group: group of each row, shape (P,).
        keys: keys, smaller is better, shape (P, K).
    """
    kept = np.ones(len(group), np.bool_)
    order = np.lexsort((keys.sum(axis=1), group))
    _, place, size = np.unique(group[order], return_inverse=True, return_counts=True)
    small = order[size[place] <= PAIRWISE]
    before, after = pairs_of_equal(group[small])
    better, worse = small[before], small[after]
    kept[worse[_all_at_most(keys[better].T, keys[worse].T)]] = False
    ends = np.cumsum(size)
    for g in np.flatnonzero((size > PAIRWISE) & (size <= MAX_COMPARED)).tolist():
        of_group = order[ends[g] - size[g] : ends[g]]
        kept[of_group] = _front(keys[of_group])
    return kept


def _front(keys: FloatArray) -> BoolArray:
    """Return the nondominated rows of one group.

    Rows are sorted by the sums of their keys, so that dominating rows precede the dominated ones.
    """
    kept = np.zeros(len(keys), np.bool_)
    front = keys[:0]
    for begin in range(0, len(keys), BLOCK):
        block = keys[begin : begin + BLOCK]
        rows = np.flatnonzero(~_dominates(front, block).any(axis=0))
        inner = _dominates(block[rows], block[rows])
        rows = rows[~np.triu(inner, 1).any(axis=0)]
        kept[begin + rows] = True
        front = np.concatenate([front, block[rows]])
    return kept


def _dominates(others: FloatArray, keys: FloatArray) -> BoolArray:
    """Return whether each row of `keys` dominates each row of `others`, shape (others, keys)."""
    return _all_at_most(others.T[:, :, None], keys.T[:, None, :])


def _all_at_most(these: FloatArray, those: FloatArray) -> BoolArray:
    """Return a mask of rows whose keys are all at most those of the other rows.

    The first axis is the keys.
    """
    shape = np.broadcast_shapes(these.shape[1:], those.shape[1:])
    at_most = np.ones(shape, np.bool_)
    for this, that in zip(these, those, strict=True):
        at_most &= np.less_equal(this, that)
    return at_most
