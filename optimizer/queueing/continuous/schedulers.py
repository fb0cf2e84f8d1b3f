"""The two schedulers of continuous batching: contents of an iteration, service of prompts, maximum rate.

Both are mean-value models: an iteration's contents depend on its length, and its length on them. All arrays
have shape (R,), times are in ms and rates in requests/ms. Equation numbers refer to ``docs/math.md``.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.queueing.continuous.arrivals import NEARLY_EVEN, dispersion, load_found, none_arrive
from optimizer.queueing.continuous.replicas import Iteration, Prompts, ReplicaArrays, before_tokens, column
from optimizer.queueing.shapes import ShapeRows
from optimizer.timing.engine import SchedulerName

MAX_PROMPT_SHARE = 0.98
MAX_PROMPT_LOAD = 0.995
MAX_SLOT_LOAD = 1 - 1e-9
NEVER_FULL = 7.0
"""Deviations of a Poisson variable above its mean that are neglected."""
BLEND = 8
"""Exponent of the power mean that combines two waiting times before a prefill, which is almost their maximum.
"""
BATCH_ROUNDS = 4
TINY = 1e-300


class Decodes(NamedTuple):
    """Decoding requests of R replicas, and what one of them sees; means, shapes (R,)."""

    number: FloatArray
    """n: decoding requests."""
    seen: FloatArray
    """Decoding requests in the iterations of a request, including itself."""
    held: FloatArray
    """KV cache tokens of these requests."""
    dispersion: FloatArray
    """Index of dispersion of the arrivals over a request's lifetime."""
    prompts: FloatArray
    """k: prompts whose prefill a request sees for each of its tokens."""


class Scheduler(ABC):
    """A scheduler: a policy that assigns prompts to iterations."""

    has_one_solution: ClassVar[bool] = True
    """Whether the fixed point of the iteration length is unique."""

    @abstractmethod
    def iteration(self, replicas: ReplicaArrays, rate: FloatArray, guess_ms: FloatArray) -> Iteration:
        """Return the iterations that follow from a guess of their mean duration.

        Args:
            replicas: R replicas.
            rate: arrival rate [1/ms].
            guess_ms: assumed mean length of an iteration [ms].
        """

    @abstractmethod
    def prompts(self, replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration) -> Prompts:
        """Return the service of prompts, given the mean iterations.

        Args:
            replicas: R replicas.
            rate: arrival rate [1/ms].
            iteration: mean iterations.
        """

    @abstractmethod
    def largest_rate(self, replicas: ReplicaArrays) -> FloatArray:
        """Return the throughput with all batch slots occupied [requests/ms]."""


class Chunked(Scheduler):
    """Scheduler `chunked`: prompts are computed in chunks together with decodes, up to the token budget."""

    def iteration(self, replicas: ReplicaArrays, rate: FloatArray, guess_ms: FloatArray) -> Iteration:
        """Return the iterations that follow from a guess of their mean duration (eq. 68-70)."""
        # Decodes come first; the rest of the token budget is for prompts.
        decodes, seen, held, spread, prompts = self.decodes(replicas, rate, guess_ms)
        budget = np.maximum(replicas.budget - seen, 1.0)
        together = np.where(
            replicas.arrival_scv > NEARLY_EVEN, mean_of_some(prompts), np.maximum(prompts, 1.0)
        )
        # Prompts longer than the budget are spread over several iterations, so more iterations contain prompt
        # tokens.
        tokens = np.minimum(together * replicas.prompt, budget)
        share = np.minimum(prompts * replicas.prompt / tokens, 1.0)
        without = replicas.iteration_ms(seen, held=held)
        within = replicas.iteration_ms(seen, tokens, held=held)
        mean = (1 - share) * without + share * within
        return Iteration(
            mean, decodes, seen, held, spread, prompts, tokens, 1 - share, share, without, within
        )

    @staticmethod
    def decodes(replicas: ReplicaArrays, rate: FloatArray, guess_ms: FloatArray) -> Decodes:
        """Return the decoding requests; evenly spaced ones meet fewer prompts (eq. 308)."""
        found = decodes_of(replicas, rate, guess_ms)
        if (found.dispersion >= 1).all():
            return found
        standing = np.maximum(replicas.times.standing_ms(found.seen), TINY)
        even = np.maximum(1 - found.dispersion * guess_ms / standing, 0.0)
        missed = even / (2 * np.maximum(found.number, TINY))
        return found._replace(prompts=found.prompts * np.maximum(1 - missed, 0.0))

    def prompts(self, replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration) -> Prompts:
        """Return the service of prompts, given the mean iterations (eq. 72-77)."""
        prompt, scv = replicas.prompt, replicas.arrival_scv
        even = scv < NEARLY_EVEN
        budget = np.maximum(replicas.budget - iteration.seen, 1.0)
        full_ms = replicas.iteration_ms(iteration.seen, budget, held=iteration.held)
        stalls = replicas.lone_prompts_ms(iteration.seen, iteration.held) - column(iteration.decode_ms)
        alone = replicas.rows.mean(stalls)
        own_ms = self._own(replicas, iteration, budget)
        service, whole = self._service(replicas, iteration, (budget, full_ms), stalls)
        slope = replicas.prompt_slope_ms(iteration.seen, iteration.prompt_tokens)
        seen_ms, square = _iteration_found(replicas, rate, iteration, slope, np.asarray(whole.any(axis=1)))
        busy = busy_chance(iteration, scv)
        share = np.minimum(rate * alone, MAX_PROMPT_SHARE)
        # Prompts that arrive in the same iteration are computed together.
        burst = np.where(scv > 1, dispersion(rate * seen_ms, scv) - 1, 0.0)
        mates = np.where(
            even, np.maximum(iteration.prompts - 1, 0.0) * alone, share * seen_ms + burst * alone
        )
        lone = even & (rate * iteration.prompt_ms < 1)
        residual = np.where(lone, iteration.decode_ms, seen_ms)
        # Two waiting times: until the end of the current iteration plus the prompts that start with it
        # (gated), and in the queue while the budget is used up. The longer one counts.
        gated = busy * (residual / 2 + mates)
        end = np.minimum(full_ms - iteration.decode_ms, alone) * np.minimum(1.0, prompt / budget) / 2
        queue, queue_variance, load = queueing(replicas.rows, rate, service, scv)
        queue += busy / 2 * iteration.decode_ms + load * end
        lengths = iteration.mean_ms, seen_ms, square, residual
        of_gated = gated_variance(rate, (busy, gated), lengths, slope * prompt, scv)
        wait, variance = joined((gated, of_gated), (queue, queue_variance))
        square_or_spread = np.where(even, replicas.prompt_scv * prompt**2, replicas.prompt_square)
        mean_own = replicas.rows.mean(own_ms)
        # Prompts of others are weighted by the time during which they are computed.
        others = replicas.rows.mean(own_ms * np.minimum(own_ms, column(full_ms))) / mean_own
        return Prompts(
            own_ms=own_ms,
            wait_ms=wait,
            wait_variance=variance + share * slope**2 * square_or_spread,
            own_variance=column(slope**2) * replicas.rows.computed_scv * replicas.rows.computed**2,
            least_ms=np.minimum(column(iteration.decode_ms), own_ms),
            stalls_ms=stalls,
            stall_ms=alone,
            stall_square=replicas.rows.mean(stalls**2 * (1 + replicas.rows.computed_scv)),
            share=share,
            longest_ms=np.minimum(others + mates, full_ms),
            found_ms=seen_ms,
            fits_one=prompt < budget,
        )

    @staticmethod
    def _service(
        replicas: ReplicaArrays, iteration: Iteration, full: tuple[FloatArray, FloatArray], stalls: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return the service time of the prompts of each row while prompts queue [ms], shape (R, H) (eq. 76).

        Each prompt takes its part of a full iteration. Entire prompts also take their share of the decodes
        between them.

        Args:
            replicas: R replicas.
            iteration: mean iterations.
            full: token budget that is left for prompts, and the time of a full iteration [ms].
            stalls: delay that a prompt of each row adds to every decoding request [ms], shape (R, H).

        Returns:
            The service times, and a mask of the rows whose mean prompt fits into one iteration.
        """
        rows, (budget, full_ms) = replicas.rows, (column(full[0]), column(full[1]))
        whole, part, decode_ms = rows.computed < budget, rows.computed / budget, column(iteration.decode_ms)
        work = np.minimum(part * (full_ms - decode_ms), stalls)
        attention = column(replicas.times.prompt_attention_ms)
        pairs = rows.computed * (before_tokens(rows) - column(replicas.before_a_token))
        return np.where(whole, decode_ms * part + work, part * full_ms + attention * pairs), whole

    @staticmethod
    def _own(replicas: ReplicaArrays, iteration: Iteration, budget: FloatArray) -> FloatArray:
        """Return the prefill time of the prompts of each row [ms], shape (R, H) (eq. 72).

        It is that of full chunks, and of one with the rest. All chunks together attend to the pairs of the
        prompt's tokens, each pair once.
        """
        times, prompt, budget = replicas.row_times, replicas.rows.computed, column(budget)
        chunks = np.floor(prompt / budget)
        rest = prompt - chunks * budget
        seen = np.maximum(iteration.seen - 1, 0.0)  # the request itself does not decode yet
        held = np.maximum(iteration.held - replicas.context, 0.0)
        whole = replicas.lone_prompts_ms(seen, held)
        if (prompt <= budget).all():
            return whole
        full = times.ms(column(iteration.seen), column(iteration.held), budget, 1.0)
        last = times.ms(column(seen), column(held), rest, np.minimum(rest, 1.0))
        pairs = times.prompt_attention_ms * prompt * before_tokens(replicas.rows)
        pieces = chunks * full + np.where(rest > 0, last, 0.0) + pairs
        return np.where(prompt <= budget, whole, pieces)

    def largest_rate(self, replicas: ReplicaArrays) -> FloatArray:
        """Return the throughput with all batch slots or the token budget used [requests/ms] (eq. 80)."""
        prompt, steps = replicas.prompt, replicas.steps
        decodes = np.minimum(replicas.places, replicas.budget / (1 + prompt / steps))
        prompts = decodes / steps
        some = -np.expm1(-prompts) * np.maximum(1.0, prompt / np.maximum(replicas.budget - decodes, 1.0))
        even = replicas.arrival_scv < NEARLY_EVEN
        share = np.clip(np.where(even, np.minimum(prompts, 1.0), np.minimum(some, 1.0)), TINY, 1.0)
        within = replicas.iteration_ms(decodes, prompts * prompt / share)
        return decodes / (steps * ((1 - share) * replicas.iteration_ms(decodes) + share * within))


class PrefillFirst(Scheduler):
    """Scheduler `prefill-first`: entire prompts, up to the token budget, are computed while decodes pause."""

    has_one_solution: ClassVar[bool] = False

    def iteration(self, replicas: ReplicaArrays, rate: FloatArray, guess_ms: FloatArray) -> Iteration:
        """Return the iterations that follow from a guess of their mean duration (eq. 71).

        Iterations with prompts continue while prompts keep arriving.
        """
        decodes, seen, held, spread, prompts = decodes_of(replicas, rate, guess_ms)
        # Prompts arrive during a decode iteration; more arrive during the iterations that compute them, until
        # none does.
        without = replicas.iteration_ms(seen, held=held)
        most = np.maximum(1.0, np.floor(replicas.budget / replicas.prompt))
        arrivals = rate * without
        some = np.maximum(1 - none_arrive(arrivals, replicas.arrival_scv), TINY)
        together = np.clip(arrivals / some, 1.0, most)
        for _ in range(BATCH_ROUNDS):
            during = rate * self._batch_ms(replicas, together)
            again = none_arrive(during, replicas.arrival_scv)
            together = np.clip(prompts * again / some, 1.0, most)
        within = self._batch_ms(replicas, together)
        share = prompts / together
        tokens = together * replicas.prompt
        mean, every = without + share * within, np.ones_like(share)
        return Iteration(mean, decodes, seen, held, spread, prompts, tokens, every, share, without, within)

    def _batch_ms(self, replicas: ReplicaArrays, prompts: FloatArray) -> FloatArray:
        return replicas.iteration_ms(0.0, prompts * replicas.prompt, prompts)

    def prompts(self, replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration) -> Prompts:
        """Return the service of prompts, given the mean iterations (eq. 72-77)."""
        prompt, scv = replicas.prompt, replicas.arrival_scv
        own_ms = replicas.lone_prompts_ms(0.0)
        most = np.maximum(1.0, np.floor(replicas.budget / prompt))
        average = iteration.prompt_ms * prompt / iteration.prompt_tokens
        # Queued prompts fill batches of prompts, but a burst can end before they are full.
        mean_service = np.where(scv > 1, average, self._batch_ms(replicas, most) / most)
        service = column(mean_service) * replicas.rows.computed / column(prompt)
        slope = replicas.prompt_slope_ms(0.0, iteration.prompt_tokens)
        busy = busy_chance(iteration, scv)
        share = np.minimum(rate * average, MAX_PROMPT_SHARE)
        seen_ms, square = _iteration_found(replicas, rate, iteration, slope, prompt < replicas.budget)
        # As with chunks: the current iteration and the prompts that arrived in it, or the queue of full
        # batches.
        even = scv < NEARLY_EVEN
        burst = np.where(scv > 1, dispersion(rate * seen_ms, scv) - 1, 0.0)
        more = np.where(even, np.maximum(iteration.prompts - 1, 0.0), rate * seen_ms + burst)
        residual = np.where(even, iteration.decode_ms, seen_ms)
        gated = busy * (residual / 2 + np.minimum(more, most - 1) * slope * prompt)
        lengths = iteration.mean_ms, seen_ms, square, residual
        of_gated = gated_variance(rate, (busy, gated), lengths, slope * prompt, scv)
        queue, queue_variance, load = queueing(replicas.rows, rate, service, scv)
        queue += busy / 2 * iteration.decode_ms + load * np.maximum(seen_ms - mean_service, 0.0) / 2
        wait, variance = joined((gated, of_gated), (queue, queue_variance))
        return Prompts(
            own_ms=own_ms,
            wait_ms=wait,
            wait_variance=variance,
            own_variance=column(slope**2) * replicas.rows.computed_scv * replicas.rows.computed**2,
            least_ms=0.8 * own_ms,
            stalls_ms=service,
            stall_ms=mean_service,
            stall_square=mean_service**2 * (1 + replicas.prompt_scv),
            share=share,
            longest_ms=iteration.decode_ms + replicas.rows.mean(own_ms),
            found_ms=seen_ms,
            fits_one=prompt < replicas.budget,
        )

    def largest_rate(self, replicas: ReplicaArrays) -> FloatArray:
        """Return the throughput with all batch slots occupied [requests/ms] (eq. 80)."""
        ends = replicas.places / replicas.steps
        most = np.maximum(1.0, np.floor(replicas.budget / replicas.prompt))
        together = np.clip(mean_of_some(ends), 1.0, most)
        prompts_ms = replicas.places * self._batch_ms(replicas, together) / together
        return replicas.places / (prompts_ms + replicas.steps * replicas.iteration_ms(replicas.places))


SCHEDULERS: dict[SchedulerName, Scheduler] = {"chunked": Chunked(), "prefill-first": PrefillFirst()}
"""All schedulers, by their names in documents."""


def decodes_of(replicas: ReplicaArrays, rate: FloatArray, guess_ms: FloatArray) -> Decodes:
    """Return the decoding requests that follow from a guess of the mean iteration [ms] (eq. 68, 307, 128).

    Requests with long contexts lengthen their iterations, so arrivals find them more often. A request that
    queues for a slot starts beside a batch with one request less than the limit.
    """
    number = np.minimum(rate * replicas.steps * guess_ms + rate * replicas.delay_ms, replicas.places)
    scv, arrivals = replicas.arrival_scv, rate * guess_ms
    spread = dispersion(number, scv)
    inside = number + arrivals
    queues = queue_chance(inside / spread, replicas.places / spread)
    others = np.maximum(number, 1 - scv) + spread * (1 - queues)
    seen = np.clip(others + replicas.more_seen, 1.0, replicas.places)
    longer = replicas.times.kv_read_per_token_ms * replicas.context_variance / guess_ms
    met = arrivals * np.maximum(1 - queues / np.maximum(inside, TINY), 0.0)
    return Decodes(number, seen, seen * replicas.context + number * longer, spread, met)


def queue_chance(offered: FloatArray, places: FloatArray) -> FloatArray:
    """Return the probability that a request queues for a slot: Erlang's formula C with real arguments.

    Args:
        offered: mean number of requests inside, at most the slots.
        places: number of slots.
    """
    from scipy.special import gammaincc, gammaln

    chance = np.zeros_like(offered)
    near = np.flatnonzero((places - offered) < NEVER_FULL * np.sqrt(offered + 1))
    if len(near):
        load, places = np.minimum(offered[near] / places[near], MAX_SLOT_LOAD), places[near]
        offered = load * places
        log_density = places * np.log(offered) - offered - gammaln(places + 1)
        lost = np.exp(log_density) / np.maximum(gammaincc(places + 1, offered), TINY)
        chance[near] = lost / (1 - load * (1 - lost))
    return chance


def mean_of_some(mean: FloatArray) -> FloatArray:
    """Return the mean of a Poisson variable under the condition that it is not 0."""
    small = np.maximum(mean, 1e-12)
    return small / -np.expm1(-small)


def busy_chance(iteration: Iteration, scv: FloatArray) -> FloatArray:
    """Return the probability that an arriving request finds an iteration in progress."""
    inside = iteration.decodes + iteration.prompts
    return np.where(scv < NEARLY_EVEN, np.minimum(inside, 1.0), -np.expm1(-inside))


def _iteration_found(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, slope: FloatArray, whole: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return E[t²]/E[t], the mean time of the iteration in which a request arrives, and E[t²] (eq. 73).

    The variance of prompt tokens lengthens iterations, and a longer iteration is followed by more prompts.
    """
    work = iteration.prompts * replicas.prompt
    spread = (iteration.prompts * replicas.prompt_square + work**2) / np.maximum(iteration.with_prompt, TINY)
    spread = np.where(whole, np.maximum(spread - iteration.prompt_tokens**2, 0.0), 0.0)
    spread /= 1 - np.minimum(rate * slope * replicas.prompt, 0.95) ** 2
    within = iteration.prompt_ms**2 + np.minimum(slope**2 * spread, 4 * iteration.prompt_ms**2)
    square = iteration.without_prompt * iteration.decode_ms**2 + iteration.with_prompt * within
    return square / iteration.mean_ms, square


def gated_variance(
    rate: FloatArray,
    gate: tuple[FloatArray, FloatArray],
    lengths: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    prompt_slope: FloatArray,
    scv: FloatArray,
) -> FloatArray:
    """Return the variance of the wait for the current iteration and the next one's prompts (eq. 75).

    Args:
        rate: arrival rate [1/ms].
        gate: probability of finding an iteration in progress, and the mean wait [ms].
        lengths: mean time of an iteration, and of the one in progress at an arrival; mean square; residual
            time for evenly spaced arrivals.
        prompt_slope: time that one more prompt adds to an iteration [ms].
        scv: squared coefficient of variation of the times between arrivals.
    """
    (busy, gated), (mean, seen, square, even_ms) = gate, lengths
    even = busy * even_ms**2 / 3 - (busy * even_ms / 2) ** 2
    relative = np.maximum(square / mean**2 - 1, 0.0)
    of_seen = np.maximum(mean**2 * (1 + relative) * (1 + 2 * relative) - seen**2, 0.0)
    residual = (seen**2 + of_seen) / 12 + (0.5 + rate * prompt_slope) ** 2 * of_seen
    mates = prompt_slope**2 * rate * seen * dispersion(rate * seen, scv)
    given = gated / np.maximum(busy, 1e-9)
    variance = np.maximum(busy * (given**2 + residual + mates) - gated**2, 0.0)
    return np.where(scv < NEARLY_EVEN, even, variance)


def queueing(
    rows: ShapeRows, rate: FloatArray, services: FloatArray, scv: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean and variance of the queueing time of prompts, and the load that arrivals find (eq. 76).

    Args:
        rows: rows of the loads.
        rate: arrival rate [1/ms].
        services: service time of the prompts of each row [ms], shape (R, H).
        scv: squared coefficient of variation of the interarrival times.
    """
    service = np.maximum(rows.mean(services), 1e-12)
    load = np.clip(rate * service, 1e-12, MAX_PROMPT_LOAD)
    iteration = load_found(load, scv)
    ratio = services / column(service)
    service_scv = rows.mean(ratio**2 * rows.computed_scv + (ratio - 1) ** 2)
    wait = iteration / (1 - iteration) * service * (scv + service_scv) / (scv + 1)
    wait *= _seldom_met(load, scv, service_scv)
    # The third moment is weighted by the variability of arrivals, because evenly spaced ones miss long
    # prompts.
    cube = rows.mean(ratio**3 * (1 + rows.computed_scv) ** 3)
    third = np.minimum(scv, 1.0) * load * service**2 * cube / (3 * (1 - load))
    square = np.maximum(2 * wait**2 / np.maximum(iteration, TINY), 2 * wait**2 + third)
    return wait, square - wait**2, iteration


def _seldom_met(load: FloatArray, scv: FloatArray, prompt_scv: FloatArray) -> FloatArray:
    """Return a factor on queueing times that is below 1 if both arrivals and prompts vary little.

    It is the factor of Kraemer and Langenbach-Belz, divided by its value for exponential service.
    """
    both = np.maximum(scv + prompt_scv, TINY)
    little = np.maximum(1 / both - 1 / (scv + 1), 0.0) * np.maximum(1 - scv, 0.0) ** 2
    return np.asarray(np.exp(-2 * (1 - load) / (3 * load) * little))


def joined(
    gated: tuple[FloatArray, FloatArray], queue: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of a waiting time that is about the maximum of two (eq. 77)."""
    scale = np.maximum(np.maximum(gated[0], queue[0]), TINY)
    first, second = (gated[0] / scale) ** BLEND, (queue[0] / scale) ** BLEND
    both = np.maximum(first + second, TINY)
    wait: FloatArray = scale * both ** (1 / BLEND)
    return wait, (first * gated[1] + second * queue[1]) / both
