"""The queue model `reference` of llm-inferno: a birth–death queue with service times at a constant batch.

docs/glossary.md explains llm-inferno. `ReplicaQueues` combines latency models with queues, for R rows at
once. Rates are requests per second in the interface and requests per millisecond inside. Equation numbers
refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray
from optimizer.queueing.birth_death import BirthDeathQueue
from optimizer.queueing.performance import MS_PER_S, Performance, QueueModel, ReplicaLimits, Variability
from optimizer.timing.law import Law, ServiceLaw

STABILITY_MARGIN = 1e-3
"""Sizing searches from this fraction of μ(1) up to this fraction below μ(N) (llm-inferno's ε)."""
MIN_RATE_RPS = 1e-290
"""Minimum rate, because the logarithm of rates must exist [requests/s]."""


@dataclass(frozen=True, slots=True)
class ReplicaQueues(QueueModel):
    """Queue model of R replicas, each with its latency model, batch limit N and queue capacity Q."""

    name: ClassVar[str] = "reference"
    means_only: ClassVar[bool] = True
    law: ServiceLaw
    queue: BirthDeathQueue
    single_rate_rps: FloatArray
    """μ(1): departure rate with one request [requests/s], shape (R,)."""
    full_rate_rps: FloatArray
    """μ(N): departure rate with a full batch [requests/s], shape (R,)."""

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:  # noqa: ARG003  Poisson arrivals
        """Create queues with the departure rates μ(n) = n / S(n) of every row up to its batch limit (eq. 9).

        Args:
            law: latency model of the R rows; every service time must be positive.
            variability: not used, because arrivals are Poisson and only mean lengths matter.
        """
        assert isinstance(law, ServiceLaw)
        max_batch = limits.max_batch
        first = np.cumsum(max_batch) - max_batch
        occupancy = np.arange(1, int(max_batch.sum()) + 1) - np.repeat(first, max_batch)
        rows = np.repeat(np.arange(len(max_batch)), max_batch)
        log_rates = np.log(occupancy / law.take(rows).service_time_ms(occupancy.astype(np.float64)))
        queue = BirthDeathQueue.from_rates(log_rates, max_batch, limits.max_queue)
        return cls(law, queue, np.exp(log_rates[first]) * MS_PER_S, np.exp(queue.log_full_rate) * MS_PER_S)

    @property
    def is_non_monotone(self) -> BoolArray:
        """Mask of rows whose number of prefill chunks changes below the batch limit, shape (R,)."""
        return self.law.is_non_monotone(self.queue.max_batch)

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return STABILITY_MARGIN * np.minimum(self.single_rate_rps, self.full_rate_rps)

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.full_rate_rps

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""
        return type(self.law)

    def columns(self) -> list[npt.NDArray[Any]]:
        """Return all arrays on which a row's results depend: parameters of the latency model, N and Q."""
        return [*self.law.columns(), self.queue.max_batch, self.queue.max_queue]

    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the long-run means at arrival rates `rate_rps` > 0, shape (R,) (eq. 10-21).

        Above the maximum stable rate, the queue stays full and rejects the surplus; the means are those of
        admitted requests.
        """
        rate = np.maximum(rate_rps, MIN_RATE_RPS) / MS_PER_S
        state = self.queue.solve(np.log(rate))
        throughput = rate * state.acceptance
        service = state.in_service / throughput
        wait = state.in_queue / throughput
        times = self.law.token_times(service, state.in_service, self.queue.max_batch)
        p_full = np.exp(state.log_p_full)
        return Performance(
            offered_rps=rate_rps,
            throughput_rps=throughput * MS_PER_S,
            response_ms=wait + service,
            wait_ms=wait,
            service_ms=service,
            prefill_ms=times.prefill_ms,
            ttft_ms=wait + times.first_token_ms,
            itl_ms=times.itl_ms,
            in_service=state.in_service,
            in_queue=state.in_queue,
            utilization=state.in_service / self.queue.max_batch,
            loss=p_full,
            p_empty=np.exp(state.log_p_empty),
            p_full=p_full,
        )
