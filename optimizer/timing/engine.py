"""Time of one iteration of a serving engine with any contents.

The simulator and the queue model of continuous batching need the time of an iteration; a birth-death queue
needs the service time of a request (`law.ServiceLaw`). Equation numbers refer to ``docs/math.md``.
"""

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Literal, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, RowArrays
from optimizer.timing.law import Law

SchedulerName = Literal["chunked", "prefill-first"]
"""Scheduler of prompts: in chunks next to the decodes, or in full while decodes pause."""
MIN_SCV = 1e-6
"""Lower bound of the squared coefficient of variation, for evenly spaced arrivals."""
PAUSE_MS = 1000.0
"""T [ms]: time constant after which 63 % of the delay caused by a pause is present."""


@dataclass(frozen=True, slots=True)
class IterationTimes(RowArrays):
    """Coefficients of an iteration's time (eq. 63), each of shape (R,).

    Source: own derivation from the work of a transformer's forward pass; with only the first three, it is the
    iteration model of the reference.
    """

    base_ms: FloatArray
    """α: minimum time of an iteration [ms]."""
    compute_per_token_ms: FloatArray
    """β: compute per token of a prompt or an output [ms]."""
    kv_read_per_token_ms: FloatArray
    """γ: reading one token of the KV cache for a decode [ms]."""
    per_sequence_ms: FloatArray
    """b: sampling, scheduling and launching per request [ms]; can be negative."""
    prompt_attention_ms: FloatArray
    """q: per pair of a prompt's token and a token before it [ms]."""
    prompt_base_ms: FloatArray
    """e: additional time of an iteration with a prompt [ms]; can be negative."""
    weight_read_ms: FloatArray
    """m: reading the weights, behind which the compute of few tokens hides [ms]."""
    batch_base_ms: FloatArray
    """s: additional time of an iteration with more than one request [ms]."""
    per_prompt_ms: FloatArray
    """r: admission of a request, per prompt in the iteration [ms]."""
    expert_read_ms: FloatArray
    """x: reading all experts [ms]."""
    expert_share: FloatArray
    """y: share of the experts chosen by a token, below 1."""

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
            decodes: decoding requests; each gets a token.
            kv_tokens: tokens of KV cache that they read in total.
            prompt_tokens: prompt tokens computed.
            prompts: number of requests to which these tokens belong.
            attention: pairs of a computed token and an earlier one of its prompt: a chunk of x tokens after y
                others counts x·(y + x/2).
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
        """Return the time of compute and experts added by one more token [ms]; shapes (R,)."""
        work = self.compute_per_token_ms * tokens
        whole = np.hypot(self.weight_read_ms, work)
        share = np.divide(work, whole, out=np.ones_like(whole), where=whole > 0)
        compute = np.where(
            self.weight_read_ms > 0, self.compute_per_token_ms * share, self.compute_per_token_ms
        )
        return compute + self._experts_slope_ms(tokens)

    def standing_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the part of an iteration's time that does not grow with one more token, by tangent [ms]."""
        return self.base_ms + self._experts_ms(tokens) - tokens * self._experts_slope_ms(tokens)

    def _experts_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the time to read the experts that some tokens choose independently (eq. 104)."""
        if not np.any(self.expert_read_ms):
            return np.zeros_like(self.expert_read_ms)
        return np.asarray(self.expert_read_ms * -np.expm1(tokens * np.log1p(-self.expert_share)))

    def _experts_slope_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the time of reading experts added by one more token."""
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
    """Delay between the engine and the client (eq. 100), each of shape (R,).

    Source: own derivation from recorded sweeps, docs/fidelity.md.
    """

    offset_ms: FloatArray
    """c₀: connection, HTTP and tokenizer [ms]."""
    pipeline_depth: FloatArray
    """k₀: iterations between the computation and the output of a token, with other requests in progress."""
    front_end_lag: FloatArray
    """c₂: further iterations for each request in progress."""
    pause_offset_ms: FloatArray
    """c₃: additional TTFT with other requests in progress, long after the previous prompt [ms]."""

    @classmethod
    def none(cls, rows: int) -> Self:
        """Return zero delays of R clients."""
        return cls(*np.zeros((len(fields(cls)), rows)))

    def ms(
        self, in_progress: FloatArray, itl_ms: FloatArray, rate: FloatArray, arrival_scv: FloatArray
    ) -> FloatArray:
        """Return the delay of a first token [ms] (eq. 100), with other requests in progress.

        Args:
            in_progress: mean number of other requests.
            itl_ms: mean ITL.
            rate: arrivals [requests/ms].
            arrival_scv: squared coefficient of variation of the gamma-distributed interarrival times.
        """
        scv = np.maximum(arrival_scv, MIN_SCV)
        paused = -np.expm1(-np.log1p(scv / (rate * PAUSE_MS)) / scv)
        other = np.minimum(in_progress, 1.0)
        depth = self.pipeline_depth * other + self.front_end_lag * in_progress
        return self.offset_ms + depth * itl_ms + self.pause_offset_ms * other * paused


class EngineLaw(Law):
    """A latency model with the time of every iteration of an engine."""

    __slots__ = ()

    in_tokens: FloatArray
    """Mean tokens of a prompt, shape (R,)."""
    out_tokens: FloatArray
    """Mean tokens of an output, shape (R,)."""
    max_num_tokens: FloatArray
    """Maximum tokens computed in an iteration, shape (R,)."""

    @property
    @abstractmethod
    def iterations(self) -> IterationTimes:
        """Coefficients of an iteration's time, each of shape (R,)."""

    @property
    @abstractmethod
    def client(self) -> ClientTimes:
        """Delay between the engine and the client."""

    @property
    @abstractmethod
    def prefills_first(self) -> BoolArray:
        """Whether prompts are computed in full while decodes pause; shape (R,)."""
