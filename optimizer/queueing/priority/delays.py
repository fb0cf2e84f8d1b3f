"""Waiting times of requests that must wait under priorities: busy periods with random initial work.

A request waits until all requests ahead of it, and all of higher priority that arrive in the meantime, have
left. With exponential service times and Poisson arrivals, this time is a mixture of exponential times: the
integral of eq. 168, and at most one further exponential. All terms are positive, so no digits cancel in the
tail. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.queueing.roots import closed_brackets

NODES = 112
"""Number of quadrature points for the integral of eq. 168."""
REACH_BELOW, REACH_ABOVE = 18.0, 7.0
"""Range of the integral of eq. 168 on its logarithmic axis, below and above the point at which the integrand
changes.
"""
QUANTILE_WIDTH = 1e-12
MARGIN = 1e-9
"""Relative margin that is added to the upper ends of brackets."""
MIN_LOAD = 1e-100
"""Minimum load, because formulas divide by squares of loads."""
MIN_TAIL = 1e-300


@dataclass(frozen=True, slots=True)
class PriorityDelays(RowArrays):
    """Waiting times of R classes over the requests that wait, shapes (R,)."""

    mean_ms: FloatArray
    above: FloatArray
    """σ′: load of all classes of higher priority."""
    upto: FloatArray
    """σ: load of all classes of higher or equal priority; below 1."""

    @property
    def variance(self) -> FloatArray:
        """Variance of the waiting time [ms²] (eq. 170)."""
        square = 2 * (1 - self.above * self.upto) / (1 - self.above)
        return self.mean_ms**2 * (square - 1)

    def survival(self, time_ms: FloatArray) -> FloatArray:
        """Return P(waiting time > `time_ms` | waiting time > 0), shape (R,) (eq. 168, 169)."""
        y, above, upto = time_ms / self.mean_ms, self.above, np.maximum(self.upto, MIN_LOAD)
        weight, decay = self._slowest()
        with np.errstate(over="ignore"):
            probability = weight * np.exp(-y * decay)
        rows = np.flatnonzero(above > 0)
        if len(rows):
            probability[rows] += _continuum(y[rows], above[rows], upto[rows])
        return np.where(time_ms > 0, np.minimum(probability, 1.0), 1.0)

    def quantile(self, one_in: FloatArray) -> FloatArray:
        """Return the waiting time that one in `one_in` of the waiting requests exceeds [ms], shape (R,)."""
        quantile = np.zeros(len(one_in))
        rows = np.flatnonzero(one_in > 1)
        if len(rows):
            some, logs = self.take(rows), np.log(one_in[rows])
            _, decay = some._slowest()  # noqa: SLF001  of its own class
            slowest = np.minimum(decay, _edge(some.above, some.upto))
            ends = np.stack((np.zeros(len(rows)), (1 + MARGIN) * logs / slowest * some.mean_ms))
            excess = _LogTail(some, logs)
            values = np.stack((excess(ends[0]), excess(ends[1])))
            brackets, values = closed_brackets(excess, ends, values, QUANTILE_WIDTH)
            nearest = np.abs(values).argmin(axis=0)
            quantile[rows] = np.take_along_axis(brackets, nearest[np.newaxis], 0)[0]
        return quantile

    def _slowest(self) -> tuple[FloatArray, FloatArray]:
        """Return the weight of the exponential term of eq. 169, and its decay rate times the mean."""
        above, upto = self.above, np.maximum(self.upto, MIN_LOAD)
        ratio = above / upto
        alone: BoolArray = upto**2 > above
        safe = np.where(alone, ratio, 0.0)
        weight = np.where(alone, (1 - safe / upto) / (1 - safe), 0.0)
        return weight, np.where(alone, (1 - safe) / (1 - above), _edge(above, upto))


@dataclass(frozen=True, slots=True)
class _LogTail:
    """Function whose root is a quantile: log of P(longer wait) divided by a given probability."""

    delays: PriorityDelays
    logs: FloatArray

    def take(self, rows: IntArray) -> "_LogTail":
        return _LogTail(self.delays.take(rows), self.logs[rows])

    def __call__(self, x: FloatArray, /) -> FloatArray:
        return np.log(np.maximum(self.delays.survival(x), MIN_TAIL)) + self.logs


def _edge(above: FloatArray, upto: FloatArray) -> FloatArray:
    """Return the smallest decay rate of the integral's exponentials, times the mean."""
    return (1 - np.sqrt(above)) ** 2 / ((1 - upto) * (1 - above))


def _continuum(y: FloatArray, above: FloatArray, upto: FloatArray) -> FloatArray:
    """Return the integral over exponentials (eq. 168) by the trapezoidal rule, for times y in means.

    On the axis u = log tan(φ/2), the integrand decays at both ends and is smooth, so the rule converges
    exponentially.
    """
    root = np.sqrt(above)[:, np.newaxis]
    upto, y = upto[:, np.newaxis], y[:, np.newaxis]
    start = np.log((1 - root) / 2) - REACH_BELOW
    step = (REACH_ABOVE - start) / (NODES - 1)
    u = start + step * np.arange(NODES)
    rise, sine = 2 / (1 + np.exp(-2 * u)), 1 / np.cosh(u)  # 1 - cos φ and sin φ
    rate = (1 - root) ** 2 + 2 * root * rise
    pole = (root - upto) ** 2 + 2 * root * upto * rise
    decay = np.exp(-y * rate / ((1 - upto) * (1 - root**2)))
    terms = sine**3 * decay / (rate * pole)
    continuum: FloatArray = 2 / np.pi * (1 - upto[:, 0]) * above * step[:, 0] * terms.sum(axis=1)
    return continuum
