"""The iteration law: the time of one pass of the engine over its batch, with chunked prefill."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from pydantic import Field

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.documents import Document, Milliseconds, MillisecondsPerToken, PositiveCount
from optimizer.timing.law import RequestShapes, ServiceLaw, TokenTimes

DEFAULT_MAX_NUM_TOKENS = 8192
"""Token budget of one iteration where a profile states none (vLLM's usual setting)."""


class PerfParms(Document):
    """Iteration law: α + β·(tokens computed) + γ·(KV tokens read)."""

    base_ms: Milliseconds = Field(0.0, alias="alpha")
    """α [ms]."""
    compute_per_token_ms: MillisecondsPerToken = Field(0.0, alias="beta")
    """β [ms per token computed]."""
    kv_read_per_token_ms: MillisecondsPerToken = Field(0.0, alias="gamma")
    """γ [ms per token of KV cache read]."""


class IterationFields(Document):
    """The fields of a document that gives the iteration law."""

    iteration: PerfParms | None = Field(None, alias="perfParms")
    """Iteration law; excludes the linear one."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Token budget of one iteration (chunked prefill; iteration law)."""


@dataclass(frozen=True, slots=True)
class IterationLaw(ServiceLaw):
    """An iteration takes α + β·(tokens computed) + γ·(KV tokens read); all fields have shape (R,).

    Prompts are prefilled in chunks under a token budget (eq. 4-8).
    Source: the newer queue analyser of the reference (llm-inferno/queue-analysis).
    """

    name: ClassVar[str] = "iteration"
    parts: ClassVar[tuple[str, ...]] = ("iteration",)

    iteration_base_ms: FloatArray
    """α [ms]."""
    compute_per_token_ms: FloatArray
    """β [ms per token computed]."""
    kv_read_per_token_ms: FloatArray
    """γ [ms per token of KV cache read]."""
    in_tokens: FloatArray
    out_tokens: FloatArray
    max_num_tokens: FloatArray

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return α, β, γ and the token budget of an iteration."""
        assert isinstance(document, IterationFields)
        law = document.iteration or PerfParms()
        budget = float(document.max_num_tokens)
        return law.base_ms, law.compute_per_token_ms, law.kv_read_per_token_ms, budget

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the law of R rows from α, β, γ and the token budget, shape (4, R)."""
        base, compute, kv_read, budget = parameters
        return cls(base, compute, kv_read, shapes.in_tokens, shapes.out_tokens, budget)

    def chunks(self, occupancy: FloatArray) -> FloatArray:
        """Return the number of prefill chunks of an input at the given batch; both shapes (R,).

        The smallest k ≥ 1 with (k + out)(M − in/k) ≥ n·(in + out) (eq. 4) is the root of a quadratic,
        rounded up; the result is then checked on either side, as the root may fall on an integer.
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
        """Return the times of a one-token request, and a full batch's turnaround, as the reference does."""
        itl = self.iteration_base_ms + self.compute_per_token_ms
        first = itl + self.kv_read_per_token_ms * max_batch
        times = TokenTimes(np.zeros_like(itl), itl, first)
        return times, first + self.iteration_base_ms + self.compute_per_token_ms * max_batch
