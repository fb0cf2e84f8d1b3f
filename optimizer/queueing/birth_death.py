"""Stationary distribution of queues with state-dependent service, for many queues (rows) at once.

State i is the number of requests in a replica, N the batch limit and Q the queue capacity. The arrival rate
is λ, and the departure rate μ(min(i, N)). Up to N, the weights of states are summed term by term in log
space; beyond N they are geometric, so states N … N+Q are summed in closed form. Flat arrays contain the
states of one row after the other, so there is no padding, and the result of a row does not depend on its
neighbours. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray, runs

BLOCK_STATES = 2**16
"""Maximum number of states that are summed at once, so that they fit in the processor's cache."""
SERIES_BELOW = 0.05
"""Absolute value of arguments below which a series is used, because the closed form loses digits there."""


@dataclass(frozen=True, slots=True)
class Stationary:
    """Stationary means of R queues; all shapes (R,)."""

    in_service: FloatArray
    """Mean number of requests in the batch, E[min(i, N)]."""
    in_queue: FloatArray
    """Mean number of requests that wait for a full batch."""
    acceptance: FloatArray
    """Share of arrivals that are admitted, 1 − p(N+Q), to full relative precision."""
    log_p_empty: FloatArray
    """Natural logarithm of p(0)."""
    log_p_full: FloatArray
    """Natural logarithm of p(N+Q), the blocking probability."""


@dataclass(frozen=True, slots=True)
class BirthDeathQueue:
    """R queues with state-dependent departure rates, prepared to be solved at any arrival rate.

    Identical queues can share their states.
    """

    log_weight: FloatArray
    """−Σ log μ(k) for k = 1 … state, for the states 0 … N of all queues in turn; shape (E,)."""
    start: IntArray
    """Index of each row's state 0 in `log_weight`, shape (R,)."""
    log_full_rate: FloatArray
    """Logarithm of μ(N), the departure rate of a full batch, shape (R,)."""
    max_batch: IntArray
    """N: batch limit, shape (R,)."""
    max_queue: IntArray
    """Q: queue capacity, shape (R,)."""

    @classmethod
    def from_rates(cls, log_rates: FloatArray, max_batch: IntArray, max_queue: IntArray) -> Self:
        """Build the queues from their departure rates.

        Args:
            log_rates: logarithms of μ(1 … N), one row after the other, shape (Σ N,).
            max_batch: batch limits N, shape (R,).
            max_queue: queue capacities Q, shape (R,).
        """
        states = np.arange(int(max_batch.max()) + 1)
        inside = states <= max_batch[:, None]
        table = np.zeros(inside.shape)
        table[:, 1:][inside[:, 1:]] = -log_rates
        np.cumsum(table, axis=1, out=table)
        start = np.cumsum(max_batch + 1) - (max_batch + 1)
        return cls(
            log_weight=table[inside],
            start=start,
            log_full_rate=log_rates[np.cumsum(max_batch) - 1],
            max_batch=max_batch,
            max_queue=max_queue,
        )

    def take(self, rows: IntArray) -> Self:
        """Return the queues with the given indices; they share their states with the original queues."""
        return type(self)(
            self.log_weight,
            self.start[rows],
            self.log_full_rate[rows],
            self.max_batch[rows],
            self.max_queue[rows],
        )

    def solve(self, log_rate: FloatArray) -> Stationary:
        """Return the stationary means at arrival rates exp(`log_rate`), shape (R,), in the unit of μ.

        The method uses equations 10 to 17.
        """
        capacity = self.max_queue.astype(np.float64)
        log_load = log_rate - self.log_full_rate
        log_tail, kept_share, waiting = _geometric(log_load, capacity)
        end = np.cumsum(self.max_batch + 1)
        block = (end - 1) // BLOCK_STATES
        sums = np.empty((5, len(log_rate)))
        for first, last in runs(block):
            sums[:, first:last] = self._sums(slice(first, last), log_rate[first:last], log_tail[first:last])
        log_batch_full, log_total, below, tail, in_service = sums
        return Stationary(
            in_service=in_service,
            in_queue=tail * waiting,
            acceptance=below + tail * kept_share,
            log_p_empty=-log_total,
            log_p_full=log_batch_full + capacity * log_load - log_total,
        )

    def _sums(self, rows: slice, log_rate: FloatArray, log_tail: FloatArray) -> tuple[FloatArray, ...]:
        """Sum the weights of the states of some rows.

        Returns:
            Logarithm of the weight of state N, and of the sum of all; share of the states below N, and of the
            others; mean number of requests in the batch.
        """
        max_batch = self.max_batch[rows]
        lengths = max_batch + 1
        last = np.cumsum(lengths) - 1
        start = last - max_batch
        count = int(last[-1]) + 1
        state = np.arange(count, dtype=np.float64)
        state -= np.repeat(start.astype(np.float64), lengths)
        element = np.repeat(self.start[rows] - start, lengths)
        element += np.arange(count)

        weights = np.repeat(log_rate, lengths)
        weights *= state
        weights += self.log_weight[element]
        log_batch_full = weights[last]
        weights[last] += log_tail
        peak = np.maximum.reduceat(weights, start)
        weights -= np.repeat(peak, lengths)
        np.exp(weights, out=weights)
        total = np.add.reduceat(weights, start)
        tail = weights[last] / total
        weights[last] = 0.0
        below = np.add.reduceat(weights, start) / total
        weights *= state
        in_service = np.add.reduceat(weights, start) / total + max_batch * tail
        return log_batch_full, peak + np.log(total), below, tail, in_service


def _geometric(log_ratio: FloatArray, last: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return sums over the terms exp(j·log_ratio), j = 0 … last; numerically stable near a ratio of 1.

    Returns:
        Logarithm of the sum (eq. 11); share of all terms but the last, to full precision; mean of j with the
        terms as weights (eq. 13).
    """
    terms = last + 1
    magnitude, above = np.maximum(np.abs(log_ratio), 1e-300), np.maximum(log_ratio, 0.0)
    near_one = np.abs(log_ratio) < SERIES_BELOW
    safe = np.where(near_one, 1.0, log_ratio)
    with np.errstate(divide="ignore", over="ignore"):
        whole = np.expm1(-terms * magnitude)
        log_sum = last * above + np.log(whole / np.expm1(-magnitude))
        below_last = np.expm1(-last * magnitude) / whole * np.exp(-above)
        mean = 1 / np.expm1(-safe) - terms / np.expm1(-terms * safe)
    if near_one.any():
        mean = np.where(near_one, terms * _langevin(terms * log_ratio) - _langevin(log_ratio), mean)
    return log_sum, below_last, mean


def _langevin(y: FloatArray) -> FloatArray:
    """Return 1/(1 − e^−y) − 1/y (the Langevin function, shifted), which is 1/2 at y = 0."""
    small = np.abs(y) < SERIES_BELOW
    safe = np.where(small, 1.0, y)
    series = 0.5 + y * (1 / 12 - y * y * (1 / 720 - y * y / 30240))
    with np.errstate(over="ignore"):
        direct = -1 / np.expm1(-safe) - 1 / safe
    return np.where(small, series, direct)
