"""Linear law with static batching: a batch is completed before the next one starts.

A batch of n requests takes as many steps as its longest output. The mean of these steps depends on the
variability of output lengths, which are assumed to be lognormal. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray, frozen
from optimizer.documents import Document
from optimizer.timing.law import RequestShapes, TokenTimes
from optimizer.timing.linear import LinearFields, LinearLaw

STEP = 0.05
"""Step width of the quadrature over standard normal values."""
REACH = 10.0
"""Limit of the quadrature over standard normal values, which runs from −REACH to REACH plus the spread of
lengths.
"""
PADDED = "padded"


@dataclass(frozen=True, slots=True)
class StaticLaw(LinearLaw):
    """Linear law with static batching, for R rows; all fields have shape (R,)."""

    name: ClassVar[str] = "static"
    is_static: ClassVar[bool] = True

    padded: FloatArray
    """1 if requests are computed until the last one of the batch completes, otherwise 0."""
    out_tokens_cv: FloatArray

    @classmethod
    def applies_to(cls, document: Document) -> bool:
        """Return whether a document uses static batching."""
        return is_static(document)

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return α, β, γ, δ, and 1 if batches are padded, else 0."""
        assert isinstance(document, LinearFields)
        return *LinearLaw.parameters(document), float(document.batching == PADDED)

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the latency model of R rows from parameters in the order of `parameters`, shape (5, R)."""
        cv = np.ones_like(shapes.out_tokens) if shapes.out_tokens_cv is None else shapes.out_tokens_cv
        alpha, beta, gamma, delta, padded = parameters
        return cls(alpha, beta, gamma, delta, shapes.in_tokens, shapes.out_tokens, padded, cv)

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the time of a batch from the start of its prefill to its last token [ms] (eq. 116).

        The shape is (R,).
        """
        longest = self.out_tokens * longest_to_mean(self.out_tokens_cv, occupancy)
        steps = np.maximum(longest - 1, 0.0)
        own = np.where(self.padded > 0, steps, np.maximum(self.out_tokens - 1, 0.0))
        decode = self.decode_base_ms * steps + self.decode_per_request_ms * occupancy * own
        return self.prefill_ms(occupancy) + decode

    def prefill_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the prefill time of a batch [ms], shape (R,)."""
        prompt = self.prefill_base_ms + self.prefill_per_token_ms * self.in_tokens * occupancy
        return np.where(self.in_tokens > 0, prompt, 0.0)

    def spread_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the standard deviation of the time of a batch [ms], shape (R,) (eq. 118)."""
        mean, square = (longest_to_mean(self.out_tokens_cv, occupancy, power) for power in (1, 2))
        longest = self.out_tokens * np.sqrt(np.maximum(square - mean * mean, 0.0))
        together = np.where(self.padded > 0, occupancy, 0.0)
        own = np.where(self.padded > 0, 0.0, self.out_tokens * self.out_tokens_cv * np.sqrt(occupancy))
        per_step = self.decode_base_ms + self.decode_per_request_ms * together
        return np.hypot(per_step * longest, self.decode_per_request_ms * own)

    def answer_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the time from a request's first token to its last one in a batch [ms], shape (R,) (eq. 119).

        Only requests that are still in progress add time. The mean of the shorter of two lognormal lengths is
        2Φ(−σ/√2) times their mean.
        """
        from scipy.special import ndtr

        spread = np.sqrt(np.log1p(self.out_tokens_cv**2))
        shorter = np.where(self.padded > 0, 1.0, 2 * ndtr(-spread / np.sqrt(2)))
        steps = np.maximum(self.out_tokens - 1, 0.0)
        others = (occupancy - 1) * np.maximum(shorter * self.out_tokens - 1, 0.0)
        others = np.where(self.padded > 0, (occupancy - 1) * steps, others)
        alone = self.decode_base_ms + self.decode_per_request_ms
        return alone * steps + self.decode_per_request_ms * others

    def token_times(
        self,
        mean_service_ms: FloatArray,  # noqa: ARG002  the batch determines it
        mean_in_service: FloatArray,
        max_batch: IntArray,
    ) -> TokenTimes:
        """Return the times of a request's phases at the mean batch."""
        batch = np.clip(mean_in_service, 1.0, max_batch)
        prefill = self.prefill_ms(batch)
        steps = self.out_tokens - 1
        itl = np.where(steps > 0, self.answer_ms(batch) / np.where(steps > 0, steps, 1.0), 0.0)
        return TokenTimes(prefill, itl, prefill)


def is_static(document: Document) -> bool:
    """Return whether a document uses static batching."""
    return getattr(document, "batching", "continuous") != "continuous"


def longest_to_mean(cv: FloatArray, batch: FloatArray, power: int = 1) -> FloatArray:
    """Return E[Lᵖ] / E[l]ᵖ for the longest L of n lognormal lengths l, shape (R,) (eq. 117).

    Args:
        cv: coefficient of variation of a length, shape (R,).
        batch: number n of lengths, shape (R,).
        power: the exponent p.
    """
    longest = np.ones(len(batch))
    for value in np.unique(cv[cv > 0]):
        rows = cv == value
        sizes, place = np.unique(batch[rows], return_inverse=True)
        longest[rows] = np.array([_longest(float(value), float(size), power) for size in sizes])[place]
    return longest


@lru_cache(maxsize=2**16)
def _longest(cv: float, batch: float, power: int) -> float:
    """Return the mean of exp(p(σZ − σ²/2)), where Z is the largest of n standard normal values."""
    from scipy.special import ndtr

    spread = float(np.sqrt(np.log1p(cv * cv)))
    z = _normal_values(round(power * spread + 0.5))
    density = batch * np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * ndtr(z) ** (batch - 1)
    return float((np.exp(power * (spread * z - spread * spread / 2)) * density).sum() * STEP)


@lru_cache(maxsize=64)
def _normal_values(more: int) -> FloatArray:
    return frozen(np.arange(-REACH, REACH + more, STEP))
