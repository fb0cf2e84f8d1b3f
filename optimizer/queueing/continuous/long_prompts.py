"""Service of prompts in replicas that mix request shapes, some with prompts beyond the token budget.

Such a prompt fills several iterations in a row. So iterations are of three kinds: without a prompt, filled by
a long prompt, and with short prompts or the last chunks of long ones. Arrays have shape (R,), and those of
rows (R, H); times are in ms and rates in requests/ms. Equation numbers refer to ``docs/math.md``.
"""

from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.continuous.arrivals import NEARLY_EVEN, dispersion
from optimizer.queueing.continuous.replicas import Iteration, Prompts, ReplicaArrays, before_tokens, column
from optimizer.queueing.continuous.schedulers import (
    MAX_PROMPT_SHARE,
    TINY,
    Chunked,
    busy_chance,
    gated_variance,
    joined,
    mean_of_some,
    queueing,
)

POISSON_SCV = 0.25
"""Deviation of the squared coefficient of variation of the interarrival times from 1 up to which arrivals see
the time averages of the replica.
"""


class Chunks(NamedTuple):
    """Division of the prompts of each row into chunks."""

    budget: FloatArray
    """c: token budget that decodes leave for prompts, shape (R,)."""
    full: FloatArray
    """Number of chunks that fill an iteration, for each row, shape (R, H)."""
    rest: FloatArray
    """Remaining tokens of each row's prompt, shape (R, H)."""

    @classmethod
    def of(cls, replicas: ReplicaArrays, decodes: FloatArray) -> "Chunks":
        """Divide prompts beside a number of decodes, shape (R,)."""
        budget, prompt = np.maximum(replicas.budget - decodes, 1.0), replicas.rows.computed
        full = np.floor(prompt / column(budget))
        return cls(budget, full, prompt - full * column(budget))

    def filled(self, replicas: ReplicaArrays, prompts: FloatArray) -> FloatArray:
        """Return the share of iterations that long prompts fill, for a number of arrivals in each."""
        return np.minimum(prompts * replicas.rows.mean(self.full), 1.0)

    def mean_rest(self, replicas: ReplicaArrays) -> FloatArray:
        """Return the mean remainder of a prompt [tokens]."""
        return np.maximum(replicas.rows.mean(self.rest), 1e-9)


class LongService(NamedTuple):
    """Service of prompts with long ones among them."""

    prompts: Prompts
    chunks: Chunks
    full_ms: FloatArray
    """Time of an iteration that prompts fill [ms]."""
    stalls: FloatArray
    """Delay that a prompt of each row adds to every decoding request [ms], shape (R, H)."""
    beside_long: FloatArray
    """Probability that a request waits behind a long prompt."""
    waits_ms: tuple[FloatArray, FloatArray]
    """Mean wait of the other requests, and of those behind a long prompt [ms]."""
    wait_variances: tuple[FloatArray, FloatArray]
    """Variances of these waits [ms²]."""


class LongPrompts(Chunked):
    """Scheduler `chunked` with prompts beyond the token budget next to shorter ones (eq. 263-265)."""

    def iteration(self, replicas: ReplicaArrays, rate: FloatArray, guess_ms: FloatArray) -> Iteration:
        """Return the iterations that follow from a guess of their mean duration (eq. 263)."""
        decodes, seen, held, spread, prompts = self.decodes(replicas, rate, guess_ms)
        chunks = Chunks.of(replicas, seen)
        filled, rest = chunks.filled(replicas, prompts), chunks.mean_rest(replicas)
        together = np.where(
            replicas.arrival_scv > NEARLY_EVEN, mean_of_some(prompts), np.maximum(prompts, 1.0)
        )
        tokens = np.minimum(together * rest, chunks.budget)
        share = np.minimum(prompts * rest / tokens, 1 - filled * (1 - 1e-9))
        tokens = np.where(share > 0, np.maximum(tokens, prompts * rest / np.maximum(share, TINY)), tokens)
        without = replicas.iteration_ms(seen, held=held)
        within = replicas.iteration_ms(seen, tokens, tokens / rest, held)
        full = replicas.iteration_ms(seen, chunks.budget, np.ones_like(seen), held)
        mean = (1 - filled - share) * without + filled * full + share * within
        free = 1 - filled - share
        return Iteration(mean, decodes, seen, held, spread, prompts, tokens, free, share, without, within)

    def prompts(self, replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration) -> Prompts:
        """Return the service of prompts, given the mean iterations."""
        return self.service(replicas, rate, iteration).prompts

    def service(self, replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration) -> LongService:
        """Return the service of prompts, given the mean iterations (eq. 264)."""
        rows, scv = replicas.rows, replicas.arrival_scv
        chunks = Chunks.of(replicas, iteration.seen)
        full_ms = replicas.iteration_ms(iteration.seen, chunks.budget, held=iteration.held)
        own_ms, stalls = _own_and_stalls(replicas, rate, iteration, chunks, full_ms)
        stall = rows.mean(stalls)
        services, _ = self._service(replicas, iteration, (chunks.budget, full_ms), stalls)
        slope = replicas.prompt_slope_ms(iteration.seen, iteration.prompt_tokens)
        seen_ms, square, within = _iteration_found(replicas, rate, iteration, chunks, slope)
        busy, share = busy_chance(iteration, scv), np.minimum(rate * stall, MAX_PROMPT_SHARE)
        even = scv < NEARLY_EVEN
        burst = np.where(scv > 1, dispersion(rate * seen_ms, scv) - 1, 0.0)
        mates = np.where(
            even, np.maximum(iteration.prompts - 1, 0.0) * stall, share * seen_ms + burst * stall
        )
        residual = np.where(even & (rate * iteration.prompt_ms < 1), iteration.decode_ms, seen_ms)
        gated = busy * (residual / 2 + mates)
        lengths = iteration.mean_ms, seen_ms, square, residual
        of_gated = gated_variance(rate, (busy, gated), lengths, slope * replicas.prompt, scv)
        queue, of_queue, load = queueing(rows, rate, services, scv)
        queue += busy / 2 * iteration.decode_ms + load * _end_ms(
            replicas, rate, iteration, (chunks, full_ms), (stall, queue / np.maximum(load, 1e-9))
        )
        wait, variance = joined((gated, of_gated), (queue, of_queue))
        own_mean = rows.mean(own_ms)
        others = rows.mean(own_ms * np.minimum(own_ms, column(full_ms))) / own_mean
        prompts = Prompts(
            own_ms=own_ms,
            wait_ms=wait,
            wait_variance=variance,
            own_variance=column(slope**2) * rows.computed_scv * rows.computed**2,
            least_ms=np.where(chunks.full > 0, own_ms, np.minimum(column(iteration.decode_ms), own_ms)),
            stalls_ms=stalls,
            stall_ms=stall,
            stall_square=rows.mean(stalls**2 * (1 + rows.computed_scv)),
            share=share,
            longest_ms=np.minimum(others + mates, full_ms),
            found_ms=seen_ms,
            fits_one=replicas.prompt < chunks.budget,
        )
        alone = LongService(prompts, chunks, full_ms, stalls, 0 * wait, (wait, wait), (variance, variance))
        return _divided(replicas, rate, iteration, alone, (services, queue, of_queue, busy, within))

    def largest_rate(self, replicas: ReplicaArrays) -> FloatArray:
        """Return the throughput with all batch slots or the token budget used [requests/ms] (eq. 80, 263)."""
        prompt, steps = replicas.prompt, replicas.steps
        decodes = np.minimum(replicas.places, replicas.budget / (1 + prompt / steps))
        prompts, chunks = decodes / steps, Chunks.of(replicas, decodes)
        filled = chunks.filled(replicas, prompts)
        even = replicas.arrival_scv < NEARLY_EVEN
        some = np.where(even, np.minimum(prompts, 1.0), -np.expm1(-prompts))
        share = np.maximum(np.minimum(some, 1 - filled), 0.0)
        tokens = np.maximum(prompts * prompt - filled * chunks.budget, 0.0) / np.maximum(share, TINY)
        tokens = np.where(share > 0, tokens, 0.0)
        within = replicas.iteration_ms(decodes, tokens, prompts / np.maximum(share, TINY))
        full = replicas.iteration_ms(decodes, chunks.budget, np.ones_like(decodes))
        mean = (1 - filled - share) * replicas.iteration_ms(decodes) + filled * full
        return decodes / (steps * (mean + np.where(share > 0, share * within, 0.0)))


LONG_PROMPTS = LongPrompts()


def _own_and_stalls(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, chunks: Chunks, full_ms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the prefill time of the prompts of each row, and the delay that they add to decodes [ms].

    The iteration with the last chunk of a long prompt is filled by prompts that arrived during the others.
    """
    times, rows, rest = replicas.row_times, replicas.rows, chunks.rest
    seen = column(np.maximum(iteration.seen - 1, 0.0))  # the request itself does not decode yet
    held = column(np.maximum(iteration.held - replicas.context, 0.0))
    pairs = times.prompt_attention_ms * rows.computed * before_tokens(rows)
    full = times.ms(column(iteration.seen), column(iteration.held), column(chunks.budget), 1.0)
    count = np.minimum(rest, 1.0)
    beside = times.ms(column(iteration.seen), column(iteration.held), rest, count) - column(
        iteration.decode_ms
    )
    stalls = chunks.full * (full - column(iteration.decode_ms)) + np.where(rest > 0, beside, 0.0) + pairs
    came = column(rate * replicas.prompt * full_ms) * chunks.full
    filled = rest + np.where(chunks.full > 0, np.minimum(column(chunks.budget) - rest, came), 0.0)
    last = times.ms(seen, held, filled, np.where(chunks.full > 0, 1.0, count))
    return chunks.full * full + np.where(filled > 0, last, 0.0) + pairs, stalls


def _iteration_found(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, chunks: Chunks, slope: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return E[t²]/E[t] and E[t²] of iterations, and E[t²] of those with short prompts (eq. 73)."""
    rows, filled = replicas.rows, chunks.filled(replicas, iteration.prompts)
    whole = rows.computed < column(chunks.budget)
    of_rests = rows.mean(chunks.rest**2 + rows.computed**2 * rows.computed_scv * whole)
    work = iteration.prompts * chunks.mean_rest(replicas)
    spread = (iteration.prompts * of_rests + work**2) / np.maximum(iteration.with_prompt, TINY)
    spread = np.maximum(spread - iteration.prompt_tokens**2, 0.0)
    spread /= 1 - np.minimum(rate * slope * replicas.prompt, 0.95) ** 2
    within = iteration.prompt_ms**2 + np.minimum(slope**2 * spread, 4 * iteration.prompt_ms**2)
    full = replicas.iteration_ms(iteration.seen, chunks.budget, np.ones_like(rate), iteration.held)
    square = (
        iteration.without_prompt * iteration.decode_ms**2 + filled * full**2 + iteration.with_prompt * within
    )
    return square / iteration.mean_ms, square, within


def _end_ms(
    replicas: ReplicaArrays,
    rate: FloatArray,
    iteration: Iteration,
    full: tuple[Chunks, FloatArray],
    behind: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return the mean remaining time of the iteration in which a queued prompt ends [ms].

    Prompts that queued behind a long one end together.

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations.
        full: chunks, and the time of an iteration that prompts fill [ms].
        behind: mean stall of a prompt, and mean queueing time of those that queue [ms].
    """
    (chunks, full_ms), (stall, queue_ms) = full, behind
    end = (
        np.minimum(full_ms - iteration.decode_ms, stall)
        * np.minimum(1.0, replicas.prompt / chunks.budget)
        / 2
    )
    tokens = np.minimum(chunks.budget, rate * chunks.mean_rest(replicas) * queue_ms)
    together = replicas.times.ms(iteration.seen, iteration.held, tokens, 1.0)
    return np.maximum(end, (together - iteration.decode_ms) / 2)


def _divided(
    replicas: ReplicaArrays,
    rate: FloatArray,
    iteration: Iteration,
    service: LongService,
    queue: tuple[FloatArray, ...],
) -> LongService:
    """Divide requests into those that wait behind a long prompt and the others (eq. 265).

    Only for almost Poisson arrivals, because others do not see time averages.

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations.
        service: service of prompts with one distribution of the wait.
        queue: service times of rows while prompts queue [ms], shape (R, H); mean and variance of the wait in
            the queue; probability of finding an iteration in progress; E[t²] of iterations with short
            prompts.
    """
    services, mean, variance, busy, within = queue
    rows, scv = replicas.rows, replicas.arrival_scv
    poisson = np.abs(scv - 1) <= POISSON_SCV
    if not poisson.any():
        return service
    long = service.chunks.full > 0
    load = np.minimum(rate * rows.mean(services), 0.995)
    odds = rate * rows.mean(services * long) / (1 - load)
    chance = np.where(poisson, np.minimum(odds / (1 + odds), 0.97), 0.0)
    short, of_short, queue_short = _short_wait(replicas, rate, iteration, service, (services, busy, within))
    # The moments of the wait behind long prompts are those that remain.
    total = np.maximum(mean + (1 - chance) * (short - queue_short[0]), 1e-9)
    square = mean**2 + variance + (1 - chance) * (short**2 + of_short - queue_short[0] ** 2 - queue_short[1])
    behind = np.maximum((total - (1 - chance) * short) / np.maximum(chance, 1e-9), short)
    of_behind = (square - (1 - chance) * (short**2 + of_short)) / np.maximum(chance, 1e-9) - behind**2
    of_behind = np.clip(of_behind, 0.15 * behind**2, 4 * behind**2)
    wait = (1 - chance) * short + chance * behind
    of_wait = (1 - chance) * (short**2 + of_short) + chance * (behind**2 + of_behind) - wait**2
    prompts = service.prompts
    return service._replace(
        prompts=prompts._replace(
            wait_ms=np.where(poisson, wait, prompts.wait_ms),
            wait_variance=np.where(poisson, np.maximum(of_wait, 0.0), prompts.wait_variance),
        ),
        beside_long=chance,
        waits_ms=(np.where(poisson, short, prompts.wait_ms), np.where(poisson, behind, prompts.wait_ms)),
        wait_variances=(
            np.where(poisson, of_short, prompts.wait_variance),
            np.where(poisson, of_behind, prompts.wait_variance),
        ),
    )


def _short_wait(
    replicas: ReplicaArrays,
    rate: FloatArray,
    iteration: Iteration,
    service: LongService,
    rest: tuple[FloatArray, ...],
) -> tuple[FloatArray, FloatArray, tuple[FloatArray, FloatArray]]:
    """Return mean and variance of the wait if there were only short prompts, and those of the queue alone.

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations.
        service: service of prompts.
        rest: service times of rows while prompts queue, shape (R, H); probability of finding an iteration
            in progress; E[t²] of iterations with short prompts.
    """
    services, busy, within = rest
    short = service.chunks.full == 0
    some = np.where(short, replicas.rows.weight, 0.0)
    share = np.maximum(some.sum(axis=1), 1e-12)
    rows = replicas.rows.with_weights(some / column(share))
    rate, scv, stalls = rate * share, replicas.arrival_scv, service.stalls
    free = np.maximum(iteration.without_prompt, 0.0)
    count = np.maximum(free + iteration.with_prompt, 1e-9)
    total = np.maximum(free * iteration.decode_ms + iteration.with_prompt * iteration.prompt_ms, 1e-9)
    square = free * iteration.decode_ms**2 + iteration.with_prompt * within
    seen_ms, stall = square / total, rows.mean(stalls)
    work = np.minimum(rate * stall, MAX_PROMPT_SHARE)
    gated = busy * (seen_ms / 2 + work * seen_ms)
    lengths = total / count, seen_ms, square / count, seen_ms
    of_gated = gated_variance(rate, (busy, gated), lengths, stall, scv)
    queue, of_queue, load = queueing(rows, rate, services, scv)
    end = np.minimum(service.full_ms - iteration.decode_ms, stall)
    end = end * np.minimum(1.0, rows.mean(rows.computed) / service.chunks.budget) / 2
    queue += busy / 2 * iteration.decode_ms + load * end
    wait, variance = joined((gated, of_gated), (queue, of_queue))
    spread = rows.mean(stalls**2 * (1 + rows.computed_scv))
    return wait, variance + work * spread, (queue, of_queue)
