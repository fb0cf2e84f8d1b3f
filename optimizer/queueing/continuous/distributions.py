"""Distributions of latencies: gamma and lognormal variables, and mixtures of them over the rows of a load.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.queueing.roots import closed_brackets, zeros_or

QUANTILE_WIDTH = 1e-12


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma distributions, given by mean and variance; arrays of one shape."""

    mean: FloatArray
    variance: FloatArray

    def _shape(self) -> tuple[FloatArray, FloatArray]:
        mean = np.maximum(self.mean, 1e-12)
        variance = np.maximum(self.variance, 1e-8 * mean**2)
        return mean**2 / variance, variance / mean

    def survival(self, x: FloatArray) -> FloatArray:
        """Return P(X > x)."""
        from scipy.special import gammaincc

        shape, scale = self._shape()
        return np.asarray(gammaincc(shape, np.maximum(x, 0.0) / scale))

    def quantile(self, share: float) -> FloatArray:
        """Return x with P(X ≤ x) = share."""
        from scipy.special import gammaincinv

        shape, scale = self._shape()
        return np.asarray(gammaincinv(shape, share) * scale)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lognormal distributions, given by mean and variance; arrays of one shape."""

    mean: FloatArray
    variance: FloatArray

    def _logarithm(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation of the logarithm of the variable."""
        mean = np.maximum(self.mean, 1e-12)
        square = np.log1p(np.maximum(self.variance / mean**2, 1e-8))
        return np.log(mean) - square / 2, np.sqrt(square)

    def survival(self, x: FloatArray) -> FloatArray:
        """Return P(X > x)."""
        from scipy.special import ndtr

        middle, deviation = self._logarithm()
        return np.asarray(ndtr((middle - np.log(np.maximum(x, 1e-300))) / deviation))

    def quantile(self, share: float) -> FloatArray:
        """Return x with P(X ≤ x) = share."""
        from scipy.special import ndtri

        middle, deviation = self._logarithm()
        return np.asarray(np.exp(middle + ndtri(share) * deviation))


@dataclass(frozen=True, slots=True)
class Parts(RowArrays):
    """Latencies of the rows of R loads, as gamma variables above a minimum.

    The requests of a row can be divided into parts with their own distributions, such as those that meet a
    long prompt and the others. Shapes (R, H, P).
    """

    share: FloatArray
    """Share of the row's requests that belongs to each part."""
    least_ms: FloatArray
    mean_ms: FloatArray
    """Mean above the minimum [ms]."""
    variance: FloatArray
    """Variance [ms²]."""

    @classmethod
    def single(cls, least_ms: FloatArray, mean_ms: FloatArray, variance: FloatArray) -> Self:
        """Return rows that are not divided; shapes (R, H)."""
        columns = np.ones_like(least_ms), least_ms, mean_ms, variance
        return cls(*(column[..., np.newaxis] for column in columns))

    @property
    def above(self) -> Gamma:
        """Distributions of the latencies above their minima."""
        return Gamma(self.mean_ms, self.variance)

    @property
    def rows_ms(self) -> FloatArray:
        """Mean of each row [ms], shape (R, H)."""
        return np.asarray((self.share * (self.least_ms + self.mean_ms)).sum(axis=2))

    def divided(self, parts: int) -> "Parts":
        """Return the same distributions with a number of parts; further parts have the share 0."""
        more = [(0, 0), (0, 0), (0, parts - self.share.shape[2])]
        share = np.pad(self.share, more)
        return Parts(share, *(np.pad(values, more, mode="edge") for values in self.columns()[1:]))


class Survival(Protocol):
    """Survival functions of R variables."""

    def __call__(self, x: FloatArray, /) -> FloatArray:
        """Return P(X > x) of each variable at its own point, shapes (R,)."""

    def take(self, rows: IntArray) -> Self:
        """Return the functions with the given indices."""


@dataclass(frozen=True, slots=True)
class _Excess:
    """Function whose root is a quantile: log of P(X > x) divided by a given probability."""

    survival: Survival
    tail: float

    def take(self, rows: IntArray) -> "_Excess":
        return _Excess(self.survival.take(rows), self.tail)

    def __call__(self, x: FloatArray, /) -> FloatArray:
        return np.log(np.maximum(self.survival(x), 1e-300) / self.tail)


def quantiles(
    survival: Survival, low: FloatArray, share: float, wide: BoolArray, high: Callable[[IntArray], FloatArray]
) -> FloatArray:
    """Return x with P(X ≤ x) = share, shape (R,).

    Args:
        survival: survival functions.
        low: lower bounds of the quantiles; the quantiles themselves in rows that are not `wide`.
        share: the probability.
        wide: mask of the rows whose quantile can be above its lower bound.
        high: returns upper bounds of the quantiles of the rows with the given indices.
    """
    result = low.copy()
    rows = np.flatnonzero(wide & (survival(low) > (1 - share) * (1 + QUANTILE_WIDTH)))
    if len(rows):
        excess = _Excess(survival.take(rows), 1 - share)
        ends = np.stack((low[rows], high(rows)))
        values = np.stack((excess(ends[0]), excess(ends[1])))
        brackets, values = closed_brackets(excess, ends, values, QUANTILE_WIDTH)
        result[rows] = zeros_or(brackets.max(axis=0), brackets, values)
    return result


def least_of(values: FloatArray, real: BoolArray) -> FloatArray:
    """Return the minimum over the real parts of each replica, shapes (R, ...) and (R,)."""
    return np.asarray(np.where(real, values, np.inf).reshape(len(values), -1).min(axis=1))


def most_of(values: FloatArray, real: BoolArray) -> FloatArray:
    """Return the maximum over the real parts of each replica, shapes (R, ...) and (R,)."""
    return np.asarray(np.where(real, values, -np.inf).reshape(len(values), -1).max(axis=1))
