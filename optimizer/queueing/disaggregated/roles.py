"""Queue models of the two pools for planning, where each replica is sized by itself.

Arrays have shape (R,), those of the rows of loads (R, H); times are in ms and rates in requests/ms unless
stated. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.queueing.continuous.distributions import Parts
from optimizer.queueing.continuous.latencies import Latencies
from optimizer.queueing.continuous.model import (
    MIN_LOAD,
    STABILITY_MARGIN,
    ContinuousPerformance,
    ContinuousQueues,
)
from optimizer.queueing.continuous.replicas import column
from optimizer.queueing.disaggregated.decode import decode_queues, decode_rows, with_first_interval
from optimizer.queueing.disaggregated.handover import Handover
from optimizer.queueing.disaggregated.memory import PromptMemory
from optimizer.queueing.disaggregated.points import LengthPoints, divided, rows_of_law
from optimizer.queueing.disaggregated.prefill import PrefillReplicas
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import MS_PER_S, OwnArrays, QueueModel, ReplicaLimits, Variability
from optimizer.queueing.shapes import ShapeRows
from optimizer.timing.engine import EngineLaw
from optimizer.timing.law import Law

DECODE_BINS = 4
"""Number of contexts of a decode replica into which a row that varies is divided."""


@dataclass(frozen=True, slots=True)
class RoleArrays(OwnArrays):
    """Handovers of R replicas with a role, shapes (R,)."""

    seeded: BoolArray
    """Mask of the replicas of servers whose prefill replica sends the first token."""
    handover: Handover
    after_ms: FloatArray
    """Time from the end of a handover until the decode replica has made its first step [ms]."""


@dataclass(frozen=True, slots=True)
class PrefillQueues(QueueModel):
    """Queue model of R prefill replicas with their links; TTFT ends with the handover."""

    name: ClassVar[str] = "prefill"
    takes_variability: ClassVar[bool] = True
    prefill: PrefillReplicas
    rows: ShapeRows
    """Rows of the loads, without variation of the computed tokens."""
    handover: Handover
    memory: PromptMemory
    after_ms: FloatArray
    """Time for which a KV cache is held after its handover [ms]."""
    arrival_scv: FloatArray
    max_batch: FloatArray
    largest_rate: FloatArray
    """Rate with full iterations, link or memory [requests/ms], shape (R,) (eq. 290, 297, 313)."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether the model computes a target measure: all means, and percentiles of latencies."""
        return ContinuousQueues.supports_measure(measure)

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create the replicas."""
        assert isinstance(law, EngineLaw)
        assert isinstance(limits.own, RoleArrays)
        rows = divided(rows_of_law(law, variability))
        points, capacity = LengthPoints.of(rows), limits.kv_capacity_tokens
        prefill = PrefillReplicas.of(law.iterations, points, np.minimum(law.max_num_tokens, capacity))
        memory, max_batch = PromptMemory.of(points, capacity), limits.max_batch.astype(np.float64)
        own = limits.own.handover, memory, limits.own.after_ms
        none = np.zeros_like(max_batch)
        return cls(prefill, rows, *own, variability.arrival_cv**2, max_batch, none).with_largest_rate()

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""
        return EngineLaw

    def with_largest_rate(self) -> Self:
        """Return the replicas with the largest rate that follows from their other values."""
        prefill, own = self.prefill, self.prefill.own_ms
        held = self._computed_ms(np.maximum(prefill.full, 1.0), 1.0)
        held += self.handover.rest_ms(prefill.points, own) + column(self.handover.fixed_ms + self.after_ms)
        rate = self.handover.largest_rate(prefill.points, own, prefill.largest_rate)
        return replace(self, largest_rate=np.minimum(rate, self.memory.largest_rate(held)))

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return MIN_LOAD * self.largest_rate * MS_PER_S

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.largest_rate * MS_PER_S

    def mix_of(self, row: int) -> tuple[bool, bool, float]:
        """Return that no mix is uncertain: prompts have no decodes beside them, and memory is counted."""
        return bool(self.rows.take(np.array([row])).varies[0]), False, 0.0

    def with_bandwidth(self, gbps: FloatArray) -> Self:
        """Return the replicas with links of other bandwidths [GB/s], shape (R,)."""
        return replace(self, handover=replace(self.handover, bandwidth=gbps)).with_largest_rate()

    def analyze(self, rate_rps: FloatArray) -> ContinuousPerformance:
        """Return the metrics at arrival rates `rate_rps` > 0, shape (R,) (eq. 291-297, 313)."""
        largest = self.largest_rate
        rate = np.minimum(rate_rps / MS_PER_S, (1 - STABILITY_MARGIN) * largest)
        latencies = self._latencies(rate)
        load, none = rate / largest, np.zeros_like(rate)
        return ContinuousPerformance(
            offered_rps=rate_rps,
            throughput_rps=rate * MS_PER_S,
            response_ms=latencies.e2e_ms,
            wait_ms=latencies.turn_ms,
            service_ms=latencies.prefill_ms,
            prefill_ms=latencies.prefill_ms,
            ttft_ms=latencies.ttft_ms,
            itl_ms=none,
            in_service=load * self.max_batch,
            in_queue=rate * latencies.turn_ms,
            utilization=load,
            loss=np.maximum(1 - rate * MS_PER_S / rate_rps, 0.0),
            p_empty=1 - load,
            p_full=none,
            latencies=latencies,
        )

    def _computed_ms(self, prompts: FloatArray, load: FloatArray | float) -> FloatArray:
        """Return the time from the first to the last iteration of a prompt of each point [ms] (eq. 312).

        Args:
            prompts: mean number of prompts in its iteration if that is not full.
            load: share of the prompts that find full iterations; if more prompts fit into the memory than
                into an iteration, these prompts also share a second one.
        """
        prefill, places = self.prefill, self.memory.places
        batch = prefill.batch_ms(np.minimum(prompts, places))
        alone = np.where(column(prompts) > 1, np.maximum(column(batch), prefill.own_ms), prefill.own_ms)
        full = column(prefill.batch_ms(prefill.full)) * (1 + prefill.points.computed / column(prefill.budget))
        shared = np.clip(places - np.maximum(prefill.full, 1.0), 0.0, 1.0) * load
        return np.asarray(alone + column(shared) * np.maximum(full - alone, 0.0))

    def _latencies(self, rate: FloatArray) -> Latencies:
        waits = self.prefill.waits(rate, self.arrival_scv)
        services = 1 / self.prefill.largest_rate, waits.service_scv
        points, own = self.prefill.points, self.prefill.own_ms
        link = self.handover.link(points, self.handover.rest_ms(points, own), rate, waits.prompts, services)
        least = own + link.rest_ms + column(self.handover.fixed_ms)
        held = (
            self._computed_ms(waits.prompts, waits.load) - own + least + column(link.wait_ms + self.after_ms)
        )
        waits = waits.beside(self.memory.wait(rate, self.arrival_scv, held), self.memory.places)
        wait, none = waits.mean_ms + link.wait_ms, np.zeros_like(rate)
        every, nothing = np.zeros_like(least), np.zeros_like(least)
        variance = every + column(waits.variance + link.wait_ms**2)
        mean = points.mean(least) + wait
        return Latencies(
            prefill_ms=points.mean(least) + link.wait_ms,
            turn_ms=waits.mean_ms,
            client_ms=none,
            itl_ms=none,
            place_chance=none,
            place_wait_ms=np.ones_like(rate),
            e2e_ms=mean,
            weight=self.rows.weight,
            decoding=self.rows.weight,
            shape=self.rows.shape,
            stalls_ms=own,
            first=Parts.single(least, every + column(wait), variance),
            interval=Parts.single(nothing, nothing, nothing),
            most_itl_ms=nothing,
            e2e_rows_ms=least + column(wait),
            e2e_variance=variance,
        )


@dataclass(frozen=True, slots=True)
class DecodeQueues(ContinuousQueues):
    """Queue model of R decode replicas; TTFT begins with the end of the handover.

    If the prefill replica sends the first token, TTFT is the time to the second one, which counts for the
    ITL.
    """

    name: ClassVar[str] = "decode"
    rows: ShapeRows
    """Rows of the loads."""
    seeded: BoolArray
    """Mask of the replicas of servers whose prefill replica sends the first token."""

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create the replicas."""
        assert isinstance(law, EngineLaw)
        assert isinstance(limits.own, RoleArrays)
        rows, seeded = divided(rows_of_law(law, variability), DECODE_BINS), limits.own.seeded
        answer = np.where(seeded[:, np.newaxis], np.maximum(rows.answer - 1, 1.0), rows.answer)
        queues = decode_queues(law, decode_rows(replace(rows, answer=answer)), variability, limits)
        return cls(
            replicas=queues.replicas,
            whole_prompts=queues.whole_prompts,
            max_queue=queues.max_queue,
            max_batch=queues.max_batch,
            largest_rate=queues.largest_rate,
            rows=rows,
            seeded=seeded,
        )

    def analyze(self, rate_rps: FloatArray) -> ContinuousPerformance:
        """Return the metrics at arrival rates `rate_rps` > 0, shape (R,) (eq. 298, 301)."""
        performance = ContinuousQueues.analyze(self, rate_rps)
        if not self.seeded.any():
            return performance
        latencies = with_first_interval(performance.latencies, self.rows, self.seeded)
        return replace(performance, itl_ms=latencies.itl_ms, latencies=latencies)
