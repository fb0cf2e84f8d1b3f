"""Means and percentiles of latencies as a client sees them, derived from iterations and prompts.

All arrays have shape (R,), times are in ms and rates in requests/ms. Equation numbers refer to
``docs/math.md``.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray, RowArrays
from optimizer.queueing.continuous.arrivals import NEARLY_EVEN, dispersion
from optimizer.queueing.continuous.replicas import Iteration, Prompts, ReplicaArrays
from optimizer.queueing.roots import closed_brackets, zeros_or

MAX_LOAD = 0.999
"""Maximum load of the batch slots that the formula for the queueing time uses."""
MIN_DISPERSION = 0.05
MIN_SCV = 0.02
MIN_SHARE = 1e-9
"""Share of requests that queue for a slot below which percentiles ignore them."""
QUANTILE_WIDTH = 1e-12
FIXED_LIFE = 2 / 3
"""Variance of the batch averaged over a request's lifetime, divided by that of the batch, for constant
lifetimes (infinite server, eq. 79).
"""
RANDOM_LIFE = 4 * math.log(2) - 2
"""The same ratio as `FIXED_LIFE`, for exponential lifetimes (eq. 79)."""
MIN_ITL_SHARE = 0.8
"""Fraction of the shortest iteration that is a lower bound on the mean ITL of any output."""


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma distributions of R rows, given by mean and variance; shapes (R,)."""

    mean: FloatArray
    variance: FloatArray

    def _shape(self) -> tuple[FloatArray, FloatArray]:
        mean = np.maximum(self.mean, 1e-12)
        variance = np.maximum(self.variance, 1e-8 * mean**2)
        return mean**2 / variance, variance / mean

    def survival(self, x: FloatArray) -> FloatArray:
        """Return P(X > x)."""
        from scipy.special import gammaincc

        shape, scale = self._shape()
        return np.asarray(gammaincc(shape, np.maximum(x, 0.0) / scale))

    def quantile(self, share: float) -> FloatArray:
        """Return x with P(X ≤ x) = share."""
        from scipy.special import gammaincinv

        shape, scale = self._shape()
        return np.asarray(gammaincinv(shape, share) * scale)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Lognormal distributions of R rows, given by mean and variance; shapes (R,)."""

    mean: FloatArray
    variance: FloatArray

    def _logarithm(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation of the logarithm of the variable."""
        mean = np.maximum(self.mean, 1e-12)
        square = np.log1p(np.maximum(self.variance / mean**2, 1e-8))
        return np.log(mean) - square / 2, np.sqrt(square)

    def survival(self, x: FloatArray) -> FloatArray:
        """Return P(X > x)."""
        from scipy.special import ndtr

        middle, deviation = self._logarithm()
        return np.asarray(ndtr((middle - np.log(np.maximum(x, 1e-300))) / deviation))

    def quantile(self, share: float) -> FloatArray:
        """Return x with P(X ≤ x) = share."""
        from scipy.special import ndtri

        middle, deviation = self._logarithm()
        return np.asarray(np.exp(middle + ndtri(share) * deviation))


@dataclass(frozen=True, slots=True)
class BatchSlots:
    """Queueing of requests for a batch slot, shapes (R,) (eq. 81-83)."""

    chance: FloatArray
    """Probability that a request must queue for a slot."""
    wait_ms: FloatArray
    """Mean queueing time of the requests that queue [ms]."""
    variance: FloatArray
    """Variance of the number of requests in the replica, including queued ones."""
    batch_variance: FloatArray
    """Variance of the number of requests in the batch."""

    @classmethod
    def of(
        cls,
        replicas: ReplicaArrays,
        rate: FloatArray,
        largest: FloatArray,
        found: Iteration,
        own_ms: FloatArray,
    ) -> Self:
        """Compute the queueing, with a gamma-distributed number of requests that is truncated at the slots.

        Args:
            replicas: R replicas.
            rate: arrival rate [1/ms].
            largest: rate with all batch slots occupied [1/ms].
            found: mean iterations of the replicas.
            own_ms: prefill time of a prompt [ms].
        """
        from scipy.special import gammainc, gammaln

        load = np.minimum(rate / largest, MAX_LOAD)
        inside = rate * (own_ms + replicas.steps * found.mean_ms)
        spread = np.maximum(dispersion(inside, replicas.arrival_scv), MIN_DISPERSION)
        # Only the fraction base/mean of an iteration does not grow with the batch (eq. 81).
        standing = replicas.times.standing_ms(found.seen)
        variance = spread * inside * replicas.alike_ms(found) / np.maximum(standing, 1e-12)
        shape, scale = inside**2 / variance, variance / inside
        full = replicas.places / scale
        log_density = (shape - 1) * np.log(full) - full - gammaln(shape) - np.log(scale)
        tail = np.exp(log_density) * (replicas.arrival_scv + 1) / 2 / (1 - load)
        # Slots become free as requests leave; far from saturation, at least half the maximum rate is used.
        leaving = np.maximum(rate, largest / 2)
        spread_of_both = np.maximum(replicas.arrival_scv, MIN_SCV) + replicas.answer_scv
        wait = spread_of_both / 2 / (1 - load) / leaving
        below = gammainc(shape, full)
        with_place = _variance_cut(shape, scale, replicas.places)
        return cls(tail / np.maximum(below + tail, 1e-300), wait, variance, with_place)


def _variance_cut(shape: FloatArray, scale: FloatArray, most: FloatArray) -> FloatArray:
    """Return the variance of the minimum of a gamma variable and a limit (eq. 129)."""
    from scipy.special import gammainc, gammaincc

    full = most / scale
    mean = shape * scale * gammainc(shape + 1, full) + most * gammaincc(shape, full)
    square = shape * (shape + 1) * scale**2 * gammainc(shape + 2, full) + most**2 * gammaincc(shape, full)
    return np.asarray(np.maximum(square - mean**2, 0.0))


@dataclass(frozen=True, slots=True)
class Latencies(RowArrays):
    """Latency distributions of R replicas, as their clients see them; shapes (R,)."""

    prefill_ms: FloatArray
    """Prefill time of a prompt [ms]."""
    turn_ms: FloatArray
    """Mean time from arrival to the start of the prefill, including queueing for a batch slot [ms]."""
    client_ms: FloatArray
    """Delay between the engine and the client [ms]."""
    itl_ms: FloatArray
    """Mean inter-token latency of an output [ms]."""
    least_ttft_ms: FloatArray
    turn_mean_ms: FloatArray
    turn_variance: FloatArray
    """Variance of the TTFT above its minimum, without queueing for a batch slot [ms²]."""
    place_chance: FloatArray
    place_wait_ms: FloatArray
    least_itl_ms: FloatArray
    itl_variance: FloatArray
    most_itl_ms: FloatArray
    """Time of a full iteration [ms]: an upper bound on the mean ITL of any output."""
    e2e_ms: FloatArray
    e2e_variance: FloatArray

    @classmethod
    def of(
        cls, replicas: ReplicaArrays, rate: FloatArray, found: Iteration, prompts: Prompts, places: BatchSlots
    ) -> Self:
        """Compute the latencies that clients see (eq. 78, 79, 84-88).

        Args:
            replicas: R replicas.
            rate: arrival rate [1/ms].
            found: mean iterations.
            prompts: service of prompts in the replicas.
            places: queueing of requests for batch slots.
        """
        # Means: a request queues for a slot, waits for its prefill, and then decodes.
        steps = replicas.steps
        place_wait = places.chance * places.wait_ms
        turn = prompts.wait_ms + place_wait
        ttft = prompts.own_ms + turn
        itl, of_tokens = _itl(replicas, rate, found, prompts, ttft)
        client = replicas.client.ms(found.decodes, itl, rate, replicas.arrival_scv)
        # Distributions: the TTFT is gamma-distributed above its minimum. The ITL is between that of an idle
        # replica and that of an iteration with two standard deviations more requests and a full token budget.
        least = np.minimum(prompts.least_ms, 0.999 * prompts.own_ms)
        variance = prompts.wait_variance + prompts.own_variance
        base = replicas.times.standing_ms(0.0)
        itl_variance, of_tokens_variance = _itl_variance(replicas, rate, found, prompts, places)
        crowd = np.minimum(found.decodes + 2 * np.sqrt(places.variance), replicas.places)
        budget = np.maximum(replicas.budget - crowd, 1.0)
        # The queueing time for a slot is exponential for requests that queue, and 0 for others.
        place_variance = np.maximum(2 * places.chance * places.wait_ms**2 - place_wait**2, 0.0)
        answer = replicas.answer_scv * (steps + 1) ** 2
        return cls(
            prefill_ms=prompts.own_ms,
            turn_ms=turn,
            client_ms=client,
            itl_ms=itl,
            least_ttft_ms=least + client,
            turn_mean_ms=prompts.own_ms + prompts.wait_ms - least,
            turn_variance=variance,
            place_chance=places.chance,
            place_wait_ms=places.wait_ms,
            least_itl_ms=MIN_ITL_SHARE * np.minimum(base, itl),
            itl_variance=itl_variance,
            most_itl_ms=np.maximum(replicas.iteration_ms(crowd, budget), itl),
            e2e_ms=ttft + steps * of_tokens + client,
            e2e_variance=variance + place_variance + of_tokens**2 * answer + steps**2 * of_tokens_variance,
        )

    @property
    def ttft_ms(self) -> FloatArray:
        """Mean TTFT [ms]."""
        return self.prefill_ms + self.turn_ms + self.client_ms

    # --- distributions -------------------------------------------------------------------------------

    @property
    def _turn(self) -> Gamma:
        return Gamma(self.turn_mean_ms, self.turn_variance)

    @property
    def _interval(self) -> Gamma:
        return Gamma(self.itl_ms - self.least_itl_ms, self.itl_variance)

    @property
    def _life(self) -> Lognormal | Gamma:
        return Lognormal(self.e2e_ms, self.e2e_variance)

    def place_beyond(self, wait_ms: FloatArray) -> FloatArray:
        """Return P(queueing time > `wait_ms`) over the requests that queue for a batch slot."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-wait_ms / self.place_wait_ms))

    def place_quantile(self, one_in: FloatArray) -> FloatArray:
        """Return the queueing time [ms] that one in `one_in` of the requests that queue for a slot exceed."""
        return np.asarray(np.log(one_in) * self.place_wait_ms)

    def ttft_beyond(self, ttft_ms: FloatArray) -> FloatArray:
        """Return P(TTFT > `ttft_ms`) over all requests, of which some queue for a batch slot (eq. 85)."""
        rest = ttft_ms - self.least_ttft_ms
        turn = self._turn.survival(rest)
        tail = self.place_beyond(np.maximum(rest - self.turn_mean_ms, 0.0))
        return np.where(rest < 0, 1.0, turn + self.place_chance * np.maximum(tail - turn, 0.0))

    def ttft_quantile(self, share: float) -> FloatArray:
        """Return the TTFT that a share of requests does not exceed [ms]."""
        found = self.least_ttft_ms + self._turn.quantile(share)
        # If too few requests queue for a slot to exceed the quantile of the others, that is the quantile.
        exceeded = self.ttft_beyond(found) > (1 - share) * (1 + QUANTILE_WIDTH)
        rows = np.flatnonzero((self.place_chance > MIN_SHARE) & exceeded)
        if len(rows):
            some = self.take(rows)
            late = some.place_quantile(np.maximum(2 * some.place_chance / (1 - share), 1.0))
            high = some.least_ttft_ms + np.maximum(
                some._turn.quantile((1 + share) / 2),  # noqa: SLF001  of its own class
                some.turn_mean_ms + late,
            )
            excess = _Beyond(some, 1 - share)
            ends = np.stack((found[rows], high))
            values = np.stack((excess(ends[0]), excess(ends[1])))
            brackets, values = closed_brackets(excess, ends, values, QUANTILE_WIDTH)
            found[rows] = zeros_or(brackets.max(axis=0), brackets, values)
        return found

    def itl_beyond(self, itl_ms: FloatArray) -> FloatArray:
        """Return P(mean ITL of an output > `itl_ms`) over all requests (eq. 86)."""
        found = self._interval.survival(itl_ms - self.least_itl_ms)
        return np.where(itl_ms >= self.most_itl_ms, 0.0, found)

    def itl_quantile(self, share: float) -> FloatArray:
        """Return the mean ITL of an output that a share of requests does not exceed [ms]."""
        found = self.least_itl_ms + self._interval.quantile(share)
        return np.minimum(found, self.most_itl_ms)

    def e2e_beyond(self, e2e_ms: FloatArray) -> FloatArray:
        """Return P(time to the last token > `e2e_ms`) over all requests (eq. 87)."""
        return self._life.survival(e2e_ms)

    def e2e_quantile(self, share: float) -> FloatArray:
        """Return the time to the last token that a share of requests does not exceed [ms]."""
        return self._life.quantile(share)


@dataclass(frozen=True, slots=True)
class _Beyond:
    """Function whose root is a TTFT quantile: log of P(longer TTFT) divided by a given probability."""

    latencies: Latencies
    share: float

    def take(self, rows: IntArray) -> "_Beyond":
        return _Beyond(self.latencies.take(rows), self.share)

    def __call__(self, x: FloatArray, /) -> FloatArray:
        return np.log(np.maximum(self.latencies.ttft_beyond(x), 1e-300) / self.share)


def _itl(
    replicas: ReplicaArrays, rate: FloatArray, found: Iteration, prompts: Prompts, ttft_ms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean inter-token latency [ms] (eq. 78), averaged over outputs and over tokens.

    In addition to the mean iteration, an output is delayed by prompts that arrived during its prefill, and by
    the rest of its burst of arrivals. Both have more effect on short outputs.
    """
    scv, steps, mean = replicas.arrival_scv, replicas.steps, found.mean_ms
    longest, spread_over = np.maximum(prompts.longest_ms, mean), np.maximum(steps, 1.0)
    turn = prompts.own_ms + prompts.wait_ms
    left = prompts.share * turn / (1 - np.minimum(prompts.share, 0.95)) * (1 - mean / longest)
    # E[1/O]·E[O] of short outputs exceeds 1 by about its squared coefficient of variation.
    of_answers = np.minimum(mean + left * (1 + replicas.answer_scv) / spread_over, longest)
    of_tokens = np.minimum(mean + left / spread_over, longest)
    after = dispersion(rate * (ttft_ms + steps * mean), scv)
    after = (after - dispersion(rate * prompts.found_ms / 2, scv)) / 2 - np.where(prompts.apart, 0.0, 1.0)
    burst = np.where(scv > 1, np.maximum(after, 0.0) * prompts.stall_ms / spread_over, 0.0)
    even = scv <= NEARLY_EVEN
    return np.where(even, mean, of_answers + burst), np.where(even, mean, of_tokens + burst)


def _itl_variance(
    replicas: ReplicaArrays, rate: FloatArray, found: Iteration, prompts: Prompts, places: BatchSlots
) -> tuple[FloatArray, FloatArray]:
    """Return the variance of the mean ITL [ms²], over requests and over tokens (eq. 79).

    Iterations differ in the number of requests, in context lengths, and in prompts. A short output averages
    over few iterations, so the variance over requests is larger than that over tokens.
    """
    steps, answer_scv = replicas.steps, replicas.answer_scv
    standing = replicas.times.standing_ms(found.seen)
    alike = replicas.alike_ms(found)
    per_decode = (alike - standing) / found.seen
    read_square = replicas.times.kv_read_per_token_ms**2
    inside = rate * steps * alike * alike / np.maximum(standing, 1e-12)
    averaged = FIXED_LIFE + (RANDOM_LIFE - FIXED_LIFE) * np.minimum(answer_scv, 1.0)
    averaged *= places.batch_variance / np.maximum(places.variance, 1e-12)
    # Other requests change slowly, so their variation averages out only partly; the own context does not
    # change.
    batch = averaged * (per_decode**2 * places.variance + read_square * replicas.context_variance * inside)
    batch += read_square * replicas.own_context_variance
    stall = prompts.stall_ms**2 * (1 + replicas.prompt_scv)
    life = rate * steps * found.mean_ms
    stalls = rate * found.mean_ms * stall * dispersion(life, replicas.arrival_scv) / np.maximum(steps, 1.0)
    stalls /= (1 - np.minimum(prompts.share, 0.95)) ** 2
    return batch + stalls * (1 + answer_scv), batch + stalls
