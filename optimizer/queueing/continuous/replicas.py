"""What a queue of continuous batching is made of: replicas, their requests, and an iteration.

Times in ms and rates in requests/ms; all arrays have shape (R,).
"""

from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.timing import ClientTimes, EngineLaw, IterationTimes

MIN_STEPS = 1e-3
"""Stands for no decode step at all, where answers are of one token."""


@dataclass(frozen=True, slots=True)
class ReplicaArrays:
    """R replicas with their requests."""

    times: IterationTimes
    """Coefficients of an iteration's time."""
    client: ClientTimes
    """What their clients see beyond it."""
    prompt: FloatArray
    """I: mean tokens of a prompt, at least 1."""
    steps: FloatArray
    """J: mean decode steps of an answer, one less than its tokens."""
    prompt_scv: FloatArray
    """Squared coefficient of variation of the prompt's length."""
    answer_scv: FloatArray
    """Squared coefficient of variation of the answer's length."""
    arrival_scv: FloatArray
    """Squared coefficient of variation of the times between arrivals."""
    budget: FloatArray
    """M: most tokens that an iteration computes."""
    places: FloatArray
    """N: most requests in an iteration."""
    context: FloatArray
    """Mean tokens in the cache of a request that decodes, over time (eq. 67)."""

    @classmethod
    def of(cls, law: EngineLaw, variability: Variability, room: ReplicaLimits) -> Self:
        """Return replicas under a law; the KV cache caps the requests that decode together (eq. 67)."""
        prompt, answer = np.maximum(law.in_tokens, 1.0), law.out_tokens
        prompt_scv, answer_scv = variability.in_tokens_cv**2, variability.out_tokens_cv**2
        context = prompt + answer * (1 + answer_scv) / 2
        places = np.clip(np.floor(room.kv_capacity_tokens / context), 1.0, room.max_batch)
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

    def take(self, rows: IntArray) -> Self:
        """Return the replicas of the chosen rows, in their order."""
        arrays = (getattr(self, field.name)[rows] for field in fields(self)[2:])
        return type(self)(self.times.take(rows), self.client.take(rows), *arrays)

    @property
    def prompt_square(self) -> FloatArray:
        """Second moment of the prompt's length."""
        return self.prompt**2 * (1 + self.prompt_scv)

    @property
    def before_a_token(self) -> FloatArray:
        """Tokens before one of a prompt, on average over tokens: long prompts have more of them."""
        return self.prompt * (1 + self.prompt_scv) / 2

    @property
    def context_variance(self) -> FloatArray:
        """Variance of what requests that decode hold in the cache, each by its mean over its life (eq. 67).

        Long answers are met more often; the third moment of answers is that of a lognormal length.
        """
        scv, answer = self.answer_scv, self.steps + 1
        return self.prompt**2 * self.prompt_scv + answer**2 * scv * (1 + scv) ** 2 / 4

    @property
    def own_context_variance(self) -> FloatArray:
        """The same over requests, of which each counts once."""
        return self.prompt**2 * self.prompt_scv + (self.steps + 1) ** 2 * self.answer_scv / 4

    def iteration_ms(
        self,
        decodes: FloatArray | float,
        tokens: FloatArray | float = 0.0,
        prompts: FloatArray | None = None,
        held: FloatArray | None = None,
    ) -> FloatArray:
        """Return the time of an iteration with some tokens of prompts of mean length.

        Args:
            decodes: answers in progress.
            tokens: tokens of prompts.
            prompts: how many prompts these belong to; not given: as many as they make.
            held: tokens that the answers in progress hold in the cache; not given: the mean of each.
        """
        count = tokens / self.prompt if prompts is None else prompts
        context = decodes * self.context if held is None else held
        return self.times.ms(decodes, context, tokens, count, tokens * self.before_a_token)

    def lone_prompt_ms(
        self, decodes: FloatArray | float, held: FloatArray | float | None = None
    ) -> FloatArray:
        """Return the time of an iteration with one whole prompt, on average over its length."""
        context = decodes * self.context if held is None else held
        return self.times.ms(decodes, context, self.prompt, 1.0, self.prompt_square / 2)

    def alike_ms(self, found: "Iteration") -> FloatArray:
        """Return the mean iteration if requests of long contexts were met as often as others."""
        return found.mean_ms - self.times.kv_read_per_token_ms * (found.held - found.seen * self.context)

    def prompt_slope_ms(self, decodes: FloatArray | float, tokens: FloatArray) -> FloatArray:
        """Return what one more token of prompts, with its share of a request, adds to an iteration [ms]."""
        times = self.times
        compute = times.compute_slope_ms(decodes + tokens)
        request = times.per_sequence_ms + times.per_prompt_ms
        return compute + times.prompt_attention_ms * self.before_a_token + request / self.prompt


class Iteration(NamedTuple):
    """The iterations of R replicas at given rates, on average and as a request finds them."""

    mean_ms: FloatArray
    """τ: mean time of an iteration in which an answer gets a token."""
    decodes: FloatArray
    """n: mean number of answers in progress."""
    seen: FloatArray
    """Answers in progress in an iteration of an answer, itself included."""
    held: FloatArray
    """Tokens that these hold in the cache."""
    dispersion: FloatArray
    """Variance over mean of the arrivals over a life."""
    prompts: FloatArray
    """k: prompts that come in an iteration."""
    prompt_tokens: FloatArray
    """Tokens of prompts in an iteration that has any."""
    without_prompt: FloatArray
    """Iterations without a prompt for each token of an answer."""
    with_prompt: FloatArray
    """Iterations with tokens of prompts for each token of an answer."""
    decode_ms: FloatArray
    """Time of an iteration without a prompt."""
    prompt_ms: FloatArray
    """Time of one with prompts."""


class Prompts(NamedTuple):
    """How prompts are served, as a request finds it."""

    own_ms: FloatArray
    """Time that its own prompt takes."""
    wait_ms: FloatArray
    """Time before that."""
    wait_variance: FloatArray
    """Variance of that time [ms²]."""
    own_variance: FloatArray
    """Variance of its own time [ms²]."""
    least_ms: FloatArray
    """What the time to the first token does not fall below."""
    stall_ms: FloatArray
    """By how much a prompt delays every answer in progress."""
    share: FloatArray
    """Share of the time that prompts take."""
    longest_ms: FloatArray
    """Time of the iterations that a new answer may begin with, beside the prompts that came with it."""
    found_ms: FloatArray
    """Mean length of the iteration that an arrival falls into."""
    apart: BoolArray
    """Whether a prompt fits into one iteration."""
