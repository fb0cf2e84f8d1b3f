"""Queue model of prefill replicas: batches of short prompts and chunks of long ones, without decodes.

Two waiting times are computed: with a short queue, prompts that arrive during an iteration are computed
together in the next one (gated); with a long queue, iterations are full. Arrays have shape (R,), those of
points (R, H); times are in ms and rates in requests/ms. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, RowArrays
from optimizer.queueing.continuous.arrivals import MIN_SCV, dispersion, load_found
from optimizer.queueing.continuous.replicas import column
from optimizer.queueing.continuous.schedulers import joined
from optimizer.queueing.disaggregated.points import LengthPoints
from optimizer.timing.engine import IterationTimes

FIRST_ROUNDS, NEWTON_ROUNDS, ROUNDS = 4, 40, 2000
"""Damped rounds before the steps of Newton's method, their largest number, and that of all rounds: where
Newton's method does not converge, damped rounds do.
"""
CONVERGED = 1e-10
"""Relative difference of a fixed point at which the iteration ends, for each replica by itself."""
STEP = 1e-6
"""Relative step of numerical derivatives."""
MAX_LOAD = 0.9999
MAX_GROWTH = 0.98
"""Largest number of prompts that arrive while one more prompt is computed, which the formulas use."""


_Moments = tuple[FloatArray, FloatArray]
"""Mean and variance of the number of prompts in an iteration."""


class PromptBatches(NamedTuple):
    """Iterations that compute the prompts that arrived during the one before; shapes (R,)."""

    prompts: FloatArray
    """Mean number of prompts in an iteration."""
    seen: FloatArray
    """Mean number of prompts in the iteration of a prompt, with itself: E[N²]/E[N]."""
    mean_ms: FloatArray
    """Mean time of an iteration [ms]."""
    variance: FloatArray
    """Variance of this time [ms²]."""
    slope_ms: FloatArray
    """Time that one more prompt adds [ms]."""
    idle: FloatArray
    """Probability that no prompt arrives during an iteration."""


class PromptWaits(NamedTuple):
    """Waiting times before prefills at a rate, shapes (R,)."""

    mean_ms: FloatArray
    variance: FloatArray
    load: FloatArray
    """Load of the queue of prompts."""
    service_scv: FloatArray
    """Squared coefficient of variation of the service times of prompts in full iterations."""
    prompts: FloatArray
    """Mean number of prompts that are computed together, as one of them sees it."""

    def beside(self, other: _Moments, places: FloatArray) -> "PromptWaits":
        """Return the waits with that for memory (eq. 313).

        In memory for one prompt, it includes the wait for the prefill; otherwise both add up.

        Args:
            other: mean and variance of the wait for memory.
            places: number of prompts that the memory holds.
        """
        own = self.mean_ms, self.variance
        longest, apart = joined(own, other), np.clip(places - 1, 0.0, 1.0)
        both = (x + y for x, y in zip(own, other, strict=True))
        mean, variance = (x + apart * (y - x) for x, y in zip(longest, both, strict=True))
        alone = other[0] == 0
        return self._replace(
            mean_ms=np.where(alone, self.mean_ms, mean), variance=np.where(alone, self.variance, variance)
        )


@dataclass(frozen=True, slots=True)
class PrefillReplicas(RowArrays):
    """R prefill replicas with their prompts."""

    times: IterationTimes
    points: LengthPoints
    budget: FloatArray
    """M: token budget of an iteration."""
    tokens: FloatArray
    """I: mean number of tokens to compute."""
    pairs: FloatArray
    """Mean number of pairs of a computed token and an earlier one."""
    tokens_variance: FloatArray
    pairs_variance: FloatArray
    covariance: FloatArray
    """Covariance of tokens and pairs."""
    own_ms: FloatArray
    """Prefill time of each point alone [ms], shape (R, H): full chunks and the rest (eq. 289)."""

    @classmethod
    def of(cls, times: IterationTimes, points: LengthPoints, budget: FloatArray) -> Self:
        """Create replicas with the moments of their prompts."""
        tokens, pairs = points.mean(points.computed), points.mean(points.pairs)
        more_tokens, more_pairs = points.computed - column(tokens), points.pairs - column(pairs)
        products = more_tokens**2, more_pairs**2, more_tokens * more_pairs
        of_tokens, of_pairs, of_both = map(points.mean, products)
        own = _alone_ms(times, points, budget)
        return cls(times, points, budget, tokens, pairs, of_tokens, of_pairs, of_both, own)

    def batch_ms(self, prompts: FloatArray) -> FloatArray:
        """Return the time of an iteration with a number of mean prompts [ms]."""
        return self.times.ms(0.0, 0.0, prompts * self.tokens, prompts, prompts * self.pairs)

    @property
    def full(self) -> FloatArray:
        """K: number of mean prompts that fill an iteration."""
        return self.budget / self.tokens

    @property
    def services_ms(self) -> FloatArray:
        """Time that a prompt of each point takes of full iterations [ms], shape (R, H)."""
        attention = self.times.prompt_attention_ms
        linear = (self.batch_ms(self.full) / self.full - attention * self.pairs) / self.tokens
        return np.asarray(column(linear) * self.points.computed + column(attention) * self.points.pairs)

    @property
    def largest_rate(self) -> FloatArray:
        """Rate with full iterations [requests/ms] (eq. 290)."""
        return np.asarray(self.full / self.batch_ms(self.full))

    def waits(self, rate: FloatArray, scv: FloatArray) -> PromptWaits:
        """Return the waiting times before the prefill (eq. 291-295).

        Args:
            rate: arrival rate of a replica [requests/ms].
            scv: squared coefficient of variation of the interarrival times at a replica.
        """
        scv = np.maximum(scv, MIN_SCV)
        own = self.points.mean(self.own_ms)
        batches = self.batches(rate, scv)
        gated = self._gated(rate, scv, batches, own)
        queue, load, service_scv = self._queue(rate, scv, batches)
        wait, variance = joined(gated, queue)
        return PromptWaits(wait, variance, load, service_scv, batches.seen)

    def batches(self, rate: FloatArray, scv: FloatArray) -> PromptBatches:
        """Return the fixed point of the prompts in an iteration, whose number has two values (eq. 291).

        It is the lowest one: damped rounds from one prompt increase, and Newton's method continues.
        """
        mean, variance = np.ones_like(rate), np.zeros_like(rate)
        rows = np.arange(len(rate))
        none = np.zeros((4, len(rate), 0))
        some = replace(self, points=LengthPoints(*none[1:]), own_ms=none[0])  # the moments suffice
        for number in range(ROUNDS):
            now = mean[rows], variance[rows]
            one, spacing = rate[rows], scv[rows]
            after = some.moments_after(one, spacing, *now)
            differ = [np.abs(y - x) > CONVERGED * np.maximum(x, 1.0) for x, y in zip(now, after, strict=True)]
            left = differ[0] | differ[1]
            if not left.any():
                break
            if not left.all():
                rows, some = rows[left], some.take(left)
                one, spacing, now, after = one[left], spacing[left], _taken(now, left), _taken(after, left)
            damped = (now[0] + after[0]) / 2, (now[1] + after[1]) / 2
            if FIRST_ROUNDS <= number < FIRST_ROUNDS + NEWTON_ROUNDS:
                damped = some.newton_step(one, spacing, now, after, damped)
            mean[rows], variance[rows] = damped
        batches, _ = self._of_number(mean, variance)
        idle, _ = self._none_arrive(rate, scv, batches)
        return batches._replace(idle=idle)

    def moments_after(
        self, rate: FloatArray, scv: FloatArray, prompts: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the number of prompts that arrive until the next iteration (eq. 291).

        The number is between 1 and a full iteration.
        """
        most = np.maximum(self.full, 1.0)
        batches, work = self._of_number(prompts, variance)
        idle, later = self._none_arrive(rate, scv, batches)
        arrivals = rate * batches.mean_ms
        growth = np.minimum(rate * batches.slope_ms, MAX_GROWTH)
        spread = rate**2 * work * prompts + dispersion(arrivals, scv) * arrivals
        spread = np.maximum(spread + idle * (1 - 2 * arrivals - idle), 0.0) / (1 - growth**2)
        return np.clip(arrivals + later, 1.0, most), np.minimum(spread, (prompts - 1) * (most - prompts))

    def newton_step(
        self, rate: FloatArray, scv: FloatArray, now: _Moments, after: _Moments, damped: _Moments
    ) -> _Moments:
        """Return mean and variance after a step of Newton's method, or `damped` where it is no step up.

        Args:
            rate: arrival rate of a replica [requests/ms].
            scv: squared coefficient of variation of the interarrival times at a replica.
            now: mean and variance of the number of prompts in an iteration.
            after: those that follow from `now`.
            damped: mean and variance to return otherwise.
        """
        most = np.maximum(self.full, 1.0)
        (mean, variance), two = now, np.tile(np.arange(len(rate)), 2)
        step = np.where(mean * (1 + STEP) > most, -STEP, STEP) * mean
        more = STEP * np.maximum(variance, mean)
        at = np.concatenate((mean + step, mean)), np.concatenate((variance, variance + more))
        of_mean, of_variance = self.take(two).moments_after(rate[two], scv[two], *at)
        (a, b), (c, d) = (
            (y.reshape(2, -1) - x) / (step, more) for x, y in zip(after, (of_mean, of_variance), strict=True)
        )
        a, d = a - 1, d - 1
        off, spread = after[0] - mean, after[1] - variance
        area = a * d - b * c
        fine = area > 0
        area = np.where(fine, area, 1.0)
        mean = np.where(fine, mean - (off * d - spread * b) / area, damped[0])
        variance = np.where(fine, variance - (a * spread - c * off) / area, damped[1])
        mean = np.clip(mean, 1.0, most)
        return mean, np.clip(variance, 0.0, np.maximum((mean - 1) * (most - mean), 0.0))

    def _of_number(self, prompts: FloatArray, variance: FloatArray) -> tuple[PromptBatches, FloatArray]:
        """Return the iterations whose number of prompts has a mean and a variance, and is at least 1.

        Returns:
            The iterations, and the variance of the time that a prompt adds to one [ms²].
        """
        attention = self.times.prompt_attention_ms
        of_token = self.times.compute_slope_ms(prompts * self.tokens)
        work = of_token**2 * self.tokens_variance + attention**2 * self.pairs_variance
        work += 2 * of_token * attention * self.covariance
        slope = self.tokens * of_token + attention * self.pairs
        slope += self.times.per_sequence_ms + self.times.per_prompt_ms
        below = np.minimum(np.sqrt(variance), np.maximum(prompts - 1, 0.0))
        above = np.where(below > 0, variance / np.maximum(below, 1e-12), 0.0)
        share = np.where(below + above > 0, below / np.maximum(below + above, 1e-12), 0.0)
        few, many = self.batch_ms(prompts - below), self.batch_ms(prompts + above)
        mean = (1 - share) * few + share * many
        spread = share * (1 - share) * (many - few) ** 2 + work * prompts
        return PromptBatches(
            prompts, prompts + variance / prompts, mean, spread, slope, np.zeros_like(mean)
        ), work

    @staticmethod
    def _none_arrive(
        rate: FloatArray, scv: FloatArray, batches: PromptBatches
    ) -> tuple[FloatArray, FloatArray]:
        """Return P(no arrival) in an iteration that begins at an arrival, and the mean idle time after it.

        The idle time is in units of the mean interarrival time.
        """
        from scipy.special import gammaincc

        arrivals, shape = rate * batches.mean_ms, 1 / scv
        idle = gammaincc(shape, shape * arrivals)
        later = gammaincc(shape + 1, shape * arrivals) - arrivals * idle
        relative = np.maximum(batches.variance / batches.mean_ms**2, 1e-12)
        least = np.exp(-np.log1p(arrivals * relative) / relative)
        return np.maximum(idle, least), np.maximum(later, least)

    def _gated(
        self, rate: FloatArray, scv: FloatArray, batches: PromptBatches, own: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of the wait for the iteration in progress and the next (eq. 292, 293).

        The own prefill is not counted.
        """
        mean, slope = batches.mean_ms, batches.slope_ms
        relative = batches.variance / mean**2
        found_ms = mean * (1 + relative)
        spread = dispersion(rate * mean, scv)
        busy = 1 - np.minimum(batches.idle / batches.prompts, 1.0)
        batch = self.batch_ms(rate * found_ms + spread)
        given = np.maximum(found_ms / 2 + batch - own, 0.0)
        found_variance = np.maximum(mean**2 * (1 + relative) * (1 + 2 * relative) - found_ms**2, 0.0)
        variance = (0.5 + rate * slope) ** 2 * found_variance + (found_ms**2 + found_variance) / 12
        variance += slope**2 * rate * found_ms * spread
        gated = busy * given
        return gated, np.maximum(busy * (given**2 + variance) - gated**2, 0.0)

    def _queue(
        self, rate: FloatArray, scv: FloatArray, batches: PromptBatches
    ) -> tuple[tuple[FloatArray, FloatArray], FloatArray, FloatArray]:
        """Return the wait in a queue of full iterations (eq. 294).

        Returns:
            Mean and variance of the wait, the load, and the squared coefficient of variation of the service.
        """
        services = self.services_ms
        service = self.points.mean(services)
        service_scv = np.maximum(self.points.mean(services**2) / service**2 - 1, 0.0)
        load = np.minimum(rate * service, MAX_LOAD)
        seen_load = load_found(load, scv)
        wait = seen_load / (1 - seen_load) * service * (scv + service_scv) / (scv + 1)
        full_ms = self.batch_ms(self.full)
        length = np.minimum(batches.mean_ms + batches.variance / batches.mean_ms, full_ms)
        end = np.where(
            self.full > 1, seen_load * np.maximum(length - service, 0.0) / 2, seen_load * full_ms / 2
        )
        third = load * self.points.mean(services**3) / service / (3 * (1 - load))
        third *= np.minimum(1.0, (scv + service_scv) / (1 + service_scv))
        square = np.maximum(2 * wait**2 / np.maximum(seen_load, 1e-300), 2 * wait**2 + third)
        return (wait + end, square - wait**2 + end**2 / 3), load, service_scv


def _alone_ms(times: IterationTimes, points: LengthPoints, budget: FloatArray) -> FloatArray:
    times = IterationTimes(*(column(values) for values in times.columns()))
    chunks = np.floor(points.computed / column(budget))
    rest = points.computed - chunks * column(budget)
    full = times.ms(0.0, 0.0, column(budget), 1.0)
    last = np.where(rest > 0, times.ms(0.0, 0.0, np.maximum(rest, 1e-9), 1.0), 0.0)
    return np.asarray(chunks * full + last + times.prompt_attention_ms * points.pairs)


def _taken(pair: _Moments, rows: BoolArray) -> _Moments:
    return pair[0][rows], pair[1][rows]
