"""Memory of prefill replicas: a prompt waits until its KV cache fits beside those that are computed or held.

A prefill replica holds the KV cache of a prompt until the first step of the decode replica that took it.
Arrays have shape (R,), those of points (R, H); times are in ms and rates in requests/ms. Equation numbers
refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, RowArrays
from optimizer.queueing.continuous.schedulers import MAX_SLOT_LOAD, queue_chance
from optimizer.queueing.disaggregated.points import LengthPoints
from optimizer.queueing.shapes import row_sum


@dataclass(frozen=True, slots=True)
class PromptMemory(RowArrays):
    """KV caches of R prefill replicas."""

    points: LengthPoints
    token_share: FloatArray
    """Share of all tokens that the prompts of each point hold, shape (R, H)."""
    places: FloatArray
    """c: number of prompts that the memory holds; inf if it is unlimited."""

    @classmethod
    def of(cls, points: LengthPoints, capacity: FloatArray) -> Self:
        """Create the memory of replicas with a capacity [tokens] (eq. 311)."""
        tokens = points.computed + points.cached
        mean, square = points.mean(tokens), points.mean(tokens**2)
        scv = np.maximum(square / mean**2 - 1, 0.0)
        # Some space is free, but too small for the next prompt.
        places = np.where(scv < 1e-9, np.floor(capacity / mean), capacity / mean - (1 + scv) / 2)
        return cls(points, points.weight * tokens / mean[:, np.newaxis], np.maximum(places, 1.0))

    def held_ms(self, held_ms: FloatArray) -> FloatArray:
        """Return the mean time for which a token is held, of the time of each point [ms]."""
        return row_sum(self.token_share * held_ms)

    def largest_rate(self, held_ms: FloatArray) -> FloatArray:
        """Return the rate at which the memory is always full [requests/ms], of the time of each point."""
        return self.places / self.held_ms(held_ms)

    def wait(self, rate: FloatArray, scv: FloatArray, held_ms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the wait for memory (eq. 313).

        Args:
            rate: arrival rate of a replica [requests/ms].
            scv: squared coefficient of variation of the interarrival times.
            held_ms: time for which the prompts of each point are held [ms], shape (R, H).
        """
        mean = self.held_ms(held_ms)
        load = np.minimum(rate * mean / self.places, MAX_SLOT_LOAD)
        chance = queue_chance(rate * mean, self.places)
        used = (self.points.computed + self.points.cached) * held_ms
        used_scv = np.maximum(self.points.mean(used**2) / self.points.mean(used) ** 2 - 1, 0.0)
        given = mean / (self.places * (1 - load)) * (scv + used_scv) / 2
        return chance * given, chance * (2 - chance) * given**2
