"""Root finding for one function, for many functions at once, and over integers.

For one function, SciPy finds the root. For many at once, `closed_brackets` returns the same bits as SciPy's
`elementwise.find_root` (the tests compare them), but without its array protocols and result objects, which
take more time than the functions for the few hundred rows of a small system. The method is Chandrupatla's,
which interpolates if that is safe and otherwise bisects.

Source: T. R. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear
function without using derivatives", Advances in Engineering Software 28 (1997) 145-149.
"""

from collections.abc import Callable
from itertools import count as count_up
from typing import Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray

MAX_STEPS = 2046
"""Maximum number of steps: bisections between the largest and the smallest double, more than any bracket
needs.
"""
MIN_VALUE = np.finfo(np.float64).smallest_normal
"""Absolute function value up to which it counts as zero."""
MIN_XTOL = 2e-12
"""Default of SciPy for the absolute width of a bracket."""
MIN_WIDTH = 4 * MIN_VALUE
"""Absolute width at which a bracket around 0 is closed, because a relative width is useless there."""
DROPPED_BITS = 18
"""Number of trailing bits that are zero in a result; neighbouring results differ by 2⁻³⁴ to 2⁻³⁵ of their
value.
"""
POINTS = 4
"""Number of points used to extrapolate the next one."""
GUESSES = 8
"""Number of extrapolations after which every other step bisects."""
NEAR = 16
"""Number of grid steps by which an extrapolation can be outside the bracket; it is then clipped to the
bracket.
"""


class Functions(Protocol):
    """R functions of one variable, each independent of the others."""

    def __call__(self, x: FloatArray, /) -> FloatArray:
        """Return the value of each function at its own point; points and values have shape (R,)."""

    def take(self, rows: IntArray) -> Self:
        """Return the functions with the given indices."""


class FunctionSets(Protocol):
    """R sets of K functions of one positive variable, each set independent of the others."""

    def __call__(self, x: FloatArray, /) -> FloatArray:
        """Return the values of each set, shape (K, R), at its own point, shape (R,)."""

    def take(self, rows: IntArray) -> Self:
        """Return the sets with the given indices."""


def root_above(
    function: Callable[[float], float], low: float, high: float, width: float, width_of_high: float = 0.0
) -> float:
    """Return a root of a function that is positive at `low` and negative at some larger value.

    Args:
        function: function of one positive variable.
        low: lower end of the search.
        high: first upper end of the search, which is doubled until the function is negative there.
        width: relative width of the final bracket.
        width_of_high: absolute width that is added, as a fraction of the upper end.
    """
    from scipy.optimize import brentq

    while function(high) > 0:
        low, high = high, 2 * high
    return float(brentq(function, low, high, xtol=max(MIN_XTOL, width_of_high * high), rtol=width))


def smallest_integer(holds: Callable[[int], bool], below: int, above: int) -> int:
    """Return the smallest integer above `below` that meets a condition, which `above` must meet.

    If the condition is not monotone, the result can be any integer that meets it after one that does not.
    """
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if holds(middle) else (middle, above)
    return above


def closed_brackets(
    functions: Functions, ends: FloatArray, values: FloatArray, relative_width: float
) -> tuple[FloatArray, FloatArray]:
    """Return closed brackets around a root of each function, and the function values at their ends.

    Args:
        functions: R functions.
        ends: two points for each function, with values of opposite signs; shape (2, R).
        values: function values at these points, shape (2, R).
        relative_width: width at which a bracket is closed, relative to the end whose value is nearer to zero.
            A bracket is also closed if the value at an end is zero, and can then be wide.

    Both results have shape (2, R); the ends of a bracket come in any order.
    """
    closed_ends, closed_values = ends.copy(), values.copy()
    (x1, x2), (f1, f2) = ends, values
    x3, f3 = x2, f2
    going, step = np.arange(ends.shape[1]), np.full(ends.shape[1], 0.5)
    opens = (np.sign(f1) * np.sign(f2) < 0) & (np.minimum(np.abs(f1), np.abs(f2)) > MIN_VALUE)
    for count in range(MAX_STEPS):
        width = np.abs(x2 - x1)
        tolerance = np.abs(np.where(np.abs(f1) < np.abs(f2), x1, x2)) * relative_width + MIN_WIDTH
        go_on = opens & (width >= tolerance)
        if not go_on.all():
            closed_ends[:, going], closed_values[:, going] = (x1, x2), (f1, f2)
            rows = np.flatnonzero(go_on)
            if not len(rows):
                break
            going, functions = going[rows], functions.take(rows)
            x1, x2, x3, f1, f2, f3 = np.stack((x1, x2, x3, f1, f2, f3))[:, rows]
            width, tolerance, step = width[rows], tolerance[rows], step[rows]
        if count:
            step = _shares((x1, x2, x3), (f1, f2, f3), 0.5 * tolerance / width)
        x = x1 + step * (x2 - x1)
        f = functions(x)
        same = np.sign(f) == np.sign(f1)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1, opens = x, f, np.abs(f) > MIN_VALUE
    return closed_ends, closed_values


def zeros_or(otherwise: FloatArray, brackets: FloatArray, values: FloatArray) -> FloatArray:
    """Return the end of each closed bracket at which its function is zero, or else `otherwise`.

    A bracket closed by a zero can be wide, so its other end is not a root.
    """
    first, second = np.abs(values) <= MIN_VALUE
    return np.where(first, brackets[0], np.where(second, brackets[1], otherwise))


def largest_feasible(functions: FunctionSets, points: FloatArray, values: FloatArray) -> FloatArray:
    """Return, for each row, the largest number up to which no function is positive, shape (R,).

    The search ends before the first point at which a function is positive. Increasing functions are positive
    everywhere above the result, other functions at least at the next grid step. The last `DROPPED_BITS` bits
    of results are zero, so rounding in the functions does not affect them, and they do not depend on the path
    of the search.

    Args:
        functions: K functions for each row.
        points: numbers > 0 in ascending order for each row, at least `POINTS`; shape (P, R). No function is
            positive at the first point, and at least one is at the last.
        values: function values at the points, shape (P, K, R).
    """
    missed = (values > 0).any(axis=1)
    first = np.where(missed.any(axis=0), missed.argmax(axis=0), len(points) - 1)
    near = np.clip(first - POINTS // 2, 0, len(points) - POINTS) + np.arange(POINTS)[:, np.newaxis]
    x, y = np.take_along_axis(points, near, 0), np.take_along_axis(values, near[:, np.newaxis], 0)
    going = np.arange(len(first))
    least, above = points[first - 1, going], values[first, :, going].T > 0
    low, high = _steps_of(least), _steps_of(points[first, going]) + 1
    lows = low.copy()
    for count in count_up():
        rows = np.flatnonzero(high - low > 1)
        if len(rows) < len(low):
            lows[going] = low
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
    return np.asarray(np.maximum(_number_of(lows), least))


def _shares(x: tuple[FloatArray, ...], f: tuple[FloatArray, ...], least: FloatArray) -> FloatArray:
    """Return the next step from the newest end of each bracket towards the other, relative to its width.

    It is that of inverse quadratic interpolation through both ends and the previous point if Chandrupatla's
    test finds this monotone between them; otherwise it bisects.
    """
    (x1, x2, x3), (f1, f2, f3) = x, f
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # bisected below
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        alpha = (x3 - x1) / (x2 - x1)
        safe: BoolArray = (1 - np.sqrt(1 - xi) < phi) & (phi < np.sqrt(xi))
        curved = f1 / (f1 - f2) * f3 / (f3 - f2) - alpha * f1 / (f3 - f1) * f2 / (f2 - f3)
    return np.minimum(np.maximum(np.where(safe, curved, 0.5), least), 1 - least)


def _steps_of(x: FloatArray) -> IntArray:
    """Return the indices of positive numbers on the grid of possible results, in the same order."""
    return x.view(np.int64) >> DROPPED_BITS


def _number_of(step: IntArray) -> FloatArray:
    return np.asarray((step << DROPPED_BITS).view(np.float64))


def _zeros_of(x: FloatArray, y: FloatArray) -> FloatArray:
    """Extrapolate the zeros of K curves per row through given points by Neville's scheme, shape (K, R).

    Args:
        x: P points for each row, shape (P, R).
        y: K values at each point, shape (P, K, R).
    """
    zeros = np.broadcast_to(x[:, np.newaxis], y.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for width in range(1, len(x)):
            zeros = (y[width:] * zeros[:-1] - y[:-width] * zeros[1:]) / (y[width:] - y[:-width])
    return np.asarray(zeros[0])


def _guess(low: IntArray, high: IntArray, zeros: FloatArray, otherwise: IntArray) -> IntArray:
    """Return the grid index of the smallest zero, clipped to the bracket; `otherwise` if none is near it."""
    lowest, highest = _number_of(low - NEAR), _number_of(high + NEAR)
    least = np.where((zeros > lowest) & (zeros < highest), zeros, np.inf).min(axis=0)
    step = _steps_of(np.minimum(least, highest))
    return np.where(least < np.inf, np.clip(step, low + 1, high - 1), otherwise)
