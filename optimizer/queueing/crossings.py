"""The largest number at which no function of its row is above zero, for many rows at once.

An answer has so few significant bits that rounding in the functions is not seen, and no larger such number
will do. So it does not depend on where the search began, nor on how it went.
"""

from itertools import count as count_up
from typing import Protocol, Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray

DROPPED_BITS = 18
"""Last bits of a double that are zero in an answer: 2⁻³⁴ to 2⁻³⁵ of it is the step between two."""
POINTS = 4
"""Points from which the next one is guessed."""
GUESSES = 8
"""Guesses after which every other point halves what is left."""
NEAR = 16
"""Steps by which a guess may lie outside what is left: it is then at its end."""


class FunctionSets(Protocol):
    """R sets of K functions of one positive number; the values of a set do not depend on the others."""

    def __call__(self, x: FloatArray, /) -> FloatArray:
        """Return the values of each set at its own point, shapes (K, R) and (R,)."""

    def take(self, rows: IntArray) -> Self:
        """Return the chosen sets, in their order."""


def last_not_above_zero(functions: FunctionSets, points: FloatArray, values: FloatArray) -> FloatArray:
    """Return the largest number at which no function is above zero, to its last step; shape (R,).

    The search ends before the first point at which one is. Functions that grow are above zero at all numbers
    beyond the answer; others at the next step at least.

    Args:
        functions: K for each row.
        points: numbers > 0 in ascending order for each row, at least `POINTS`; shape (P, R). At the first no
            function is above zero, at the last there is one.
        values: what they are there, shape (P, K, R).
    """
    missed = (values > 0).any(axis=1)
    first = np.where(missed.any(axis=0), missed.argmax(axis=0), len(points) - 1)
    near = np.clip(first - POINTS // 2, 0, len(points) - POINTS) + np.arange(POINTS)[:, np.newaxis]
    x, y = np.take_along_axis(points, near, 0), np.take_along_axis(values, near[:, np.newaxis], 0)
    going = np.arange(len(first))
    least, above = points[first - 1, going], values[first, :, going].T > 0
    low, high = _steps_of(least), _steps_of(points[first, going]) + 1
    found = low.copy()
    for count in count_up():
        rows = np.flatnonzero(high - low > 1)
        if len(rows) < len(low):
            found[going] = low
            if not len(rows):
                break
            going, functions = going[rows], functions.take(rows)
            low, high, x, y, above = low[rows], high[rows], x[:, rows], y[..., rows], above[:, rows]
        middle = (low + high) // 2
        zeros = np.where(above, _zeros_of(x, y), np.nan)
        step = middle if count >= GUESSES and count % 2 else _guess(low, high, zeros, middle)
        at = _number_of(step)
        value = functions(at)
        miss = (value > 0).any(axis=0)
        above = np.where(miss, value > 0, above)
        low, high = np.where(miss, low, step), np.where(miss, step, high)
        farthest, every = np.abs(x - at).argmax(axis=0), np.arange(len(at))
        x[farthest, every], y[farthest, :, every] = at, value.T
    return np.asarray(np.maximum(_number_of(found), least))


def _steps_of(x: FloatArray) -> IntArray:
    """Return the number of steps up to numbers > 0: their order is that of the numbers."""
    return x.view(np.int64) >> DROPPED_BITS


def _number_of(step: IntArray) -> FloatArray:
    return np.asarray((step << DROPPED_BITS).view(np.float64))


def _zeros_of(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return where curves through some points are zero, shape (K, R): x as a polynomial of y, by Neville.

    Args:
        x: P points for each row, shape (P, R).
        y: K values at each, shape (P, K, R).
    """
    found = np.broadcast_to(x[:, np.newaxis], y.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for width in range(1, len(x)):
            found = (y[width:] * found[:-1] - y[:-width] * found[1:]) / (y[width:] - y[:-width])
    return np.asarray(found[0])


def _guess(low: IntArray, high: IntArray, zeros: FloatArray, otherwise: IntArray) -> IntArray:
    """Return the step of the least zero, inside what is left; where there is none close to that, another."""
    lowest, highest = _number_of(low - NEAR), _number_of(high + NEAR)
    least = np.where((zeros > lowest) & (zeros < highest), zeros, np.inf).min(axis=0)
    step = _steps_of(np.minimum(least, highest))
    return np.where(least < np.inf, np.clip(step, low + 1, high - 1), otherwise)
