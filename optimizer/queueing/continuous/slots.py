"""Queueing of requests for the batch slots of a replica.

All arrays have shape (R,), times are in ms and rates in requests/ms. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.continuous.arrivals import dispersion
from optimizer.queueing.continuous.replicas import Iteration, ReplicaArrays

MAX_LOAD = 0.999
"""Maximum load of the batch slots that the formula for the queueing time uses."""
MIN_DISPERSION = 0.05
MIN_SCV = 0.02


@dataclass(frozen=True, slots=True)
class BatchSlots:
    """Queueing of requests for a batch slot, shapes (R,) (eq. 81-83)."""

    chance: FloatArray
    """Probability that a request must queue for a slot."""
    wait_ms: FloatArray
    """Mean queueing time of the requests that queue [ms]."""
    variance: FloatArray
    """Variance of the number of requests in the replica, including queued ones."""
    batch_variance: FloatArray
    """Variance of the number of requests in the batch."""

    @classmethod
    def of(
        cls,
        replicas: ReplicaArrays,
        rate: FloatArray,
        largest: FloatArray,
        number: tuple[FloatArray, FloatArray],
    ) -> Self:
        """Compute the queueing, with a gamma-distributed number of requests that is truncated at the slots.

        Args:
            replicas: R replicas.
            rate: arrival rate [1/ms].
            largest: rate with all batch slots occupied [1/ms].
            number: mean and variance of the number of requests in the replica.
        """
        from scipy.special import gammainc, gammaln

        load, (inside, variance) = np.minimum(rate / largest, MAX_LOAD), number
        shape, scale = inside**2 / variance, variance / inside
        full = replicas.places / scale
        log_density = (shape - 1) * np.log(full) - full - gammaln(shape) - np.log(scale)
        tail = np.exp(log_density) * (replicas.arrival_scv + 1) / 2 / (1 - load)
        # Slots become free as requests leave; far from saturation, at least half the maximum rate is used.
        leaving = np.maximum(rate, largest / 2)
        spread_of_both = np.maximum(replicas.arrival_scv, MIN_SCV) + replicas.answer_scv
        wait = spread_of_both / 2 / (1 - load) / leaving
        below = gammainc(shape, full)
        with_place = _variance_cut(shape, scale, replicas.places)
        return cls(tail / np.maximum(below + tail, 1e-300), wait, variance, with_place)


def requests_inside(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, own_ms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the number of requests in a replica, without queued ones (eq. 81).

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations of the replicas.
        own_ms: prefill time of the prompts of each row [ms], shape (R, H).
    """
    inside = rate * (replicas.rows.mean(own_ms) + replicas.steps * iteration.mean_ms)
    spread = np.maximum(dispersion(inside, replicas.arrival_scv), MIN_DISPERSION)
    # Only the fraction base/mean of an iteration does not grow with the batch.
    standing = replicas.times.standing_ms(iteration.seen)
    return inside, spread * inside * replicas.alike_ms(iteration) / np.maximum(standing, 1e-12)


def _variance_cut(shape: FloatArray, scale: FloatArray, most: FloatArray) -> FloatArray:
    """Return the variance of the minimum of a gamma variable and a limit (eq. 129)."""
    from scipy.special import gammainc, gammaincc

    full = most / scale
    mean = shape * scale * gammainc(shape + 1, full) + most * gammaincc(shape, full)
    square = shape * (shape + 1) * scale**2 * gammainc(shape + 2, full) + most**2 * gammaincc(shape, full)
    return np.asarray(np.maximum(square - mean**2, 0.0))
