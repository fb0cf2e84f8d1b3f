"""Distributions of times on a lattice up to a limit; sums of independent times are products of transforms.

A distribution is given by its expected excess E[(X − x)⁺], and is discretised so that means are preserved.
The part beyond the limit is dropped, because every sum with it is also beyond the limit. Equations 106 and
107.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray
from optimizer.queueing.roots import root_above

POINTS = 512
"""Number of lattice steps up to the limit."""
ALIASING = 1e-8
"""Bound on aliasing errors: the sequence is damped by this factor over twice the limit."""
PRECISION = 1e-6
"""Relative width of the bracket at which the search for a percentile stops."""

Transform = npt.NDArray[np.complex128]
Excess = Callable[[FloatArray], FloatArray]
"""Expected excess E[(X − x)⁺] as a function of x ≥ 0."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """A lattice of times 0, h, 2h, … up to a limit [ms]."""

    limit_ms: float

    @property
    def step_ms(self) -> float:
        """Step h of the lattice [ms]."""
        return self.limit_ms / POINTS

    def law(self, excess: Excess) -> Transform:
        """Return the transform of a time ≥ 0, given its expected excess."""
        step = self.step_ms
        beyond = excess(step * np.arange(POINTS + 2, dtype=np.float64))
        chances = np.empty(POINTS + 1)
        chances[1:] = np.diff(beyond, 2) / step
        chances[0] = 1 + (beyond[1] - beyond[0]) / step
        padded = np.zeros(2 * (POINTS + 1))
        padded[: POINTS + 1] = np.maximum(chances, 0.0)
        return np.fft.rfft(padded * _damping())

    def within(self, transform: Transform) -> float:
        """Return the probability that a time is within the limit, given its transform."""
        chances = np.fft.irfft(transform, 2 * (POINTS + 1)) / _damping()
        return float(min(max(chances[:POINTS].sum() + chances[POINTS] / 2, 0.0), 1.0))


def _damping() -> FloatArray:
    return np.asarray(ALIASING ** (np.arange(2 * (POINTS + 1)) / (2 * (POINTS + 1))))


def exceeded_by(beyond: Callable[[float], float], share: float, mean_ms: float) -> float:
    """Return the time that is exceeded with a given probability [ms].

    Args:
        beyond: probability of a longer time.
        share: the given probability, above 0 and below 1.
        mean_ms: mean time [ms], around which the search starts.
    """
    return root_above(lambda t: beyond(t) - share, 2e-3 * mean_ms, 2 * mean_ms, PRECISION)


def lognormal_excess(mean_ms: float, cv: float) -> Excess:
    """Return the expected excess of a lognormal time, or of a constant time if its CV is 0."""
    if cv == 0:
        return lambda x: np.maximum(mean_ms - x, 0.0)
    spread = np.sqrt(np.log1p(cv * cv))

    def excess(x: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        with np.errstate(divide="ignore"):
            high = np.log(mean_ms / x) / spread + spread / 2
        return np.asarray(mean_ms * ndtr(high) - np.where(x > 0, x * ndtr(high - spread), 0.0))

    return excess


def residual_excess(mean_ms: float, cv: float) -> Excess:
    """Return the expected excess of the residual of a lognormal time: E[((X − x)⁺)²] / 2E[X]."""
    if cv == 0:
        return lambda x: np.maximum(mean_ms - x, 0.0) ** 2 / (2 * mean_ms)
    spread = np.sqrt(np.log1p(cv * cv))

    def excess(x: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        with np.errstate(divide="ignore"):
            high = np.log(mean_ms / x) / spread + spread / 2
        square = mean_ms**2 * (1 + cv * cv) * ndtr(high + spread) - 2 * x * mean_ms * ndtr(high)
        return np.asarray((square + np.where(x > 0, x * x * ndtr(high - spread), 0.0)) / (2 * mean_ms))

    return excess


def scaled_excess(excess: Excess, factor: float) -> Excess:
    """Return the expected excess of a time multiplied by a factor."""
    return lambda x: factor * excess(x / factor)
