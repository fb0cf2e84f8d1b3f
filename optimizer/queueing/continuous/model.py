"""Queue model of continuous batching: means and percentiles of R replicas at given rates.

A replica computes iterations; requests queue for a batch slot, and their prompts queue for an iteration. The
model solves for the mean iteration, then approximates both queueing times by two moments. The derivation is
new, and was checked against simulation (docs/fidelity.md); docs/math.md has the equations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.queueing.continuous.latencies import BatchSlots, Latencies
from optimizer.queueing.continuous.replicas import Iteration, ReplicaArrays
from optimizer.queueing.continuous.schedulers import SCHEDULERS, Scheduler
from optimizer.queueing.measures import LATENCIES, TargetMeasure
from optimizer.queueing.performance import MS_PER_S, Performance, QueueModel, ReplicaLimits, Variability
from optimizer.queueing.roots import closed_brackets, zeros_or
from optimizer.timing.engine import EngineLaw
from optimizer.timing.law import Law

STABILITY_MARGIN = 1e-3
"""Margin below the maximum rate, as a share of it, up to which sizing searches."""
MIN_LOAD = 1e-6
"""Share of the maximum rate from which sizing searches."""
ITERATION_WIDTH = 1e-13
"""Relative width of the bracket at which the search for the mean iteration stops."""
SECANT_WIDTH = 4e-15
MAX_SECANTS = 12
GROWTH = 1.5
MAX_GROWTHS = 60
MIN_BEYOND, MAX_BEYOND = 1e-300, 1 - 1e-16
"""Range of the probability of exceeding a target, before its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class ContinuousPerformance(Performance):
    """Long-run means of R replicas, with their latency distributions."""

    latencies: Latencies

    @property
    def knows_percentiles(self) -> bool:
        """Whether percentiles of latencies are available; always true."""
        return True

    def figure(self, measure: TargetMeasure, rows: BoolArray | None = None) -> FloatArray:
        """Return the values of a target measure, a mean or a percentile, shape (R,)."""
        if measure.percentile is None:
            return super(ContinuousPerformance, self).figure(measure, rows)
        quantile = getattr(self.latencies, f"{measure.metric}_quantile")
        return np.asarray(quantile(measure.percentile / 100))

    def judged(self, measure: TargetMeasure, limits: FloatArray) -> FloatArray:
        """Return values that exceed their limits exactly where a target measure does, shape (R,) (eq. 260).

        P(X > limit) > 1 − p if and only if the percentile p exceeds the limit.
        """
        if measure.percentile is None:
            return self.figure(measure)
        values = np.zeros_like(limits)
        rows = np.flatnonzero(np.isfinite(limits))
        latencies = self.latencies if len(rows) == len(limits) else self.latencies.take(rows)
        beyond = getattr(latencies, f"{measure.metric}_beyond")(limits[rows])
        log_beyond = np.log(np.clip(beyond, MIN_BEYOND, MAX_BEYOND))
        values[rows] = limits[rows] * np.log1p(-measure.percentile / 100) / log_beyond
        return values

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:
        """Return the share of requests that exceed any limit, assuming independent latencies (eq. 88).

        Requests that wait long also tend to decode slowly, so the true share is not larger.
        """
        kept = np.ones(limits_ms.shape[1])
        for metric, limit in zip(LATENCIES, limits_ms, strict=True):
            kept *= 1 - getattr(self.latencies, f"{metric}_beyond")(limit)
        return 1 - kept


@dataclass(frozen=True, slots=True)
class ContinuousQueues(QueueModel):
    """Queue model of R replicas with continuous batching."""

    name: ClassVar[str] = "continuous"
    takes_variability: ClassVar[bool] = True
    replicas: ReplicaArrays
    whole_prompts: BoolArray
    """Mask of replicas that compute entire prompts first (`prefill-first`), shape (R,)."""
    max_queue: IntArray
    """Maximum number of requests that queue for a batch slot, shape (R,)."""
    max_batch: IntArray
    largest_rate: FloatArray
    """Rate with all batch slots occupied [requests/ms], shape (R,)."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether the model computes a target measure: all means, and percentiles of latencies."""
        return measure.percentile is None or measure.metric in LATENCIES

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create the replicas, and compute the rate with all batch slots occupied (eq. 80)."""
        assert isinstance(law, EngineLaw)
        replicas = ReplicaArrays.of(law, variability, limits)
        whole = law.prefills_first
        largest = np.zeros(len(whole))
        for scheduler, rows in _by_scheduler(whole):
            largest[rows] = scheduler.largest_rate(replicas.take(rows))
        return cls(replicas, whole, limits.max_queue, limits.max_batch, largest)

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return MIN_LOAD * self.largest_rate * MS_PER_S

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.largest_rate * MS_PER_S

    @property
    def is_non_monotone(self) -> BoolArray:
        """Mask of rows in which a latency can fall as the rate grows: more prompts share an iteration."""
        return self.whole_prompts | (self.replicas.client.pause_offset_ms > 0)

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses; all engine models have the same coefficients."""
        return EngineLaw

    def analyze(self, rate_rps: FloatArray) -> ContinuousPerformance:
        """Return the metrics at arrival rates `rate_rps` > 0, shape (R,) (eq. 68-88, 122).

        Above the maximum stable rate, the surplus is rejected, and latencies are those near that rate with an
        unlimited queue.
        """
        rate = np.minimum(rate_rps / MS_PER_S, self.largest_rate)
        # Rows with the same scheduler are analysed together.
        parts = [
            (rows, _latencies(scheduler, self.replicas.take(rows), rate[rows], self.largest_rate[rows]))
            for scheduler, rows in _by_scheduler(self.whole_prompts)
        ]
        latencies = parts[0][1] if len(parts) == 1 else _merged(parts)
        wait, itl = latencies.turn_ms, latencies.itl_ms
        service = latencies.e2e_ms - latencies.client_ms - wait
        # A full queue rejects requests. The queueing time is exponential, so the probability that the queue
        # exceeds its limit is geometric (eq. 122).
        in_queue = rate * latencies.place_chance * latencies.place_wait_ms
        waiting = latencies.place_wait_ms * rate
        beyond = latencies.place_chance * np.exp(-self.max_queue / np.maximum(waiting, 1e-300))
        idle = 1 - rate / self.largest_rate
        turned_away = idle * beyond / np.maximum(1 - (1 - idle) * beyond, 1e-300)
        throughput = rate * MS_PER_S * (1 - turned_away)
        loss = np.where(rate_rps > rate * MS_PER_S * (1 + 1e-12), 1 - throughput / rate_rps, turned_away)
        in_service = np.minimum(rate * service, self.replicas.places)
        return ContinuousPerformance(
            offered_rps=rate_rps,
            throughput_rps=throughput,
            response_ms=latencies.e2e_ms,
            wait_ms=wait,
            service_ms=service,
            prefill_ms=latencies.prefill_ms,
            ttft_ms=latencies.ttft_ms,
            itl_ms=itl,
            in_service=in_service,
            in_queue=in_queue,
            utilization=in_service / self.max_batch,
            loss=loss,
            p_empty=np.exp(-rate * service),
            p_full=loss,
            latencies=latencies,
        )


def _by_scheduler(whole_prompts: BoolArray) -> Iterator[tuple[Scheduler, IntArray]]:
    for scheduler, mine in zip(SCHEDULERS.values(), (~whole_prompts, whole_prompts), strict=True):
        rows = np.flatnonzero(mine)
        if len(rows):
            yield scheduler, rows


def _merged(parts: list[tuple[IntArray, Latencies]]) -> Latencies:
    """Merge the latencies of several groups of rows, in the original order of the rows."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    columns = zip(*(part.columns() for _, part in parts), strict=True)
    return Latencies(*map(np.concatenate, columns)).take(order)


def _latencies(
    scheduler: Scheduler, replicas: ReplicaArrays, rate: FloatArray, largest: FloatArray
) -> Latencies:
    found = _iterations(scheduler, replicas, rate)
    prompts = scheduler.prompts(replicas, rate, found)
    places = BatchSlots.of(replicas, rate, largest, found, prompts.own_ms)
    return Latencies.of(replicas, rate, found, prompts, places)


@dataclass(frozen=True, slots=True)
class _IterationResidual:
    """Function whose root is the mean iteration: log of the iteration time for a guess over the guess."""

    scheduler: Scheduler
    replicas: ReplicaArrays
    rate: FloatArray

    def take(self, rows: IntArray) -> Self:
        return type(self)(self.scheduler, self.replicas.take(rows), self.rate[rows])

    def __call__(self, x: FloatArray, /) -> FloatArray:
        return np.log(self.scheduler.iteration(self.replicas, self.rate, x).mean_ms / x)


def _iterations(scheduler: Scheduler, replicas: ReplicaArrays, rate: FloatArray) -> Iteration:
    """Return the mean iterations, as a fixed point of their length (eq. 70).

    The contents of an iteration are almost linear in its length, so secant steps converge fast. With
    `prefill-first` there can be two solutions, of which the shorter one is valid. If secants do not converge,
    the solution is bracketed.
    """
    guess, closed = _secants(scheduler, replicas, rate)
    rows = np.flatnonzero(~closed)
    if len(rows):
        guess[rows] = _bracketed(
            _IterationResidual(scheduler, replicas.take(rows), rate[rows]), replicas.take(rows)
        )
    return scheduler.iteration(replicas, rate, guess)


def _secants(scheduler: Scheduler, replicas: ReplicaArrays, rate: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return iteration lengths from secant steps from below [ms], and a mask of those that converged."""
    # From below, the first crossing is the shortest solution. Rows that step past it have not converged.
    before = replicas.iteration_ms(1.0)
    found_before = scheduler.iteration(replicas, rate, before).mean_ms
    guess = found_before
    found = scheduler.iteration(replicas, rate, guess).mean_ms
    sound = found_before >= before
    for _ in range(MAX_SECANTS):
        closed = np.abs(found - guess) <= SECANT_WIDTH * guess
        if (closed | ~sound).all():
            break
        # Secant of the resulting length over the guessed length; its slope must be below 1, the slope of the
        # diagonal.
        step = guess - before
        slope = (found - found_before) / np.where(step == 0, 1.0, step)
        sound &= closed | ((slope < 1) & (step != 0))
        moved = guess + (found - guess) / np.where(slope < 1, 1 - slope, 1.0)
        before, found_before = guess, found
        guess = np.where(closed | ~sound, guess, moved)
        found = scheduler.iteration(replicas, rate, guess).mean_ms
    closed = np.abs(found - guess) <= SECANT_WIDTH * guess
    return guess, sound & closed & scheduler.has_one_solution


def _bracketed(excess: "_IterationResidual", replicas: ReplicaArrays) -> FloatArray:
    """Return iteration lengths [ms] from brackets that grow from the shortest iteration."""
    low = 0.999 * replicas.iteration_ms(1.0)
    at_low = excess(low)
    high, at_high = low * np.exp(at_low), np.zeros_like(low)
    rows = np.arange(len(low))
    for _ in range(MAX_GROWTHS):
        high[rows] *= GROWTH
        at_high[rows] = excess.take(rows)(high[rows])
        rows = rows[at_high[rows] > 0]
        if not len(rows):
            break
    ends, values = np.stack((low, high)), np.stack((at_low, at_high))
    brackets, values = closed_brackets(excess, ends, values, ITERATION_WIDTH)
    return zeros_or(brackets.max(axis=0), brackets, values)
