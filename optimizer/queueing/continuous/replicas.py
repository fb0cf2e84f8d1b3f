"""Data of the queue model of continuous batching: replicas with requests, iterations and prompts.

Times are in ms and rates in requests/ms; arrays have shape (R,), and those of the rows of loads (R, H).
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, RowArrays
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.shapes import ShapeRows, row_sum
from optimizer.timing.engine import ClientTimes, EngineLaw, IterationTimes

MIN_STEPS = 1e-3
"""Minimum number of decode steps of an output, for outputs of one token."""


@dataclass(frozen=True, slots=True)
class ReplicaArrays(RowArrays):
    """R replicas with their request distributions (eq. 261)."""

    times: IterationTimes
    """Coefficients of an iteration's time."""
    client: ClientTimes
    """Delays between the engine and its clients."""
    rows: ShapeRows
    """Rows of the loads, with at least one prompt token to compute."""
    arrival_scv: FloatArray
    """Squared coefficient of variation of the interarrival times."""
    budget: FloatArray
    """M: token budget, the maximum number of tokens computed in an iteration."""
    places: FloatArray
    """N: batch slots, the maximum number of requests in an iteration."""
    free_tokens: FloatArray
    """KV cache without prefixes that are stored once [tokens]; inf if it is unlimited."""
    prompt: FloatArray
    """I: mean number of prompt tokens to compute."""
    prompt_scv: FloatArray
    """Squared coefficient of variation of the number of prompt tokens to compute."""
    prompt_square: FloatArray
    """Second moment of the number of prompt tokens to compute [tokens²]."""
    before_a_token: FloatArray
    """Mean number of prompt tokens before a computed token, averaged over all tokens."""
    steps: FloatArray
    """J: mean number of decode steps of an output, which is its number of tokens minus 1."""
    answer_scv: FloatArray
    """Squared coefficient of variation of the output length."""
    context: FloatArray
    """Mean number of KV cache tokens of a decoding request, averaged over time (eq. 67)."""
    context_variance: FloatArray
    """Variance of the mean context of requests, weighted by their time in decoding [tokens²] (eq. 67).

    At a random time, long outputs are more frequent. The third moment of output lengths is that of a
    lognormal distribution.
    """
    delay_ms: FloatArray
    """Mean time that the prompts of others add to the decoding of a request [ms]; 0 until it is known."""
    more_seen: FloatArray
    """Additional requests in the iterations of a request, because long prompts let others queue; 0 until they
    are known.
    """

    @classmethod
    def of(cls, law: EngineLaw, variability: Variability, limits: ReplicaLimits) -> Self:
        """Create replicas from a latency model; the KV cache limits the number of decoding requests (eq. 67).

        Args:
            law: latency model.
            variability: coefficients of variation, or the rows of loads with several shapes.
            limits: batch and memory limits.
        """
        squares = variability.in_tokens_cv**2, variability.out_tokens_cv**2
        rows = variability.shapes or ShapeRows.of_means(
            np.maximum(law.in_tokens, 1.0), law.out_tokens, *squares
        )
        prompt, answer, steps = rows.mean(rows.computed), rows.mean(rows.answer), row_steps(rows)
        # Ratios of lengths to their means are 1 for a single row, so its moments are exactly the stated ones.
        ratio, answer_ratio = rows.computed / column(prompt), rows.answer / column(answer)
        in_decoding = rows.weight * (steps / column(rows.mean(steps)))
        contexts = row_context(rows)
        context = row_sum(in_decoding * contexts)
        held = row_sum(in_decoding * (contexts - rows.cached + rows.stored))
        spread = rows.computed**2 * rows.computed_scv
        spread += (steps + 1) ** 2 * rows.answer_scv * (1 + rows.answer_scv) ** 2 / 4
        spread += (contexts - column(context)) ** 2
        free = np.maximum(limits.kv_capacity_tokens - rows.heads, 1.0)
        none = np.zeros_like(prompt)
        return cls(
            times=law.iterations,
            client=law.client,
            rows=rows,
            arrival_scv=variability.arrival_cv**2,
            budget=law.max_num_tokens,
            places=np.clip(np.floor(free / held), 1.0, limits.max_batch),
            free_tokens=free,
            prompt=prompt,
            prompt_scv=rows.mean(ratio**2 * rows.computed_scv + (ratio - 1) ** 2),
            prompt_square=rows.mean(rows.computed**2 * (1 + rows.computed_scv)),
            before_a_token=rows.mean(ratio * before_tokens(rows)),
            steps=rows.mean(steps),
            answer_scv=rows.mean(answer_ratio**2 * rows.answer_scv + (answer_ratio - 1) ** 2),
            context=context,
            context_variance=row_sum(in_decoding * spread),
            delay_ms=none,
            more_seen=none,
        )

    @property
    def mixes_long(self) -> BoolArray:
        """Mask of replicas with several different rows, some with prompts beyond the token budget."""
        return np.asarray(self.rows.varies & (self.rows.longest + self.places > self.budget))

    @property
    def row_times(self) -> IterationTimes:
        """Coefficients of an iteration's time for calculations with rows, shapes (R, 1)."""
        return IterationTimes(*(column[:, np.newaxis] for column in self.times.columns()))

    @property
    def row_context_shift(self) -> FloatArray:
        """Mean context of each row minus that of all requests in decoding [tokens], shape (R, H)."""
        return np.asarray(row_context(self.rows) - column(self.context))

    @property
    def own_context_variance(self) -> FloatArray:
        """Variance within each row of the mean context of a request [tokens²], shape (R, H)."""
        rows = self.rows
        return np.asarray(
            rows.computed**2 * rows.computed_scv + (row_steps(rows) + 1) ** 2 * rows.answer_scv / 4
        )

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

    def lone_prompts_ms(
        self, decodes: FloatArray | float, held: FloatArray | float | None = None
    ) -> FloatArray:
        """Return the time of an iteration with one entire prompt of each row [ms], shape (R, H)."""
        count = np.broadcast_to(decodes, self.prompt.shape)
        context = count * self.context if held is None else np.broadcast_to(held, count.shape)
        return self.row_times.ms(
            count[:, np.newaxis],
            context[:, np.newaxis],
            self.rows.computed,
            1.0,
            self.rows.computed * before_tokens(self.rows),
        )

    def alike_ms(self, iteration: "Iteration") -> FloatArray:
        """Return the mean iteration [ms] as if all decoding requests had the mean context."""
        return iteration.mean_ms - self.times.kv_read_per_token_ms * (
            iteration.held - iteration.seen * self.context
        )

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
    """k: mean number of prompts that an output sees in an iteration (eq. 307)."""
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
    """Service of prompts in R replicas, as a request sees it; shapes (R,), or (R, H) for rows."""

    own_ms: FloatArray
    """Prefill time of the request's own prompt [ms], shape (R, H)."""
    wait_ms: FloatArray
    """Mean time before the prefill, after a slot is free [ms]."""
    wait_variance: FloatArray
    """Variance of the time before the prefill [ms²]."""
    own_variance: FloatArray
    """Variance of the prefill time within each row [ms²], shape (R, H)."""
    least_ms: FloatArray
    """Minimum TTFT [ms], shape (R, H)."""
    stalls_ms: FloatArray
    """Delay that a prompt of each row adds to every decoding request [ms], shape (R, H)."""
    stall_ms: FloatArray
    """Mean delay that a prompt adds to every decoding request [ms]."""
    stall_square: FloatArray
    """Second moment of this delay [ms²]."""
    share: FloatArray
    """Share of time in which prompts are computed."""
    longest_ms: FloatArray
    """Time of the longest iteration at the start of an output, including the prompts that arrived with it."""
    found_ms: FloatArray
    """Mean time of the iteration during which a request arrives [ms]."""
    fits_one: BoolArray
    """Mask of replicas whose mean prompt fits into one iteration."""


def row_steps(rows: ShapeRows) -> FloatArray:
    """Return the mean number of decode steps of the outputs of each row, shape (R, H)."""
    return np.asarray(np.maximum(rows.answer - 1, MIN_STEPS))


def row_context(rows: ShapeRows) -> FloatArray:
    """Return the mean context of each row over its decoding [tokens], shape (R, H) (eq. 67)."""
    return np.asarray(rows.computed + rows.cached + rows.answer * (1 + rows.answer_scv) / 2)


def before_tokens(rows: ShapeRows) -> FloatArray:
    """Return the mean number of prompt tokens before a computed token of each row, shape (R, H)."""
    return np.asarray(rows.cached + rows.computed * (1 + rows.computed_scv) / 2)


def column(values: FloatArray) -> FloatArray:
    """Return values of replicas, shape (R,), as a column beside those of rows, shape (R, 1)."""
    return values[:, np.newaxis]
