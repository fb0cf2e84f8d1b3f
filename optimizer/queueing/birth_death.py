"""The stationary distribution of the state-dependent queue, for many rows at once.

State i is the number of requests in a replica; arrivals come at rate λ, departures at μ(min(i, N)). Up to
N the weights are summed term by term in log space; beyond N they are geometric, and the states N … N+Q
are one group in closed form. The states of all rows stand one row after the other in flat arrays, so that
no work is spent on padding and a row's result does not depend on its neighbours. Nothing here knows of
tokens. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray

SERIES_BELOW = 0.05
"""Arguments up to this size are put into a series where the closed form would cancel."""


@dataclass(frozen=True, slots=True)
class Stationary:
    """Long-run means of the queue of each row; all shapes (R,)."""

    in_service: FloatArray
    """Mean number of requests in the batch, E[min(i, N)]."""
    in_queue: FloatArray
    """Mean number of requests waiting behind a full batch."""
    acceptance: FloatArray
    """Share of arrivals that are admitted, 1 − p(N+Q), to full relative precision."""
    log_p_empty: FloatArray
    """Natural logarithm of p(0)."""
    log_p_full: FloatArray
    """Natural logarithm of p(N+Q), the share of arrivals that are lost."""


@dataclass(frozen=True, slots=True)
class BirthDeathQueue:
    """R queues with state-dependent departures, ready to be solved at any arrival rate.

    The flat arrays have one element per row and state 0 … N, shape (E,) with E = Σ (N + 1).
    """

    log_weight: FloatArray
    """−Σ log μ(k) for k = 1 … state, shape (E,)."""
    state: FloatArray
    """State of each element, shape (E,)."""
    start: IntArray
    """Element of each row's state 0, shape (R,)."""
    log_full_rate: FloatArray
    """log μ(N), shape (R,)."""
    max_batch: IntArray
    """N, shape (R,)."""
    max_queue: IntArray
    """Q, shape (R,)."""

    @classmethod
    def from_rates(cls, log_rates: FloatArray, max_batch: IntArray, max_queue: IntArray) -> Self:
        """Build the queues from log μ(1 … N) of each row, one row after the other: shape (Σ N,)."""
        states = np.arange(int(max_batch.max()) + 1)
        inside = states <= max_batch[:, None]
        table = np.zeros(inside.shape)
        table[:, 1:][inside[:, 1:]] = -log_rates
        np.cumsum(table, axis=1, out=table)
        start = np.cumsum(max_batch + 1) - (max_batch + 1)
        return cls(
            log_weight=table[inside],
            state=np.broadcast_to(states.astype(np.float64), inside.shape)[inside],
            start=start,
            log_full_rate=log_rates[np.cumsum(max_batch) - 1],
            max_batch=max_batch,
            max_queue=max_queue,
        )

    def take(self, rows: IntArray) -> Self:
        """Return the queues of the chosen rows, in their order."""
        max_batch = self.max_batch[rows]
        lengths = max_batch + 1
        start = np.cumsum(lengths) - lengths
        elements = np.repeat(self.start[rows] - start, lengths) + np.arange(int(lengths.sum()))
        return type(self)(
            self.log_weight[elements],
            self.state[elements],
            start,
            self.log_full_rate[rows],
            max_batch,
            self.max_queue[rows],
        )

    def solve(self, log_rate: FloatArray) -> Stationary:
        """Return the stationary means at arrival rates exp(`log_rate`), shape (R,), in the unit of μ.

        Equations 10-17.
        """
        lengths = self.max_batch + 1
        last = self.start + self.max_batch
        capacity = self.max_queue.astype(np.float64)
        log_load = log_rate - self.log_full_rate
        log_tail = _log_geometric_sum(log_load, capacity + 1)

        weights = self.state * np.repeat(log_rate, lengths)
        weights += self.log_weight
        log_batch_full = weights[last]
        weights[last] += log_tail
        peak = np.maximum.reduceat(weights, self.start)
        weights -= np.repeat(peak, lengths)
        np.exp(weights, out=weights)
        total = np.add.reduceat(weights, self.start)
        tail = weights[last] / total
        weights[last] = 0.0
        below = np.add.reduceat(weights, self.start) / total
        weights *= self.state
        in_service = np.add.reduceat(weights, self.start) / total + self.max_batch * tail
        log_total = peak + np.log(total)
        kept_share = _share_below_last(log_load, capacity)
        return Stationary(
            in_service=in_service,
            in_queue=tail * _geometric_mean(log_load, capacity + 1),
            acceptance=below + tail * kept_share,
            log_p_empty=-log_total,
            log_p_full=log_batch_full + capacity * log_load - log_total,
        )


def _log_geometric_sum(log_ratio: FloatArray, terms: FloatArray) -> FloatArray:
    """Return log Σ_{j<terms} exp(j·log_ratio), stable on both sides of a ratio of one (eq. 11)."""
    magnitude = np.maximum(np.abs(log_ratio), 1e-300)
    growth = np.where(log_ratio > 0, (terms - 1) * log_ratio, 0.0)
    with np.errstate(divide="ignore"):
        return growth + np.log(np.expm1(-terms * magnitude) / np.expm1(-magnitude))


def _share_below_last(log_ratio: FloatArray, count: FloatArray) -> FloatArray:
    """Return the share of the first `count` of count + 1 terms exp(j·log_ratio), to full precision."""
    magnitude = np.maximum(np.abs(log_ratio), 1e-300)
    share = np.expm1(-count * magnitude) / np.expm1(-(count + 1) * magnitude)
    return share * np.exp(-np.maximum(log_ratio, 0.0))


def _geometric_mean(log_ratio: FloatArray, terms: FloatArray) -> FloatArray:
    """Return the mean of j = 0 … terms−1 under weights exp(j·log_ratio) (eq. 13)."""
    near_one = np.abs(log_ratio) < SERIES_BELOW
    safe = np.where(near_one, 1.0, log_ratio)
    with np.errstate(over="ignore"):
        apart = 1 / np.expm1(-safe) - terms / np.expm1(-terms * safe)
    if not near_one.any():
        return apart
    return np.where(near_one, terms * _langevin(terms * log_ratio) - _langevin(log_ratio), apart)


def _langevin(y: FloatArray) -> FloatArray:
    """Return 1/(1 − e^−y) − 1/y, smooth through y = 0, where it is one half."""
    small = np.abs(y) < SERIES_BELOW
    safe = np.where(small, 1.0, y)
    series = 0.5 + y * (1 / 12 - y * y * (1 / 720 - y * y / 30240))
    with np.errstate(over="ignore"):
        direct = -1 / np.expm1(-safe) - 1 / safe
    return np.where(small, series, direct)
