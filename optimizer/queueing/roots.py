"""Roots of many functions of one variable at once, each inside a bracket of its own.

Chandrupatla's method, which interpolates where that is safe and halves where it is not. It gives the bits of
SciPy's `elementwise.find_root`, which the tests hold it to, without the array protocols and result objects
around that: for the few hundred rows of a small system they take more time than the functions themselves.

Source: T. R. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear
function without using derivatives", Advances in Engineering Software 28 (1997) 145-149.
"""

from typing import Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray

MOST_STEPS = 2046
"""Halvings between the largest and the smallest double, more than any bracket needs."""
LEAST_VALUE = np.finfo(np.float64).smallest_normal
"""A value up to this size is zero."""
LEAST_WIDTH = 4 * LEAST_VALUE
"""Closes a bracket around zero, where no relative width does."""


class Functions(Protocol):
    """R functions of one variable; the value of each does not depend on the others."""

    def __call__(self, x: FloatArray, /) -> FloatArray:
        """Return the value of each at its own point, shapes (R,)."""

    def take(self, rows: IntArray) -> Self:
        """Return the chosen functions, in their order."""


def closed_brackets(
    functions: Functions, ends: FloatArray, values: FloatArray, relative_width: float
) -> tuple[FloatArray, FloatArray]:
    """Return brackets around a root of each function, and the values at their ends.

    Args:
        functions: R functions.
        ends: two points for each, with values of opposite signs; shape (2, R).
        values: what the functions are there, shape (2, R).
        relative_width: width at which a bracket is closed, as a share of the end whose value is nearer to
            zero. One is also closed as soon as the value at an end is zero; it may then be wide.

    Both results have shape (2, R); the ends of a bracket come in any order.
    """
    closed_ends, closed_values = ends.copy(), values.copy()
    (x1, x2), (f1, f2) = ends, values
    x3, f3 = x2, f2
    going, step = np.arange(ends.shape[1]), np.full(ends.shape[1], 0.5)
    opens = (np.sign(f1) * np.sign(f2) < 0) & (np.minimum(np.abs(f1), np.abs(f2)) > LEAST_VALUE)
    for count in range(MOST_STEPS):
        width = np.abs(x2 - x1)
        tolerance = np.abs(np.where(np.abs(f1) < np.abs(f2), x1, x2)) * relative_width + LEAST_WIDTH
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
            step = _steps((x1, x2, x3), (f1, f2, f3), 0.5 * tolerance / width)
        x = x1 + step * (x2 - x1)
        f = functions(x)
        same = np.sign(f) == np.sign(f1)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1, opens = x, f, np.abs(f) > LEAST_VALUE
    return closed_ends, closed_values


def zeros_or(otherwise: FloatArray, brackets: FloatArray, values: FloatArray) -> FloatArray:
    """Return the end of each closed bracket at which its function is zero, `otherwise` if there is none.

    A bracket that a zero closed may be wide, so that its other end is no root.
    """
    first, second = np.abs(values) <= LEAST_VALUE
    return np.where(first, brackets[0], np.where(second, brackets[1], otherwise))


def _steps(x: tuple[FloatArray, ...], f: tuple[FloatArray, ...], least: FloatArray) -> FloatArray:
    """Return how far to go from the newest end of each bracket to the other, as a share of the way.

    By the inverse parabola through both ends and the point before them, where Chandrupatla's test says that
    it is monotone in between; else halfway.
    """
    (x1, x2, x3), (f1, f2, f3) = x, f
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # where halfway is taken
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        alpha = (x3 - x1) / (x2 - x1)
        safe: BoolArray = (1 - np.sqrt(1 - xi) < phi) & (phi < np.sqrt(xi))
        curved = f1 / (f1 - f2) * f3 / (f3 - f2) - alpha * f1 / (f3 - f1) * f2 / (f2 - f3)
    return np.minimum(np.maximum(np.where(safe, curved, 0.5), least), 1 - least)
