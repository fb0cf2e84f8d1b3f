"""Handover of the KV cache from a prefill replica to a decode replica, over a link of the prefill replica.

The link sends one request at a time. Arrays have shape (R,), those of points (R, H); times are in ms and
rates in requests/ms. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, RowArrays
from optimizer.queueing.continuous.replicas import column
from optimizer.queueing.disaggregated.points import LengthPoints

BYTES_PER_MS = 1e6
"""1 GB/s in bytes per ms."""
MAX_LOAD = 0.999


class LinkTimes(NamedTuple):
    """Time on the link after the prefill of a prompt."""

    rest_ms: FloatArray
    """Transfer time that is left at the end of the prefill, of each point [ms], shape (R, H)."""
    wait_ms: FloatArray
    """Mean wait for the transfers of other requests [ms], shape (R,)."""
    load: FloatArray
    """Share of time in which the link sends, shape (R,)."""


@dataclass(frozen=True, slots=True)
class Handover(RowArrays):
    """Handover of R pairs of pools, shapes (R,)."""

    bandwidth: FloatArray
    """Bandwidth of the link of a prefill replica [GB/s]."""
    kv_bytes: FloatArray
    """Size of the KV cache of a token [bytes]."""
    layers: FloatArray
    """Number of layers that are sent one by one during the prefill; 1 sends all layers at its end."""
    fixed_ms: FloatArray
    """Time of each handover in addition to the transfer [ms]."""

    def rest_ms(self, points: LengthPoints, own_ms: FloatArray) -> FloatArray:
        """Return the transfer time left at the end of the prefill [ms], shape (R, H) (eq. 296).

        Layer by layer, all layers but the last can be sent while the prompt is computed.
        """
        tokens = points.computed + points.cached
        whole = tokens * column(self.kv_bytes / (self.bandwidth * BYTES_PER_MS))
        last = column(1 / self.layers)
        return np.asarray(np.maximum(whole * last, whole - (1 - last) * own_ms))

    def largest_rate(self, points: LengthPoints, own_ms: FloatArray, prefill_rate: FloatArray) -> FloatArray:
        """Return the rate with full iterations or a full link [requests/ms], shape (R,) (eq. 290, 297).

        Args:
            points: points of the load.
            own_ms: prefill time of each point [ms], shape (R, H).
            prefill_rate: rate of a prefill replica with full iterations [requests/ms].
        """
        rest = points.mean(self.rest_ms(points, own_ms))
        return np.asarray(np.minimum(prefill_rate, 1 / np.maximum(rest, 1e-300)))

    def link(
        self,
        points: LengthPoints,
        rest_ms: FloatArray,
        rate: FloatArray,
        prompts: FloatArray,
        service: tuple[FloatArray, FloatArray],
    ) -> LinkTimes:
        """Return the wait for the link (eq. 297).

        Args:
            points: points of the load.
            rest_ms: transfer times [ms], shape (R, H).
            rate: rate of a prefill replica [requests/ms].
            prompts: mean number of prompts that are computed together and ready at once.
            service: mean [ms] and squared coefficient of variation of the prefill times of prompts in full
                iterations; prompts that follow each other by equal times do not wait for the link.
        """
        mean, square = points.mean(rest_ms), points.mean(rest_ms**2)
        load = np.minimum(rate * mean, MAX_LOAD)
        batch = (np.maximum(prompts, 1.0) - 1) / 2 * mean
        queue = rate * square / (2 * (1 - load)) * np.minimum(1.0, mean / service[0])
        queue = np.where(prompts > 1, queue, queue * np.minimum(1.0, service[1]))
        return LinkTimes(rest_ms, batch + queue, load)
