"""The time of one iteration of a serving engine, whatever is in it, and the laws that know it.

A simulator, and a queue model of continuous batching, ask for the time of an iteration; a birth-death queue
asks for the service time of a request (`law.ServiceLaw`). Equation numbers refer to ``docs/math.md``.
"""

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Literal, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, RowArrays
from optimizer.timing.law import Law

SchedulerName = Literal["chunked", "prefill-first"]
"""How prompts are computed: in chunks beside the answers in progress, or whole while these stand still."""
MIN_SCV = 1e-6
"""Stands for arrivals at even intervals."""
PAUSE_MS = 1000.0
"""T: of what a pause adds to the next first token, 63 % has come by then."""


@dataclass(frozen=True, slots=True)
class IterationTimes(RowArrays):
    """Coefficients of an iteration's time (eq. 63), each of shape (R,).

    Source: own derivation from the work of a transformer's pass; with all but the first three zero it is
    the iteration law of the reference.
    """

    base_ms: FloatArray
    """α: the least time of an iteration [ms]."""
    compute_per_token_ms: FloatArray
    """β: compute per token of a prompt or an answer [ms]."""
    kv_read_per_token_ms: FloatArray
    """γ: reading one token of the KV cache for a decode [ms]."""
    per_sequence_ms: FloatArray
    """b: sampling, scheduling and launching per request [ms]; may be negative."""
    prompt_attention_ms: FloatArray
    """q: per pair of a prompt's token and a token before it [ms]."""
    prompt_base_ms: FloatArray
    """e: what an iteration with a prompt in it takes more [ms]; may be negative."""
    weight_read_ms: FloatArray
    """m: reading the weights, behind which the compute of few tokens hides [ms]."""
    batch_base_ms: FloatArray
    """s: what an iteration of more than one request takes more [ms]."""
    per_prompt_ms: FloatArray
    """r: letting a request in, per prompt in the iteration [ms]."""
    expert_read_ms: FloatArray
    """x: reading all experts [ms]."""
    expert_share: FloatArray
    """y: share of the experts that a token chooses, below 1."""

    def ms(
        self,
        decodes: FloatArray | float,
        kv_tokens: FloatArray | float,
        prompt_tokens: FloatArray | float = 0.0,
        prompts: FloatArray | float = 0.0,
        attention: FloatArray | float = 0.0,
    ) -> FloatArray:
        """Return the time of an iteration [ms] (eq. 63); all shapes broadcast with (R,).

        Args:
            decodes: answers in progress, each of which gets a token.
            kv_tokens: tokens in the cache that these read, together.
            prompt_tokens: tokens of prompts that are computed.
            prompts: requests that these belong to.
            attention: pairs of a computed token and one before it in its prompt: a chunk of x tokens after
                y others counts x·(y + x/2).
        """
        with_prompt = np.greater(prompt_tokens, 0)
        several = np.add(decodes, prompts) > 1
        tokens = np.add(decodes, prompt_tokens)
        return np.asarray(
            self.base_ms
            + self._compute_ms(tokens)
            + self._experts_ms(tokens)
            + self.per_sequence_ms * np.add(decodes, prompts)
            + self.kv_read_per_token_ms * kv_tokens
            + np.where(with_prompt, self.prompt_attention_ms * attention + self.prompt_base_ms, 0.0)
            + np.where(several, self.batch_base_ms, 0.0)
            + self.per_prompt_ms * prompts
        )

    def compute_slope_ms(self, tokens: FloatArray) -> FloatArray:
        """Return by how much compute and experts of some tokens grow with one more [ms]; shapes (R,)."""
        work = self.compute_per_token_ms * tokens
        whole = np.hypot(self.weight_read_ms, work)
        share = np.divide(work, whole, out=np.ones_like(whole), where=whole > 0)
        compute = np.where(
            self.weight_read_ms > 0, self.compute_per_token_ms * share, self.compute_per_token_ms
        )
        return compute + self._experts_slope_ms(tokens)

    def standing_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return what of an iteration does not grow with one token more [ms]: where its tangent starts."""
        return self.base_ms + self._experts_ms(tokens) - tokens * self._experts_slope_ms(tokens)

    def _experts_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the time to read the experts that some tokens choose, each independently (eq. 104)."""
        if not np.any(self.expert_read_ms):
            return np.zeros_like(self.expert_read_ms)
        return np.asarray(self.expert_read_ms * -np.expm1(tokens * np.log1p(-self.expert_share)))

    def _experts_slope_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return by how much that grows with one token more."""
        if not np.any(self.expert_read_ms):
            return np.zeros_like(self.expert_read_ms)
        rate = np.log1p(-self.expert_share)
        return np.asarray(-self.expert_read_ms * rate * np.exp(tokens * rate))

    def _compute_ms(self, tokens: FloatArray) -> FloatArray:
        """Return the compute of some tokens beyond reading the weights: the soft maximum of the two."""
        work = self.compute_per_token_ms * tokens
        if not np.any(self.weight_read_ms):
            return work
        return np.hypot(self.weight_read_ms, work) - self.weight_read_ms


@dataclass(frozen=True, slots=True)
class ClientTimes(RowArrays):
    """What a client sees of the first token beyond the engine's time (eq. 100), each of shape (R,).

    Source: own derivation from recorded sweeps, docs/fidelity.md.
    """

    offset_ms: FloatArray
    """c₀: connection, HTTP and tokenizer [ms]."""
    pipeline_depth: FloatArray
    """k₀: iterations between a token's iteration and its way out, where others are in progress."""
    front_end_lag: FloatArray
    """c₂: the same for each request in progress."""
    pause_offset_ms: FloatArray
    """c₃: a first token after a long time without another, where others are in progress [ms]."""

    @classmethod
    def none(cls, rows: int) -> Self:
        """Return that R clients see the engine's own times."""
        return cls(*np.zeros((len(fields(cls)), rows)))

    def ms(
        self, in_progress: FloatArray, itl_ms: FloatArray, rate: FloatArray, arrival_scv: FloatArray
    ) -> FloatArray:
        """Return by how much later a first token is seen [ms] (eq. 100), with other requests in progress.

        Args:
            in_progress: how many others, on average.
            itl_ms: mean time between tokens.
            rate: arrivals [requests/ms].
            arrival_scv: squared coefficient of variation of the times between them, which are gamma.
        """
        scv = np.maximum(arrival_scv, MIN_SCV)
        paused = -np.expm1(-np.log1p(scv / (rate * PAUSE_MS)) / scv)
        other = np.minimum(in_progress, 1.0)
        depth = self.pipeline_depth * other + self.front_end_lag * in_progress
        return self.offset_ms + depth * itl_ms + self.pause_offset_ms * other * paused


class EngineLaw(Law):
    """A law that knows the time of every iteration of an engine."""

    __slots__ = ()

    in_tokens: FloatArray
    """Mean tokens of a prompt, shape (R,)."""
    out_tokens: FloatArray
    """Mean tokens of an answer, shape (R,)."""
    max_num_tokens: FloatArray
    """Most tokens that an iteration computes, shape (R,)."""

    @property
    @abstractmethod
    def iterations(self) -> IterationTimes:
        """The coefficients of an iteration's time, each of shape (R,)."""

    @property
    @abstractmethod
    def client(self) -> ClientTimes:
        """What a client sees beyond the engine's times."""

    @property
    @abstractmethod
    def prefills_first(self) -> BoolArray:
        """Whether prompts are computed whole, while answers stand still; shape (R,)."""
