"""Time of one iteration of a serving engine, for any mix of prefills and decodes.

The simulator and the queue model of continuous batching need the time of an iteration. A birth-death queue
needs the service time of a request instead (`law.ServiceLaw`). Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, fields
from typing import Literal, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, RowArrays
from optimizer.timing.law import Law

SchedulerName = Literal["chunked", "prefill-first"]
"""How prompts are scheduled: in chunks next to the decodes, or in full while decodes pause."""
MIN_SCV = 1e-6
"""Lower bound of the squared coefficient of variation of interarrival times, used for evenly spaced arrivals.
"""
PAUSE_MS = 1000.0
"""T: time constant after which 63 % of the delay caused by a pause is reached [ms]."""


@dataclass(frozen=True, slots=True)
class IterationTimes(RowArrays):
    """Coefficients of the time of an iteration (eq. 63), each of shape (R,).

    Source: own derivation from the work of a transformer's forward pass. With only the first three
    coefficients, it is the iteration law of llm-inferno.
    """

    base_ms: FloatArray
    """α: minimum time of an iteration [ms]."""
    compute_per_token_ms: FloatArray
    """β: compute time per token of a prompt or an output [ms]."""
    kv_read_per_token_ms: FloatArray
    """γ: time for a decode to read one token of the KV cache [ms]."""
    per_sequence_ms: FloatArray
    """b: time for sampling, scheduling and launching, per request [ms]; can be negative."""
    prompt_attention_ms: FloatArray
    """q: attention time per pair of a prompt's token and a token before it [ms]."""
    prompt_base_ms: FloatArray
    """e: additional time of an iteration with a prompt [ms]; can be negative."""
    weight_read_ms: FloatArray
    """m: time to read the weights, which hides the compute time of few tokens [ms]."""
    batch_base_ms: FloatArray
    """s: additional time of an iteration with more than one request [ms]."""
    per_prompt_ms: FloatArray
    """r: time to admit a request, per prompt in the iteration [ms]."""
    expert_read_ms: FloatArray
    """x: time to read the weights of all experts [ms]."""
    expert_share: FloatArray
    """y: fraction of the experts that a token uses, below 1."""

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
            decodes: number of decoding requests; each gets a token.
            kv_tokens: total number of KV cache tokens that the decoding requests read.
            prompt_tokens: number of prompt tokens computed.
            prompts: number of requests to which these tokens belong.
            attention: pairs of a computed token and an earlier one of its prompt; a chunk of x tokens after y
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
        """Return the additional compute and expert time of one more token [ms]; shapes (R,)."""
        work = self.compute_per_token_ms * tokens
        whole = np.hypot(self.weight_read_ms, work)
        share = np.divide(work, whole, out=np.ones_like(whole), where=whole > 0)
        compute = np.where(
            self.weight_read_ms > 0, self.compute_per_token_ms * share, self.compute_per_token_ms
        )
        return compute + self._experts_slope_ms(tokens)

    def standing_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the part of an iteration's time [ms] that does not grow with one more token, by tangent."""
        return self.base_ms + self._experts_ms(tokens) - tokens * self._experts_slope_ms(tokens)

    def _experts_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the time to read the experts that a number of tokens choose independently [ms] (eq. 104)."""
        if not np.any(self.expert_read_ms):
            return np.zeros_like(self.expert_read_ms)
        return np.asarray(self.expert_read_ms * -np.expm1(tokens * np.log1p(-self.expert_share)))

    def _experts_slope_ms(self, tokens: FloatArray | float) -> FloatArray:
        """Return the additional time for reading experts with one more token [ms]."""
        if not np.any(self.expert_read_ms):
            return np.zeros_like(self.expert_read_ms)
        rate = np.log1p(-self.expert_share)
        return np.asarray(-self.expert_read_ms * rate * np.exp(tokens * rate))

    def _compute_ms(self, tokens: FloatArray) -> FloatArray:
        """Return the compute time of a number of tokens beyond the time to read the weights [ms].

        Compute and weight reading overlap, so their total time is a soft maximum of the two.
        """
        work = self.compute_per_token_ms * tokens
        if not np.any(self.weight_read_ms):
            return work
        return np.hypot(self.weight_read_ms, work) - self.weight_read_ms


@dataclass(frozen=True, slots=True)
class ClientTimes(RowArrays):
    """Delay between the engine and the client (eq. 100), each coefficient of shape (R,).

    Source: own derivation from recorded sweeps, docs/fidelity.md.
    """

    offset_ms: FloatArray
    """c₀: delay for connection, HTTP and tokenizer [ms]."""
    pipeline_depth: FloatArray
    """k₀: delay of a token's output after its computation while other requests are in progress [iterations].
    """
    front_end_lag: FloatArray
    """c₂: additional delay for each other request in progress [iterations per request]."""
    pause_offset_ms: FloatArray
    """c₃: additional TTFT while other requests are in progress, long after the previous prompt was sent [ms].
    """
    idle_offset_ms: FloatArray
    """c₄: additional TTFT if no other request is in progress [ms]."""

    @classmethod
    def none(cls, rows: int) -> Self:
        """Return client delays of zero for R rows."""
        return cls(*np.zeros((len(fields(cls)), rows)))

    def ms(
        self, in_progress: FloatArray, itl_ms: FloatArray, rate: FloatArray, arrival_scv: FloatArray
    ) -> FloatArray:
        """Return the delay of the first token of a request at the client [ms] (eq. 100).

        Args:
            in_progress: mean number of other requests in progress.
            itl_ms: mean ITL [ms].
            rate: arrival rate [requests/ms].
            arrival_scv: squared coefficient of variation of the gamma-distributed interarrival times.
        """
        scv = np.maximum(arrival_scv, MIN_SCV)
        paused = -np.expm1(-np.log1p(scv / (rate * PAUSE_MS)) / scv)
        other: FloatArray = np.minimum(in_progress, 1.0)
        depth = self.pipeline_depth * other + self.front_end_lag * in_progress
        delay_ms = self.offset_ms + depth * itl_ms + self.pause_offset_ms * other * paused
        return delay_ms + self.idle_offset_ms * (1.0 - other)


class EngineLaw(Law):
    """A latency model that has the time of every iteration of an engine."""

    __slots__ = ()

    in_tokens: FloatArray
    """Mean prompt length [tokens], shape (R,)."""
    out_tokens: FloatArray
    """Mean output length [tokens], shape (R,)."""
    max_num_tokens: FloatArray
    """Token budget of an iteration [tokens], shape (R,)."""

    @property
    def iterations(self) -> IterationTimes:
        """Coefficients of the time of an iteration, each of shape (R,); 0 for terms that are no fields."""
        none = np.zeros_like(self.in_tokens)
        return IterationTimes(*(getattr(self, field.name, none) for field in fields(IterationTimes)))

    @property
    def client(self) -> ClientTimes:
        """Delay between the engine and the client; by default none."""
        return ClientTimes.none(len(self.in_tokens))

    @property
    def prefills_first(self) -> BoolArray:
        """Mask of the rows in which prompts are computed in full while decodes pause; by default none."""
        return np.zeros(len(self.in_tokens), np.bool_)
