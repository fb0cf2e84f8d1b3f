"""Data of the queue model of continuous batching: replicas with requests, iterations and prompts.

Times are in ms and rates in requests/ms; all arrays have shape (R,).
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, RowArrays
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.timing.engine import ClientTimes, EngineLaw, IterationTimes

MIN_STEPS = 1e-3
"""Minimum number of decode steps of an output, for outputs of one token."""


@dataclass(frozen=True, slots=True)
class ReplicaArrays(RowArrays):
    """R replicas with their request distributions."""

    times: IterationTimes
    """Coefficients of an iteration's time."""
    client: ClientTimes
    """Delays between the engine and its clients."""
    prompt: FloatArray
    """I: mean prompt length [tokens], at least 1."""
    steps: FloatArray
    """J: mean number of decode steps of an output, which is its number of tokens minus 1."""
    prompt_scv: FloatArray
    """Squared coefficient of variation of the prompt length."""
    answer_scv: FloatArray
    """Squared coefficient of variation of the output length."""
    arrival_scv: FloatArray
    """Squared coefficient of variation of the interarrival times."""
    budget: FloatArray
    """M: token budget, the maximum number of tokens computed in an iteration."""
    places: FloatArray
    """N: batch slots, the maximum number of requests in an iteration."""
    context: FloatArray
    """Mean number of KV cache tokens of a decoding request, averaged over time (eq. 67)."""

    @classmethod
    def of(cls, law: EngineLaw, variability: Variability, limits: ReplicaLimits) -> Self:
        """Create replicas from a latency model; the KV cache limits the number of decoding requests (eq. 67).

        Args:
            law: latency model.
            variability: coefficients of variation.
            limits: batch and memory limits.
        """
        prompt, answer = np.maximum(law.in_tokens, 1.0), law.out_tokens
        prompt_scv, answer_scv = variability.in_tokens_cv**2, variability.out_tokens_cv**2
        context = prompt + answer * (1 + answer_scv) / 2
        places = np.clip(np.floor(limits.kv_capacity_tokens / context), 1.0, limits.max_batch)
        return cls(
            law.iterations,
            law.client,
            prompt,
            np.maximum(answer - 1, MIN_STEPS),
            prompt_scv,
            answer_scv,
            variability.arrival_cv**2,
            law.max_num_tokens,
            places,
            context,
        )

    @property
    def prompt_square(self) -> FloatArray:
        """Second moment of the prompt length [tokens²]."""
        return self.prompt**2 * (1 + self.prompt_scv)

    @property
    def before_a_token(self) -> FloatArray:
        """Mean number of prompt tokens before a prompt token, averaged over all tokens."""
        return self.prompt * (1 + self.prompt_scv) / 2

    @property
    def context_variance(self) -> FloatArray:
        """Variance of the mean context of requests, weighted by their time in decoding [tokens²] (eq. 67).

        At a random time, long outputs are more frequent. The third moment of output lengths is that of a
        lognormal distribution.
        """
        scv, answer = self.answer_scv, self.steps + 1
        return self.prompt**2 * self.prompt_scv + answer**2 * scv * (1 + scv) ** 2 / 4

    @property
    def own_context_variance(self) -> FloatArray:
        """Variance over requests of their mean context length [tokens²]; each request counts once."""
        return self.prompt**2 * self.prompt_scv + (self.steps + 1) ** 2 * self.answer_scv / 4

    def iteration_ms(
        self,
        decodes: FloatArray | float,
        tokens: FloatArray | float = 0.0,
        prompts: FloatArray | None = None,
        held: FloatArray | None = None,
    ) -> FloatArray:
        """Return the time of an iteration [ms] with decodes and prompt tokens.

        Args:
            decodes: number of decoding requests.
            tokens: number of prompt tokens.
            prompts: number of prompts; default: tokens over the mean prompt length.
            held: KV cache tokens of the decoding requests; default: the mean context of each.
        """
        count = tokens / self.prompt if prompts is None else prompts
        context = decodes * self.context if held is None else held
        return self.times.ms(decodes, context, tokens, count, tokens * self.before_a_token)

    def lone_prompt_ms(
        self, decodes: FloatArray | float, held: FloatArray | float | None = None
    ) -> FloatArray:
        """Return the time of an iteration with one entire prompt [ms], averaged over prompt lengths."""
        context = decodes * self.context if held is None else held
        return self.times.ms(decodes, context, self.prompt, 1.0, self.prompt_square / 2)

    def alike_ms(self, found: "Iteration") -> FloatArray:
        """Return the mean iteration [ms] as if all decoding requests had the mean context."""
        return found.mean_ms - self.times.kv_read_per_token_ms * (found.held - found.seen * self.context)

    def prompt_slope_ms(self, decodes: FloatArray | float, tokens: FloatArray) -> FloatArray:
        """Return the time that one more prompt token and its share of a request add to an iteration [ms]."""
        times = self.times
        compute = times.compute_slope_ms(decodes + tokens)
        request = times.per_sequence_ms + times.per_prompt_ms
        return compute + times.prompt_attention_ms * self.before_a_token + request / self.prompt


class Iteration(NamedTuple):
    """Mean iterations of R replicas at given rates, and iterations as a request sees them; shapes (R,)."""

    mean_ms: FloatArray
    """τ [ms]: mean time of an iteration in which an output receives a token."""
    decodes: FloatArray
    """n: mean number of decoding requests."""
    seen: FloatArray
    """Mean number of decoding requests in the iterations of an output, including its own request."""
    held: FloatArray
    """Mean number of KV cache tokens of the decoding requests in the iterations of an output."""
    dispersion: FloatArray
    """Index of dispersion of the arrivals over a request's lifetime."""
    prompts: FloatArray
    """k: mean number of prompts that arrive during an iteration."""
    prompt_tokens: FloatArray
    """Mean number of prompt tokens in an iteration that contains any."""
    without_prompt: FloatArray
    """Mean number of iterations without a prompt per output token."""
    with_prompt: FloatArray
    """Mean number of iterations with prompt tokens per output token."""
    decode_ms: FloatArray
    """Time of an iteration without a prompt [ms]."""
    prompt_ms: FloatArray
    """Time of an iteration with prompts [ms]."""


class Prompts(NamedTuple):
    """Service of prompts in R replicas, as a request sees it; shapes (R,)."""

    own_ms: FloatArray
    """Prefill time of the request's own prompt [ms]."""
    wait_ms: FloatArray
    """Mean time before the prefill, after a slot is free [ms]."""
    wait_variance: FloatArray
    """Variance of the time before the prefill [ms²]."""
    own_variance: FloatArray
    """Variance of the prefill time [ms²]."""
    least_ms: FloatArray
    """Minimum TTFT [ms]."""
    stall_ms: FloatArray
    """Delay that a prompt adds to every decoding request [ms]."""
    share: FloatArray
    """Share of time in which prompts are computed."""
    longest_ms: FloatArray
    """Time of the longest iteration at the start of an output, including the prompts that arrived with it."""
    found_ms: FloatArray
    """Mean time of the iteration during which a request arrives [ms]."""
    apart: BoolArray
    """Mask of replicas whose mean prompt fits into one iteration."""
