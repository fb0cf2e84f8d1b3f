"""Queue model of static batching: requests that arrive during a batch wait for the next one.

The number of requests that wait at the end of each batch is a Markov chain. A batch lasts as long as its
longest output; this time is approximated by a gamma distribution, so the number of arrivals during it is
negative binomial. Means follow from renewal cycles between batches (eq. 120, 121).
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.performance import MS_PER_S, Performance, QueueModel, ReplicaLimits, Variability
from optimizer.timing.law import Law
from optimizer.timing.static import StaticLaw

STABILITY_MARGIN = 1e-3
"""Sizing searches from this fraction of the saturation throughput up to this fraction below it."""
MIN_SPREAD = 1e-2
"""Minimum coefficient of variation of the time of a batch."""
MAX_WAITING = 1024
"""Maximum queue length in the Markov chain; requests beyond it are rejected."""


@dataclass(frozen=True, slots=True)
class StaticQueues(QueueModel):
    """Queue model of R replicas with static batching; limits have shape (R,)."""

    name: ClassVar[str] = "static"
    own_variability: ClassVar[tuple[str, ...]] = ("outTokensCV",)
    law: StaticLaw
    max_batch: IntArray
    max_queue: IntArray

    @classmethod
    def of_law(cls, law: Law, limits: ReplicaLimits, variability: Variability) -> Self:  # noqa: ARG003  included in the law
        """Create a queue model of R replicas."""
        assert isinstance(law, StaticLaw)
        return cls(law, limits.max_batch, limits.max_queue)

    @property
    def law_type(self) -> type[Law]:
        """Type of latency model that this queue model uses."""
        return StaticLaw

    @property
    def full_rate_rps(self) -> FloatArray:
        """Saturation throughput [requests/s], shape (R,)."""
        batch = self.max_batch.astype(np.float64)
        return MS_PER_S * batch / self.law.service_time_ms(batch)

    @property
    def least_rate_rps(self) -> FloatArray:
        """Lowest rate at which sizing searches [requests/s], shape (R,)."""
        return STABILITY_MARGIN * self.full_rate_rps

    @property
    def stable_rate_rps(self) -> FloatArray:
        """Maximum stable rate [requests/s], shape (R,)."""
        return (1 - STABILITY_MARGIN) * self.full_rate_rps

    @property
    def longest_rate_rps(self) -> FloatArray:
        """Maximum rate with a steady state [requests/s], shape (R,): any, because queues are bounded."""
        return np.full(len(self.max_queue), np.inf)

    def analyze(self, rate_rps: FloatArray) -> Performance:
        """Return the long-run means at arrival rates > 0 [requests/s], shape (R,)."""
        performance = np.array(
            [self._row(row, rate / MS_PER_S) for row, rate in enumerate(rate_rps.tolist())]
        )
        wait, prefill, answer, in_service, served, lost, idle = performance.T
        steps = np.maximum(self.law.out_tokens - 1, 0.0)
        throughput = rate_rps * served / (served + lost)
        service = prefill + answer
        return Performance(
            offered_rps=rate_rps,
            throughput_rps=throughput,
            response_ms=wait + service,
            wait_ms=wait,
            service_ms=service,
            prefill_ms=prefill,
            ttft_ms=wait + prefill,
            itl_ms=np.where(steps > 0, answer / np.where(steps > 0, steps, 1.0), 0.0),
            in_service=in_service,
            in_queue=throughput * wait / MS_PER_S,
            utilization=in_service / self.max_batch,
            loss=lost / (served + lost),
            p_empty=idle,
            p_full=lost / (served + lost),
        )

    def _row(self, row: int, rate: float) -> tuple[float, ...]:
        """Return the means of one row at a rate [1/ms].

        They are queueing, prefill and decode time [ms], batch, served and rejected requests, and idle share.
        """
        size, max_queue = int(self.max_batch[row]), int(min(max(self.max_queue[row], 0), MAX_WAITING))
        sizes = np.arange(1.0, size + 1)
        times = self.law.take(np.full(size, row))
        means = times.service_time_ms(sizes)
        spreads = np.maximum(times.spread_ms(sizes), MIN_SPREAD * means)
        waiting = np.arange(max_queue + 1)
        count = np.clip(waiting, 1, size)
        left = np.maximum(waiting - count, 0)
        law = _arrivals(rate, means, spreads, max_queue)[count - 1]
        chain = _shifted(law, left, max_queue)
        share = _long_run(chain)
        mean, spread = means[count - 1], spreads[count - 1]
        # The queue grows at the arrival rate until it is full.
        until = np.minimum(mean, (max_queue - left) / rate)
        fluid = left * until + rate * until**2 / 2 + max_queue * (mean - until)
        queue = np.where(until < mean, fluid, left * mean + rate * (mean**2 + spread**2) / 2)
        served = float(share @ count)
        idle_ms = float(share[0]) / rate
        cycle_ms = float(share @ mean) + idle_ms
        lost = max(rate * cycle_ms - served, 0.0)
        of_request = share * count / served
        return (
            float(share @ queue) / served,
            float(of_request @ times.prefill_ms(sizes)[count - 1]),
            float(of_request @ times.answer_ms(sizes)[count - 1]),
            float(share @ (count * mean)) / cycle_ms,
            served,
            lost,
            idle_ms / cycle_ms,
        )


def _arrivals(rate: float, mean_ms: FloatArray, spread_ms: FloatArray, max_queue: int) -> FloatArray:
    """Return P(j arrivals during a batch of n requests), shape (B, max_queue + 1) (eq. 120).

    Args:
        rate: arrival rate [1/ms].
        mean_ms: mean times of batches of n = 1 … B requests [ms].
        spread_ms: standard deviations of these times [ms].
        max_queue: maximum queue length.
    """
    from scipy.special import gammaln

    shape = (mean_ms / spread_ms) ** 2
    mean = rate * mean_ms
    j = np.arange(max_queue + 1)
    logs = (
        gammaln(j + shape[:, None]) - gammaln(shape)[:, None] - gammaln(j + 1)
        + shape[:, None] * np.log(shape / (shape + mean))[:, None]
        + j * np.log(mean / (shape + mean))[:, None]
    )  # fmt: skip
    return np.asarray(np.exp(logs))


def _shifted(law: FloatArray, left: IntArray, max_queue: int) -> FloatArray:
    """Return the transition matrix of the queue length between batches; the last state covers longer queues.

    Args:
        law: probabilities of j arrivals, by queue length.
        left: number of requests that the batch leaves in the queue, by queue length.
        max_queue: maximum queue length.
    """
    chain = np.zeros((max_queue + 1, max_queue + 1))
    for row, first in enumerate(left.tolist()):
        chain[row, first:max_queue] = law[row, : max_queue - first]
    chain[:, max_queue] = np.maximum(1 - chain[:, :max_queue].sum(axis=1), 0.0)
    return chain


def _long_run(chain: FloatArray) -> FloatArray:
    """Return the stationary distribution of a Markov chain with N states, shape (N,)."""
    equations = chain.T - np.eye(len(chain))
    equations[-1] = 1.0
    right = np.zeros(len(chain))
    right[-1] = 1.0
    longest = np.maximum(np.linalg.solve(equations, right), 0.0)
    return np.asarray(longest / longest.sum())
