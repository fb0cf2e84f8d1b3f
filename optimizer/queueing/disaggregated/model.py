"""Queue model of disaggregated serving: a pool of prefill replicas and a pool of decode replicas.

Rates are those of both pools together. Arrays have shape (R,), those of rows of loads (R, H); times are in
ms and rates in requests/ms unless stated. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple, Self

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
from optimizer.queueing.disaggregated.decode import (
    decode_queues,
    decode_rows,
    step_after_handover,
    with_first_interval,
)
from optimizer.queueing.disaggregated.handover import Handover, LinkTimes
from optimizer.queueing.disaggregated.points import LengthPoints, divided, rows_of_law
from optimizer.queueing.disaggregated.prefill import PrefillReplicas, PromptWaits
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import MS_PER_S, OwnArrays, QueueModel, ReplicaLimits, Variability
from optimizer.queueing.shapes import ShapeRows, row_sum
from optimizer.timing.engine import EngineLaw
from optimizer.timing.law import Law


@dataclass(frozen=True, slots=True)
class PoolArrays(OwnArrays):
    """R pairs of pools, shapes (R,)."""

    prefill_replicas: FloatArray
    decode_replicas: FloatArray
    round_robin: BoolArray
    """Mask of the pairs whose prefill replicas get prompts in turn, not at random."""
    seeded: BoolArray
    """Mask of the pairs in which the prefill replica sends the first token, and decoding goes on after it."""
    handover: Handover


@dataclass(frozen=True, slots=True)
class DisaggregatedPerformance(ContinuousPerformance):
    """Long-run means of R pairs of pools, with the parts of the TTFT, which add up to it."""

    prefill_wait_ms: FloatArray
    """Mean wait before the prefill [ms]."""
    transfer_ms: FloatArray
    """Mean time on the link after the prefill, with its wait [ms]."""
    handover_ms: FloatArray
    """Fixed time of the handover [ms]."""
    first_step_ms: FloatArray
    """Mean time from the end of the handover to the first token [ms]; 0 if the prefill replica sends it."""
    prefill_load: FloatArray
    """Load of a prefill replica: its rate over its largest rate."""
    decode_load: FloatArray
    """Load of a decode replica: its rate over its largest rate."""


class PrefillArrivals(NamedTuple):
    """Arrivals at the prefill replicas, shapes (R,)."""

    rate: FloatArray
    """Rate of one replica [requests/ms]."""
    scv: FloatArray


@dataclass(frozen=True, slots=True)
class DisaggregatedQueues(QueueModel):
    """Queue model of R pairs of pools."""

    name: ClassVar[str] = "disaggregated"
    takes_variability: ClassVar[bool] = True
    takes_shapes: ClassVar[bool] = True
    pools: PoolArrays
    prefill: PrefillReplicas
    decode: ContinuousQueues
    rows: ShapeRows
    """Rows of the loads, without variation of the computed tokens."""
    arrival_scv: FloatArray
    """Squared coefficient of variation of the interarrival times of both pools."""

    @classmethod
    def supports_measure(cls, measure: TargetMeasure) -> bool:
        """Return whether the model computes a target measure: all means, and percentiles of latencies."""
        return ContinuousQueues.supports_measure(measure)

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:
        """Create the pairs of pools; `limits` are those of a decode replica."""
        assert isinstance(law, EngineLaw)
        assert isinstance(limits.own, PoolArrays)
        pools = limits.own
        rows = divided(rows_of_law(law, variability))
        prefill = PrefillReplicas.of(law.iterations, LengthPoints.of(rows), law.max_num_tokens)
        answered = np.where(pools.seeded[:, np.newaxis], np.maximum(rows.answer - 1, 1.0), rows.answer)
        decode = decode_queues(law, decode_rows(replace(rows, answer=answered)), variability, limits)
        return cls(pools, prefill, decode, rows, variability.arrival_cv**2)

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""
        return EngineLaw

    @property
    def prefill_rate_rps(self) -> FloatArray:
        """Largest rate of a prefill replica and its link [requests/s], shape (R,) (eq. 290, 297)."""
        prefill = self.prefill
        rate = self.pools.handover.largest_rate(prefill.points, prefill.own_ms, prefill.largest_rate)
        return rate * MS_PER_S

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return MIN_LOAD * self.stable_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate of both pools [requests/s], shape (R,)."""
        prefill = self.pools.prefill_replicas * self.prefill_rate_rps
        decode = self.pools.decode_replicas * self.decode.largest_rate * MS_PER_S
        return np.asarray((1 - STABILITY_MARGIN) * np.minimum(prefill, decode))

    def analyze(self, rate_rps: FloatArray) -> DisaggregatedPerformance:
        """Return the metrics at arrival rates of both pools > 0, shape (R,) (eq. 291-301)."""
        pools, rate = self.pools, np.minimum(rate_rps, self.stable_rate_rps) / MS_PER_S
        spread = np.where(pools.round_robin, 0.0, 1 - 1 / pools.prefill_replicas)
        arrivals = PrefillArrivals(
            rate / pools.prefill_replicas, spread + self.arrival_scv / pools.prefill_replicas
        )
        waits = self.prefill.waits(arrivals.rate, arrivals.scv)
        service = 1 / self.prefill.largest_rate
        points, own = self.prefill.points, self.prefill.own_ms
        rest, services = pools.handover.rest_ms(points, own), (service, waits.service_scv)
        link = pools.handover.link(points, rest, arrivals.rate, waits.prompts, services)
        decode = self._decode(rate, arrivals.scv, waits, service)
        latencies = self._latencies(waits, link, decode.latencies)
        ttft, e2e = latencies.ttft_ms, latencies.e2e_ms
        transfer = points.mean(link.rest_ms) + link.wait_ms
        prefill = points.mean(own)
        means = {field.name: getattr(decode, field.name) for field in fields(ContinuousPerformance)}
        means |= {
            "offered_rps": rate_rps,
            "throughput_rps": rate * MS_PER_S,
            "response_ms": e2e,
            "wait_ms": latencies.turn_ms,
            "service_ms": e2e - latencies.turn_ms - latencies.client_ms,
            "prefill_ms": prefill,
            "ttft_ms": ttft,
            "itl_ms": latencies.itl_ms,
            "in_service": decode.in_service,
            "loss": np.maximum(1 - rate * MS_PER_S / rate_rps, 0.0),
            "latencies": latencies,
        }
        return DisaggregatedPerformance(
            **means,
            prefill_wait_ms=waits.mean_ms,
            transfer_ms=transfer,
            handover_ms=pools.handover.fixed_ms,
            first_step_ms=np.where(
                pools.seeded, 0.0, ttft - waits.mean_ms - prefill - transfer - pools.handover.fixed_ms
            ),
            prefill_load=arrivals.rate * MS_PER_S / self.prefill_rate_rps,
            decode_load=rate / pools.decode_replicas / self.decode.largest_rate,
        )

    def _decode(
        self, rate: FloatArray, scv: FloatArray, waits: PromptWaits, service_ms: FloatArray
    ) -> ContinuousPerformance:
        """Return the performance of a decode replica behind the prefill replicas (eq. 299).

        Prefill replicas smooth bursts, over times that are short compared with those in which their queues
        change; over longer times the arrivals are those at the source.
        """
        mine = rate / self.pools.decode_replicas * MS_PER_S
        smoothed = waits.load**2 * waits.service_scv + (1 - waits.load**2) * scv
        relaxation = service_ms * (scv + waits.service_scv) / (1 - waits.load) ** 2
        behind = smoothed
        for _ in range(2):
            split = 1 + (behind - 1) / self.pools.decode_replicas
            replicas = replace(self.decode.replicas, arrival_scv=np.maximum(split, 0.0))
            performance = replace(self.decode, replicas=replicas).analyze(mine)
            life = replicas.steps * performance.itl_ms
            behind = smoothed + (self.arrival_scv - smoothed) * life / np.maximum(life + relaxation, 1e-300)
        return performance

    def _latencies(self, waits: PromptWaits, link: LinkTimes, decode: Latencies) -> Latencies:
        """Return the latencies of both pools; waits are added to those of a lone request (eq. 300, 301)."""
        own, fixed = self.prefill.own_ms, column(self.pools.handover.fixed_ms)
        before = own + link.rest_ms + fixed
        wait = column(waits.mean_ms + link.wait_ms)
        variance = column(waits.variance + link.wait_ms**2)
        of_step = step_after_handover(decode)
        seeded = self.pools.seeded[:, np.newaxis]
        first = Parts.single(
            before + np.where(seeded, 0.0, of_step.least_ms),
            wait + np.where(seeded, 0.0, of_step.mean_ms),
            variance + np.where(seeded, 0.0, of_step.variance),
        )
        after = np.where(seeded & (self.rows.answer <= 1), 0.0, decode.e2e_rows_ms)
        e2e = before + wait + after
        waiting = waits.mean_ms + np.where(self.pools.seeded, 0.0, decode.turn_ms)
        weight = self.rows.weight
        step_ms = np.where(self.pools.seeded, 0.0, decode.prefill_ms)
        return replace(
            with_first_interval(decode, self.rows, self.pools.seeded),
            prefill_ms=row_sum(weight * before) + link.wait_ms + step_ms,
            turn_ms=waiting,
            client_ms=np.where(self.pools.seeded, 0.0, decode.client_ms),
            place_chance=np.where(self.pools.seeded, 0.0, decode.place_chance),
            e2e_ms=row_sum(weight * e2e),
            first=first,
            e2e_rows_ms=e2e,
            e2e_variance=decode.e2e_variance + variance,
        )
