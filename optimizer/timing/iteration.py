"""Iteration law: latency model of one forward pass of the engine over its batch.

A document gives it as ``perfParms``, with up to eleven coefficients and four client delays. With only the
three coefficients of llm-inferno, or also the two of mixtures of experts (`optimizer.timing.mixture`), it has
a service time at a constant batch, which the birth-death queue needs. With any other coefficient, or with a
scheduler that computes full prompts first, it has only the time of iterations.
"""

from dataclasses import dataclass, fields
from math import inf, sqrt
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.documents import (
    Document,
    Milliseconds,
    MillisecondsPerToken,
    PositiveCount,
    Quantity,
    SignedQuantity,
)
from optimizer.timing.engine import ClientTimes, EngineLaw, IterationTimes, SchedulerName
from optimizer.timing.law import RequestShapes, ServiceLaw, TokenTimes

EXPERT_TERMS = ["expertRead", "expertShare"]
"""Document keys of the terms for mixtures of experts."""
DEFAULT_MAX_NUM_TOKENS = 8192
"""Default token budget of one iteration [tokens], which is vLLM's usual setting."""


class _ReferenceTerms(Document):
    """The three terms of llm-inferno's iteration law."""

    base_ms: Milliseconds = Field(0.0, alias="alpha")
    """α: time of an iteration with an empty batch [ms]."""
    compute_per_token_ms: MillisecondsPerToken = Field(0.0, alias="beta")
    """β: compute time [ms per token computed]."""
    kv_read_per_token_ms: MillisecondsPerToken = Field(0.0, alias="gamma")
    """γ: time to read the KV cache [ms per token of KV cache read]."""


class FurtherTerms(Document):
    """Terms beyond llm-inferno's three: eight for the time of an iteration, five for client delays."""

    per_sequence_ms: SignedQuantity = Field(0.0, alias="perSequence")
    """Time for sampling, scheduling and launching [ms per request in the iteration]; can be negative if every
    iteration takes time.
    """
    prompt_attention_ms: Quantity = Field(0.0, alias="promptAttention")
    """Attention time within prompts [ms per pair of a prompt's token and one before it]."""
    prompt_base_ms: SignedQuantity = Field(0.0, alias="promptBase")
    """Additional time of an iteration with a prompt [ms]; can be negative if every iteration takes time."""
    weight_read_ms: Milliseconds = Field(0.0, alias="weightRead")
    """Time to read the weights, with which the compute time of few tokens overlaps [ms]."""
    batch_base_ms: Milliseconds = Field(0.0, alias="batchBase")
    """Additional time of an iteration with more than one request [ms]."""
    per_prompt_ms: Quantity = Field(0.0, alias="perPrompt")
    """Time to admit a request [ms per prompt in the iteration]."""
    expert_read_ms: Milliseconds = Field(0.0, alias="expertRead")
    """Time to read all experts of a mixture [ms]; an iteration reads only those that its tokens choose."""
    expert_share: Quantity = Field(0.0, alias="expertShare", lt=1)
    """Fraction of the experts that a token uses: 8 of 128 are 0.0625."""
    client_offset_ms: Milliseconds = Field(0.0, alias="clientOffset")
    """Delay of the first token between engine and client, for connection, HTTP and tokenizer [ms]."""
    pipeline_depth: Quantity = Field(0.0, alias="pipelineDepth")
    """Additional delay of the first token while other requests are in progress [iterations]."""
    front_end_lag: Quantity = Field(0.0, alias="frontEndLag")
    """Additional delay of the first token for each other request in progress [iterations per request]."""
    pause_offset_ms: Milliseconds = Field(0.0, alias="pauseOffset")
    """Additional delay of the first token if other requests are in progress and the last prompt was sent
    seconds ago [ms].
    """
    idle_offset_ms: Milliseconds = Field(0.0, alias="idleOffset")
    """Additional delay of the first token if no other request is in progress [ms]."""


class PerfParms(FurtherTerms, _ReferenceTerms):  # pydantic orders fields by the last base first
    """Iteration law [ms]: α + β·(tokens computed) + γ·(KV tokens read), and further terms, by default 0."""

    @property
    def further_terms(self) -> list[str]:
        """Document keys of the given terms beyond the three of llm-inferno."""
        own = FurtherTerms.model_fields.items()
        return [field.alias or name for name, field in own if getattr(self, name)]

    @model_validator(mode="after")
    def _experts_are_read_and_chosen(self) -> "PerfParms":
        """Reject a document with only one of the two expert terms."""
        if (self.expert_read_ms > 0) != (self.expert_share > 0):
            given, missing = ("expertRead", "expertShare")[:: 1 if self.expert_read_ms > 0 else -1]
            raise PydanticCustomError(
                "experts",
                "{given} needs {missing}; give both or neither",
                {"given": given, "missing": missing},
            )
        return self

    @model_validator(mode="after")
    def _times_are_positive(self) -> "PerfParms":
        """Reject coefficients for which a decode iteration would take no time at some batch."""
        least = self.base_ms + self._least_of_sequences()
        if self.per_sequence_ms < 0 and least <= 0:
            raise PydanticCustomError(
                "negative_iteration",
                "perSequence {value} makes an iteration take no time or less at some batch; with these "
                "alpha, beta and weightRead it must be {limit}",
                {"value": f"{self.per_sequence_ms:g}", "limit": self._limit_of_sequences()},
            )
        return self

    def _limit_of_sequences(self) -> str:
        """Return the limit of the time per sequence: where the minimum of `_least_of_sequences` is -α."""
        shorter = 1 - self.base_ms / self.weight_read_ms if self.weight_read_ms > self.base_ms else 0.0
        limit = self.compute_per_token_ms * sqrt(1 - shorter**2)
        return f"more than {-limit:g}" if limit else "at least 0"

    def _least_of_sequences(self) -> float:
        """Return the minimum over all batches of what compute and sequences add to an iteration [ms].

        If b < 0, √(m² + (βn)²) − m + bn first decreases, and has its minimum where its slope is 0.
        """
        read, compute = self.weight_read_ms, self.compute_per_token_ms
        if self.per_sequence_ms >= 0:
            return 0.0
        if -self.per_sequence_ms > compute:
            return -inf
        return read * (sqrt(1 - (self.per_sequence_ms / compute) ** 2) - 1) if compute else -inf


class IterationFields(Document):
    """Document fields of the iteration law."""

    iteration: PerfParms | None = Field(None, alias="perfParms")
    """Iteration law (latency model); excludes the linear law."""
    max_num_tokens: PositiveCount = Field(DEFAULT_MAX_NUM_TOKENS, alias="maxNumTokens")
    """Token budget of one iteration [tokens]; only for the iteration law."""
    scheduler: SchedulerName = "chunked"
    """How prompts are scheduled: in chunks next to the decodes, or full prompts first; only for the iteration
    law.
    """

    @property
    def is_of_the_reference(self) -> bool:
        """Whether the iteration law, if given, has only the terms of llm-inferno."""
        return self.scheduler == "chunked" and not self._further_terms

    @property
    def is_of_a_mixture(self) -> bool:
        """Whether the iteration law has only llm-inferno's terms and those of mixtures of experts."""
        return self.scheduler == "chunked" and self._further_terms == EXPERT_TERMS

    @property
    def _further_terms(self) -> list[str]:
        return self.iteration.further_terms if self.iteration else []


@dataclass(frozen=True, slots=True)
class IterationLaw(ServiceLaw, EngineLaw):
    """Iteration law of llm-inferno: an iteration takes α + β·(tokens computed) + γ·(KV tokens read).

    Prompts are prefilled in chunks under a token budget (eq. 4-8). All fields have shape (R,). Source: the
    newer queue analyser of llm-inferno (llm-inferno/queue-analysis).
    """

    name: ClassVar[str] = "iteration"
    parts: ClassVar[tuple[str, ...]] = ("iteration",)

    base_ms: FloatArray
    """α: time of an iteration with an empty batch [ms]."""
    compute_per_token_ms: FloatArray
    """β: compute time [ms per token computed]."""
    kv_read_per_token_ms: FloatArray
    """γ: time to read the KV cache [ms per token of KV cache read]."""
    in_tokens: FloatArray
    out_tokens: FloatArray
    max_num_tokens: FloatArray

    @classmethod
    def applies_to(cls, document: Document) -> bool:
        """Return whether the iteration law of a document has only the terms of llm-inferno."""
        return isinstance(document, IterationFields) and document.is_of_the_reference

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return α, β, γ and the token budget of an iteration."""
        assert isinstance(document, IterationFields)
        law = document.iteration or PerfParms()
        budget = float(document.max_num_tokens)
        return law.base_ms, law.compute_per_token_ms, law.kv_read_per_token_ms, budget

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the latency model of R rows from parameters in the order of `parameters`, shape (K, R)."""
        base, compute, kv_read, *further = parameters
        return cls(base, compute, kv_read, shapes.in_tokens, shapes.out_tokens, *further)

    def chunks(self, occupancy: FloatArray) -> FloatArray:
        """Return the number of prefill chunks of a prompt in a given batch; both shapes (R,).

        The smallest k ≥ 1 with (k + out)(M − in/k) ≥ n·(in + out) (eq. 4) is the root of a quadratic, rounded
        up; the result is then checked on both sides, because the root can be an integer.
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
        """Return the prefill work and the decode work of a request itself [ms] (eq. 6, 7).

        All shapes are (R,).
        """
        compute, kv_read = self.compute_per_token_ms, self.kv_read_per_token_ms
        prefill = (compute + kv_read * (chunks + 1) / 2) * self.in_tokens
        decode = self.out_tokens * (compute + kv_read * (self.in_tokens + (self.out_tokens + 1) / 2))
        return prefill, decode

    def service_time_ms(self, occupancy: FloatArray) -> FloatArray:
        """Return the service time of a request at a constant batch [ms]; both shapes (R,)."""
        chunks = self.chunks(occupancy)
        prefill, decode = self._work_ms(chunks)
        base = self._base_ms(occupancy, chunks)
        return (chunks + self.out_tokens) * base + occupancy * (prefill + decode)

    def _base_ms(self, occupancy: FloatArray, chunks: FloatArray) -> FloatArray:  # noqa: ARG002  used for mixtures
        """Return α at a constant batch, averaged over its iterations [ms]; all shapes (R,)."""
        return self.base_ms

    @property
    def _prompt_base_ms(self) -> FloatArray:
        """α of an iteration that contains a prompt [ms], shape (R,)."""
        return self.base_ms

    def token_times(
        self, mean_service_ms: FloatArray, mean_in_service: FloatArray, max_batch: IntArray
    ) -> TokenTimes:
        """Return the prefill time at the mean batch; the rest of the service is spread over the tokens.

        The first token is made one decode step after the prefill (eq. 20).
        """
        rounded = np.clip(np.floor(mean_in_service + 0.5), 1.0, max_batch)
        chunks = self.chunks(rounded)
        prefill_work, decode_work = self._work_ms(chunks)
        per_iteration = (prefill_work + decode_work) / (chunks + self.out_tokens)
        others = np.maximum(self._prompt_base_ms + (mean_in_service - 1) * per_iteration, 0.0)
        prefill = chunks * others + prefill_work
        itl = (mean_service_ms - prefill) / self.out_tokens
        return TokenTimes(prefill, itl, prefill + itl)

    def is_non_monotone(self, max_batch: IntArray) -> BoolArray:
        """Return a mask of the rows in which a prompt needs more chunks in a full batch than alone."""
        alone = self.chunks(np.ones(len(max_batch)))
        return np.not_equal(self.chunks(max_batch.astype(np.float64)), alone)

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the times of a one-token request and of a full batch [ms], defined as in llm-inferno."""
        one = np.ones(len(max_batch))
        itl = self._base_ms(one, one) + self.compute_per_token_ms
        first = itl + self.kv_read_per_token_ms * max_batch
        times = TokenTimes(np.zeros_like(itl), itl, first)
        full = self._base_ms(max_batch.astype(np.float64), one)
        return times, first + full + self.compute_per_token_ms * max_batch


@dataclass(frozen=True, slots=True)
class FullIterationLaw(EngineLaw):
    """Iteration law with all its terms (eq. 63), under either scheduler; all fields have shape (R,).

    It has no service time at a constant batch: if weights hide compute, or prompts pause the decodes, the
    time of an iteration depends on more than the number of requests.
    """

    name: ClassVar[str] = "full iteration"
    parts: ClassVar[tuple[str, ...]] = ("iteration",)

    times: FloatArray
    """Coefficients of the time of an iteration, in the order of `IterationTimes`, shape (R, 11)."""
    seen: FloatArray
    """Client delays in the order of `ClientTimes`, shape (R, 4)."""
    in_tokens: FloatArray
    out_tokens: FloatArray
    max_num_tokens: FloatArray
    whole_prompts: FloatArray
    """1 if full prompts are computed first, otherwise 0."""

    @classmethod
    def applies_to(cls, document: Document) -> bool:
        """Return whether a document has terms beyond llm-inferno's iteration law and mixtures of experts."""
        return isinstance(document, IterationFields) and not (
            document.is_of_the_reference or document.is_of_a_mixture
        )

    @classmethod
    def parameters(cls, document: Document) -> tuple[float, ...]:
        """Return the sixteen coefficients, the token budget, and whether full prompts are computed first."""
        assert isinstance(document, IterationFields)
        law = document.iteration or PerfParms()
        coefficients = tuple(getattr(law, name) for name in PerfParms.model_fields)
        return *coefficients, float(document.max_num_tokens), float(document.scheduler == "prefill-first")

    @classmethod
    def of_rows(cls, parameters: FloatArray, shapes: RequestShapes) -> Self:
        """Return the latency model of R rows from parameters in the order of `parameters`, shape (18, R)."""
        *coefficients, budget, whole = parameters
        table = np.column_stack(coefficients)
        times, seen = np.split(table, [len(fields(IterationTimes))], axis=1)
        return cls(times, seen, shapes.in_tokens, shapes.out_tokens, budget, whole)

    @property
    def iterations(self) -> IterationTimes:
        """Coefficients of the time of an iteration."""
        return IterationTimes(*self.times.T)

    @property
    def client(self) -> ClientTimes:
        """Delay between the engine and the client."""
        return ClientTimes(*self.seen.T)

    @property
    def prefills_first(self) -> BoolArray:
        """Mask of the rows in which prompts are computed in full while decodes pause, shape (R,)."""
        return self.whole_prompts > 0

    def has_work(self) -> BoolArray:
        """Return a mask of the rows in which the prefill and each decode of a single request take time."""
        prompt = self.in_tokens
        piece = np.where(self.prefills_first, prompt, np.minimum(prompt, 1.0))
        prefill = self.iterations.ms(0.0, 0.0, piece, np.minimum(piece, 1.0), piece * piece / 2)
        decode = self.iterations.ms(1.0, prompt)
        return np.asarray((decode > 0) & ((prompt == 0) | (prefill > 0)))

    def idle_times(self, max_batch: IntArray) -> tuple[TokenTimes, FloatArray]:
        """Return the times of a request with a one-token prompt and output, and of a full batch [ms]."""
        first, itl = self.iterations.ms(0.0, 0.0, 1.0, 1.0, 0.5), self.iterations.ms(1.0, 1.0)
        batch = max_batch.astype(np.float64)
        full = self.iterations.ms(batch, batch)
        return TokenTimes(first, itl, first), first + full
