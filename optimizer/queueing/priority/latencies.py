"""Latencies of the classes of a priority queue, derived from the same queue without priorities.

All arrays have shape (R,), times are in ms and rates in requests/ms. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.continuous.distributions import Gamma, Parts
from optimizer.queueing.continuous.latencies import Latencies
from optimizer.queueing.continuous.model import ContinuousPerformance, ContinuousQueues
from optimizer.queueing.continuous.slots import MAX_LOAD
from optimizer.queueing.performance import MS_PER_S, Performance
from optimizer.queueing.priority.delays import PriorityDelays
from optimizer.queueing.reference import ReplicaQueues

Shares = tuple[FloatArray, FloatArray]
"""Two shares of a queue's load: of classes with higher priority, and of those with higher or equal priority.
"""
MEMORY = 4.0
"""Rate at which the dependence on when slots were freed decays, per mean residual work (eq. 167)."""
MIN_DRIFT, MAX_DRIFT = 0.5, 8.0
"""Range of the drift of the random walk in `chance_factor`; below it, the factor is linear."""
WALK_STEPS = 64


@dataclass(frozen=True, slots=True)
class ClassLatencies(Latencies):
    """Latency distributions of R classes, shapes (R,)."""

    delays: PriorityDelays
    """Queueing times over the requests that queue for a batch slot."""

    def place_survival(self, wait_ms: FloatArray) -> FloatArray:
        """Return P(queueing time > `wait_ms`) over the requests that queue for a batch slot."""
        if wait_ms.ndim == 1:
            return self.delays.survival(wait_ms)
        flat = wait_ms.reshape(len(wait_ms), -1)
        return np.stack([self.delays.survival(times) for times in flat.T], axis=1).reshape(wait_ms.shape)

    def place_quantile(self, one_in: FloatArray) -> FloatArray:
        """Return the queueing time [ms] that one in `one_in` of the requests that queue for a slot exceed."""
        return self.delays.quantile(one_in)

    def wait_quantile(self, share: float) -> FloatArray:
        """Return the time before the prefill that a share of all requests does not exceed [ms] (eq. 171)."""
        for_prompt = (self.turn_ms - self.place_chance * self.place_wait_ms)[:, np.newaxis, np.newaxis]
        mean = np.broadcast_to(for_prompt, self.first.share.shape)
        waits = replace(self.first, least_ms=np.zeros_like(mean), mean_ms=mean)
        return replace(self, first=waits).ttft_quantile(share)


@dataclass(frozen=True, slots=True)
class ServedClassLatencies(ClassLatencies):
    """Latencies of classes in llm-inferno's queue, in which requests have a mean service time."""

    @property
    def _life(self) -> Gamma:
        return Gamma(self.e2e_rows_ms, self.e2e_variance)

    def wait_quantile(self, share: float) -> FloatArray:
        """Return the queueing time for a slot that a share of requests does not exceed [ms].

        There is no other time before the prefill.
        """
        return self.place_quantile(np.maximum(self.place_chance / (1 - share), 1.0))

    def ttft_quantile(self, share: float) -> FloatArray:
        """Return the TTFT that a share of requests does not exceed [ms]; prefill times are equal."""
        return self.first.least_ms[:, 0, 0] + self.wait_quantile(share)


def of_service_times(
    queues: ReplicaQueues, performance: Performance, shares: Shares, work_scv: FloatArray
) -> tuple[ClassLatencies, FloatArray]:
    """Return the latencies of classes from service times, and factors on the mean wait (eq. 165-171).

    Args:
        queues: the queues without priorities, of unlimited capacity.
        performance: long-run means of these queues.
        shares: shares of the load with higher priority, and with higher or equal priority.
        work_scv: squared coefficient of variation of a request's work.
    """
    load = np.minimum(performance.offered_rps / queues.full_rate_rps, MAX_LOAD)
    places = queues.queue.max_batch.astype(np.float64)
    wait = MS_PER_S / queues.full_rate_rps / (1 - load)
    none = np.zeros_like(wait)
    first = performance.ttft_ms - performance.wait_ms
    factor = chance_factor(places, load, work_scv)
    chance = np.minimum(performance.wait_ms / wait * factor, 1.0)
    more = performance.wait_ms * (factor - 1)
    one, zero = np.ones((len(load), 1)), np.zeros((len(load), 1))
    first_row, itl_row = first[:, np.newaxis], performance.itl_ms[:, np.newaxis]
    e2e = performance.response_ms + more
    everyone = Latencies(
        prefill_ms=first,
        turn_ms=performance.wait_ms + more,
        client_ms=none,
        itl_ms=performance.itl_ms,
        place_chance=chance,
        place_wait_ms=wait,
        e2e_ms=e2e,
        weight=one,
        decoding=one,
        shape=zero.astype(np.int64),
        stalls_ms=zero,
        first=Parts.single(first_row, zero, zero),
        interval=Parts.single(itl_row, zero, zero),
        most_itl_ms=itl_row,
        e2e_rows_ms=e2e[:, np.newaxis],
        e2e_variance=(_place_variance(chance, wait, wait**2) + work_scv * performance.service_ms**2)[
            :, np.newaxis
        ],
    )
    above, upto = shares[0] * load, shares[1] * load
    ratio = _ratio(load, (above, upto)) * work_factor(places, (above, upto), work_scv)
    return _ranked(everyone, (above, upto), ratio, ServedClassLatencies), ratio * factor


def of_iterations(
    queues: ContinuousQueues,
    continuous_performance: ContinuousPerformance,
    shares: Shares,
    work_scv: FloatArray,
) -> tuple[ClassLatencies, FloatArray]:
    """Return the latencies of classes from iterations, and factors on the mean wait for a slot (eq. 172).

    The queue without classes already includes the variability of outputs, so only the ratio of the factors
    matters.

    Args:
        queues: the queues without priorities, of unlimited capacity.
        continuous_performance: long-run means of these queues.
        shares: shares of the load with higher priority, and with higher or equal priority.
        work_scv: squared coefficient of variation of a request's work.
    """
    load = np.minimum(continuous_performance.offered_rps / MS_PER_S / queues.largest_rate, MAX_LOAD)
    above, upto = shares[0] * load, shares[1] * load
    places = queues.replicas.places
    own = work_factor(places, (above, upto), work_scv)
    ratio = _ratio(load, (above, upto)) * (own / work_factor(places, (0 * load, load), work_scv))
    return _ranked(continuous_performance.latencies, (above, upto), ratio, ClassLatencies), ratio


def chance_factor(places: FloatArray, load: FloatArray, work_scv: FloatArray) -> FloatArray:
    """Return the factor on the probability of queueing for non-exponential work (eq. 173).

    The factor is that of many slots near saturation. For fixed work, it is the probability that the maximum
    of a Gaussian random walk is positive, divided by the same for exponential work (Halfin and Whitt). It is
    linear in the squared coefficient of variation up to 1. Above 1 the factor is 1, because more variable
    work hardly changes the probability. With one slot, the probability equals the load for any work.

    Args:
        places: number of batch slots.
        load: load of the queue.
        work_scv: squared coefficient of variation of a request's work.
    """
    from scipy.special import ndtr

    drift = np.sqrt(places - 1) * (1 - load)
    beta = np.clip(drift, MIN_DRIFT, MAX_DRIFT)
    steps = np.arange(1, WALK_STEPS + 1)[:, np.newaxis]
    fixed = -np.expm1(-(ndtr(-np.sqrt(steps) * beta) / steps).sum(axis=0))
    density = np.exp(-(beta**2) / 2) / np.sqrt(2 * np.pi)
    exponential = density / (density + beta * ndtr(beta))
    less = (1 - fixed / exponential) * np.minimum(drift / MIN_DRIFT, 1.0)
    return np.asarray(1 - np.maximum(1 - work_scv, 0.0) * less)


def work_factor(places: FloatArray, loads: Shares, work_scv: FloatArray) -> FloatArray:
    """Return the factor on a queueing time for non-exponential work (eq. 167).

    Over times much shorter than a service time, slots become free as in a Poisson process; over longer times,
    as in a renewal process. With one slot, the factor is exact.

    Args:
        places: number of batch slots.
        loads: load with higher priority, and with higher or equal priority.
        work_scv: squared coefficient of variation of a request's work.
    """
    above, upto = loads
    services = 1 / (places * (1 - above) * (1 - upto))
    fresh = np.where(places > 1, np.exp(-MEMORY * services / (1 + work_scv)), 0.0)
    return np.asarray((1 + work_scv + (1 - work_scv) * fresh) / 2)


def _ratio(load: FloatArray, loads: Shares) -> FloatArray:
    """Return the mean waiting time of classes divided by that without priorities (eq. 166)."""
    above, upto = loads
    return (1 - load) / ((1 - above) * (1 - upto))


def _ranked(
    everyone: Latencies, loads: Shares, ratio: FloatArray, result: type[ClassLatencies]
) -> ClassLatencies:
    """Return the latencies with the queueing times of classes instead of those of all requests."""
    chance, wait = everyone.place_chance, everyone.place_wait_ms
    delays = PriorityDelays(wait * ratio, *loads)
    values = {field.name: getattr(everyone, field.name) for field in fields(Latencies)}
    change = chance * wait * (ratio - 1)
    spread = _place_variance(chance, delays.mean_ms, delays.variance) - _place_variance(chance, wait, wait**2)
    values["turn_ms"] = everyone.turn_ms + change
    values["e2e_ms"] = everyone.e2e_ms + change
    values["e2e_rows_ms"] = everyone.e2e_rows_ms + change[:, np.newaxis]
    values["e2e_variance"] = everyone.e2e_variance + spread[:, np.newaxis]
    values["place_wait_ms"] = delays.mean_ms
    return result(**values, delays=delays)


def _place_variance(chance: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the variance of a time that is 0 except for a fraction `chance` of requests."""
    return np.maximum(chance * (variance + mean**2) - (chance * mean) ** 2, 0.0)
