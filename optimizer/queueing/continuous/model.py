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
from optimizer.queueing.continuous.iterations import mean_iterations
from optimizer.queueing.continuous.latencies import Latencies, intervals_of, merged
from optimizer.queueing.continuous.long_latencies import long_latencies
from optimizer.queueing.continuous.long_prompts import LONG_PROMPTS, LongPrompts
from optimizer.queueing.continuous.replicas import ReplicaArrays
from optimizer.queueing.continuous.schedulers import SCHEDULERS, Scheduler
from optimizer.queueing.continuous.slots import BatchSlots, requests_inside
from optimizer.queueing.measures import LATENCIES, LatencyName, TargetMeasure
from optimizer.queueing.performance import MS_PER_S, Performance, QueueModel, ReplicaLimits, Variability
from optimizer.queueing.shapes import shape_number
from optimizer.timing.engine import EngineLaw
from optimizer.timing.law import Law

STABILITY_MARGIN = 1e-3
"""Margin below the maximum rate, as a share of it, up to which sizing searches."""
MIN_LOAD = 1e-6
"""Share of the maximum rate from which sizing searches."""
MIN_SURVIVAL, MAX_SURVIVAL = 1e-300, 1 - 1e-16
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
        if measure.shape:
            latencies = self.latencies.of_shape(shape_number(measure.shape))
        elif measure.percentile is None:
            return super(ContinuousPerformance, self).figure(measure, rows)
        else:
            latencies = self.latencies
        if measure.percentile is None:
            return latencies.mean_ms(_latency(measure))
        if rows is None or rows.all():
            return latencies.quantile(_latency(measure), measure.percentile / 100)
        values = np.zeros(len(rows))
        if rows.any():
            values[rows] = latencies.take(rows).quantile(_latency(measure), measure.percentile / 100)
        return values

    def judged(self, measure: TargetMeasure, limits: FloatArray) -> FloatArray:
        """Return values that exceed their limits exactly where a target measure does, shape (R,) (eq. 260).

        P(X > limit) > 1 − p if and only if the percentile p exceeds the limit.
        """
        if measure.percentile is None:
            return self.figure(measure)
        values = np.zeros_like(limits)
        rows = np.flatnonzero(np.isfinite(limits))
        latencies = self.latencies if len(rows) == len(limits) else self.latencies.take(rows)
        if measure.shape:
            latencies = latencies.of_shape(shape_number(measure.shape))
        survival = latencies.survival(_latency(measure), limits[rows])
        log_survival = np.log(np.clip(survival, MIN_SURVIVAL, MAX_SURVIVAL))
        values[rows] = limits[rows] * np.log1p(-measure.percentile / 100) / log_survival
        return values

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:
        """Return the share of requests that exceed any limit, assuming independent latencies (eq. 88)."""
        return self.latencies.missed_share(limits_ms)


@dataclass(frozen=True, slots=True)
class ContinuousQueues(QueueModel):
    """Queue model of R replicas with continuous batching."""

    name: ClassVar[str] = "continuous"
    takes_variability: ClassVar[bool] = True
    takes_shapes: ClassVar[bool] = True
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
        for scheduler, rows in _by_scheduler(whole, replicas.mixes_long):
            largest[rows] = scheduler.largest_rate(replicas.take(rows))
        return cls(replicas, whole, limits.max_queue, limits.max_batch, largest)

    def mix_of(self, row: int) -> tuple[bool, bool, float]:
        """Return what makes predictions for the requests of a row uncertain, as `QueueModel.mix_of`."""
        replica = self.replicas.take(np.array([row]))
        rows = replica.rows
        held = np.where(rows.weight > 0, rows.computed + rows.stored + rows.answer, 0.0)
        share = float(held.max() / replica.free_tokens[0])
        return bool(rows.varies[0]), bool(replica.mixes_long[0]), share

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
        client = self.replicas.client
        return self.whole_prompts | (client.pause_offset_ms > 0) | (client.idle_offset_ms > 0)

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
            for scheduler, rows in _by_scheduler(self.whole_prompts, self.replicas.mixes_long)
        ]
        latencies = parts[0][1] if len(parts) == 1 else merged(parts)
        wait, itl = latencies.turn_ms, latencies.itl_ms
        service = latencies.e2e_ms - latencies.client_ms - wait
        # A full queue rejects requests. The queueing time is exponential, so the probability that the queue
        # exceeds its limit is geometric (eq. 122).
        in_queue = rate * latencies.place_chance * latencies.place_wait_ms
        waiting = latencies.place_wait_ms * rate
        survival = latencies.place_chance * np.exp(-self.max_queue / np.maximum(waiting, 1e-300))
        idle = 1 - rate / self.largest_rate
        turned_away = idle * survival / np.maximum(1 - (1 - idle) * survival, 1e-300)
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


def _by_scheduler(whole_prompts: BoolArray, mixes_long: BoolArray) -> Iterator[tuple[Scheduler, IntArray]]:
    """Yield the equations of each group of rows, with the indices of these rows."""
    mixed = mixes_long & ~whole_prompts
    groups = ~whole_prompts & ~mixed, whole_prompts, mixed
    for scheduler, mine in zip((*SCHEDULERS.values(), LONG_PROMPTS), groups, strict=True):
        rows = np.flatnonzero(mine)
        if len(rows):
            yield scheduler, rows


def _latencies(
    scheduler: Scheduler, replicas: ReplicaArrays, rate: FloatArray, largest: FloatArray
) -> Latencies:
    if isinstance(scheduler, LongPrompts):
        return long_latencies(scheduler, replicas, rate, largest)
    latencies = mean_iterations(scheduler, replicas, rate)
    prompts = scheduler.prompts(replicas, rate, latencies)
    number = requests_inside(replicas, rate, latencies, prompts.own_ms)
    places = BatchSlots.of(replicas, rate, largest, number)
    intervals = intervals_of(replicas, rate, latencies, prompts, places)
    return Latencies.of(replicas, rate, latencies, prompts, places, intervals)


def _latency(measure: TargetMeasure) -> LatencyName:
    """Return the latency of a measure."""
    return next(name for name in LATENCIES if name == measure.metric)
