"""Token-time laws: how long the steps of a request take when a replica runs a given batch.

A law holds the fitted parameters of many rows at once (a row is one model on one accelerator with one
request shape) and answers two questions: the service time of a request at a constant batch, which makes
the departure rates of the queue, and the mean prefill and token times that belong to a measured mean
service time. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, fields
from typing import Protocol, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray

DEFAULT_MAX_NUM_TOKENS = 8192
"""Token budget of one iteration where a profile states none (vLLM's usual setting)."""


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Mean times of a request's phases, each in ms with shape (R,)."""

    prefill_ms: FloatArray
    itl_ms: FloatArray
    first_token_ms: FloatArray
    """From the start of service to the first token; the wait before service is not in it."""


class TimingLaw(Protocol):
    """What the queueing model asks of a token-time law over R rows."""

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch; both shapes (R,)."""

    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the phase times that belong to a mean service time; all shapes (R,)."""

    def steps(self, max_batch: IntArray) -> BoolArray:
        """Return whether latencies step anywhere between a batch of one and the limit; shapes (R,)."""

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return what the reference quotes for replicas without load, from requests of one token.

        The second part is the turnaround of a full batch [ms]; all shapes (R,).
        """

    def take(self, rows: IntArray) -> Self:
        """Return the law of the chosen rows, in their order."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What both laws share: parameters as equally long arrays, selected together."""

    def take(self, rows: IntArray) -> Self:
        """Return the law of the chosen rows, in their order."""
        return type(self)(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True, slots=True)
class LinearLaw(_Rows):
    """Prefill and decode steps that grow linearly with the batch; all fields have shape (R,).

    A prefill takes γ + δ·in·n and a decode step α + β·n at batch n (eq. 1, 2).
    Source: the reference's first queue analyser, reference-system §1.6.
    """

    decode_base_ms: FloatArray
    """α [ms]."""
    decode_per_request_ms: FloatArray
    """β [ms per request in the batch]."""
    prefill_base_ms: FloatArray
    """γ [ms]."""
    prefill_per_token_ms: FloatArray
    """δ [ms per prompt token and request in the batch]."""
    in_tokens: FloatArray
    out_tokens: FloatArray

    def _service_coefficients(self) -> tuple[FloatArray, FloatArray]:
        """Return base and slope of the service time, which is base + slope·n (eq. 3)."""
        decode_steps = self.out_tokens - 1
        base = np.where(self.in_tokens > 0, self.prefill_base_ms, 0.0) + self.decode_base_ms * decode_steps
        slope = self.prefill_per_token_ms * self.in_tokens + self.decode_per_request_ms * decode_steps
        return base, slope

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch; both shapes (R,)."""
        base, slope = self._service_coefficients()
        return base + slope * occupancy

    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the phase times at the effective batch, the one whose service time is the mean (eq. 19).

        Without a prompt there is no prefill: γ is then neither in the service time nor subtracted from it.
        Where the service time does not depend on the batch, neither phase does, and any batch will do.
        """
        base, slope = self._service_coefficients()
        varies = slope > 0
        effective = np.where(
            varies, (mean_service_ms - base) / np.where(varies, slope, 1.0), mean_in_service
        ).clip(0.0, max_batch)
        prefill = np.where(
            self.in_tokens > 0,
            self.prefill_base_ms + self.prefill_per_token_ms * self.in_tokens * effective,
            0.0,
        )
        return TokenTimes(prefill, self.decode_base_ms + self.decode_per_request_ms * effective, prefill)

    def steps(self, max_batch: IntArray) -> BoolArray:
        """Return that nothing steps."""
        return np.zeros(len(max_batch), np.bool_)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the times of a lone request with a prompt of one token, and a full batch's turnaround."""
        prefill = self.prefill_base_ms + self.prefill_per_token_ms
        times = TokenTimes(prefill, self.decode_base_ms + self.decode_per_request_ms, prefill)
        return times, prefill + self.decode_base_ms + self.decode_per_request_ms * max_batch


@dataclass(frozen=True, slots=True)
class IterationLaw(_Rows):
    """An iteration takes α + β·(tokens computed) + γ·(KV tokens read); all fields have shape (R,).

    Prompts are prefilled in chunks under a token budget (eq. 4-8).
    Source: the reference's newer queue analyser, reference-system §1.1 and §1.2.
    """

    iteration_base_ms: FloatArray
    """α [ms]."""
    compute_per_token_ms: FloatArray
    """β [ms per token computed]."""
    kv_read_per_token_ms: FloatArray
    """γ [ms per token of KV cache read]."""
    in_tokens: FloatArray
    out_tokens: FloatArray
    max_num_tokens: FloatArray

    def chunks(self, occupancy: FloatArray) -> FloatArray:
        """Return the number of prefill chunks of a prompt at the given batch; both shapes (R,).

        The smallest k ≥ 1 with (k + out)(M − in/k) ≥ n·(in + out) (eq. 4) is the root of a quadratic,
        rounded up; the result is then checked on either side, as the root may fall on a whole number.
        """
        tokens_in, tokens_out, budget = self.in_tokens, self.out_tokens, self.max_num_tokens
        demand = occupancy * (tokens_in + tokens_out)

        def fits(k: FloatArray) -> BoolArray:
            return (k + tokens_out) * (budget * k - tokens_in) >= demand * k

        half = (budget * tokens_out - tokens_in - demand) / (2 * budget)
        product = tokens_in * tokens_out / budget
        distance = np.sqrt(half * half + product)
        root = np.where(half > 0, product / np.where(half > 0, half + distance, 1.0), distance - half)
        k = np.maximum(np.ceil(root), 1.0)
        k = np.where(fits(k), k, k + 1)
        return np.where((k > 1) & fits(np.maximum(k - 1, 1.0)), k - 1, k)

    def _work_ms(self, chunks: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a request's own prefill and decode work [ms] (eq. 6, 7); all shapes (R,)."""
        compute, kv_read = self.compute_per_token_ms, self.kv_read_per_token_ms
        prefill = (compute + kv_read * (chunks + 1) / 2) * self.in_tokens
        decode = self.out_tokens * (compute + kv_read * (self.in_tokens + (self.out_tokens + 1) / 2))
        return prefill, decode

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch; both shapes (R,)."""
        chunks = self.chunks(occupancy)
        prefill, decode = self._work_ms(chunks)
        return (chunks + self.out_tokens) * self.iteration_base_ms + occupancy * (prefill + decode)

    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return prefill time at the mean batch, and the rest of the service spread over the tokens.

        The first token is one decode step after the prefill (eq. 20).
        """
        rounded = np.clip(np.floor(mean_in_service + 0.5), 1.0, max_batch)
        chunks = self.chunks(rounded)
        prefill_work, decode_work = self._work_ms(chunks)
        per_iteration = (prefill_work + decode_work) / (chunks + self.out_tokens)
        others = np.maximum(self.iteration_base_ms + (mean_in_service - 1) * per_iteration, 0.0)
        prefill = chunks * others + prefill_work
        itl = (mean_service_ms - prefill) / self.out_tokens
        return TokenTimes(prefill, itl, prefill + itl)

    def steps(self, max_batch: IntArray) -> BoolArray:
        """Return whether a prompt needs more chunks at the limit than alone."""
        alone = self.chunks(np.ones(len(max_batch)))
        return np.not_equal(self.chunks(max_batch.astype(np.float64)), alone)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the times of a one-token request, and a full batch's turnaround (reference-system §1.9)."""
        itl = self.iteration_base_ms + self.compute_per_token_ms
        first = itl + self.kv_read_per_token_ms * max_batch
        times = TokenTimes(np.zeros_like(itl), itl, first)
        return times, first + self.iteration_base_ms + self.compute_per_token_ms * max_batch
