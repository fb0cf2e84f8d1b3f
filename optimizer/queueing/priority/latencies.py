"""Latencies of one class of a priority queue, derived from the same queue without priorities.

All arrays have shape (R,), times are in ms and rates in requests/ms. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.continuous.latencies import MAX_LOAD, Gamma, Latencies
from optimizer.queueing.continuous.model import ContinuousPerformance, ContinuousQueues
from optimizer.queueing.performance import MS_PER_S, Performance
from optimizer.queueing.priority.delays import PriorityDelays
from optimizer.queueing.reference import ReplicaQueues

Shares = tuple[FloatArray, FloatArray]
"""Shares of the queue's load: of higher classes, and of these plus the class itself."""
MEMORY = 4.0
"""Rate, per mean residual work, at which a batch forgets when its slots were freed (eq. 167)."""
MIN_DRIFT, MAX_DRIFT = 0.5, 8.0
"""Range of the drift of the random walk; below it the factor is linear."""
WALK_STEPS = 64


@dataclass(frozen=True, slots=True)
class ClassLatencies(Latencies):
    """Latency distributions of R classes."""

    delays: PriorityDelays
    """Queueing times of the requests that queue for a batch slot."""

    def place_beyond(self, wait_ms: FloatArray) -> FloatArray:
        """Return P(queueing time > wait_ms) of the requests that queue for a batch slot."""
        return self.delays.beyond(wait_ms)

    def place_quantile(self, one_in: FloatArray) -> FloatArray:
        """Return the queueing times that one in `one_in` of the requests queueing for a batch slot exceed."""
        return self.delays.quantile(one_in)

    def wait_quantile(self, share: float) -> FloatArray:
        """Return a quantile of the time before the prefill, over all requests (eq. 171)."""
        for_prompt = self.turn_ms - self.place_chance * self.place_wait_ms
        waits = replace(self, least_ttft_ms=np.zeros_like(for_prompt), turn_mean_ms=for_prompt)
        return waits.ttft_quantile(share)


@dataclass(frozen=True, slots=True)
class ServedClassLatencies(ClassLatencies):
    """Latencies of requests with a known mean service time."""

    @property
    def _life(self) -> Gamma:
        return Gamma(self.e2e_ms, self.e2e_variance)

    def wait_quantile(self, share: float) -> FloatArray:
        """Return a quantile of the time before the prefill, which is spent entirely queueing for a slot."""
        return self.place_quantile(np.maximum(self.place_chance / (1 - share), 1.0))

    def ttft_quantile(self, share: float) -> FloatArray:
        """Return a quantile of the TTFT: the prefill takes the same time for all requests."""
        return self.least_ttft_ms + self.wait_quantile(share)


def of_service_times(
    queues: ReplicaQueues, found: Performance, shares: Shares, work_scv: FloatArray
) -> tuple[ClassLatencies, FloatArray]:
    """Return the latencies of classes by service times (eq. 165-171), and their waits relative to the mean.

    Args:
        queues: the queues, of unlimited capacity.
        found: their long-run means.
        shares: shares of the load of higher classes, and of these plus the class itself.
        work_scv: squared coefficient of variation of a request's work.
    """
    load = np.minimum(found.offered_rps / queues.full_rate_rps, MAX_LOAD)
    places = queues.queue.max_batch.astype(np.float64)
    wait = MS_PER_S / queues.full_rate_rps / (1 - load)
    none = np.zeros_like(wait)
    first = found.ttft_ms - found.wait_ms
    factor = chance_factor(places, load, work_scv)
    chance = np.minimum(found.wait_ms / wait * factor, 1.0)
    more = found.wait_ms * (factor - 1)
    everyone = Latencies(
        prefill_ms=first,
        turn_ms=found.wait_ms + more,
        client_ms=none,
        itl_ms=found.itl_ms,
        least_ttft_ms=first,
        turn_mean_ms=none,
        turn_variance=none,
        place_chance=chance,
        place_wait_ms=wait,
        least_itl_ms=found.itl_ms,
        itl_variance=none,
        most_itl_ms=found.itl_ms,
        e2e_ms=found.response_ms + more,
        e2e_variance=_place_variance(chance, wait, wait**2) + work_scv * found.service_ms**2,
    )
    above, upto = shares[0] * load, shares[1] * load
    ratio = _ratio(load, (above, upto)) * work_factor(places, (above, upto), work_scv)
    return _ranked(everyone, (above, upto), ratio, ServedClassLatencies), ratio * factor


def of_iterations(
    queues: ContinuousQueues, found: ContinuousPerformance, shares: Shares, work_scv: FloatArray
) -> tuple[ClassLatencies, FloatArray]:
    """Return the latencies of classes by iterations (eq. 172), and their slot waits relative to the mean.

    The queue without classes already includes the variability of outputs, so only the ratio of the factors
    matters.

    Args:
        queues: the queues, of unlimited capacity.
        found: their long-run means.
        shares: shares of the load of higher classes, and of these plus the class itself.
        work_scv: squared coefficient of variation of a request's work.
    """
    load = np.minimum(found.offered_rps / MS_PER_S / queues.largest_rate, MAX_LOAD)
    above, upto = shares[0] * load, shares[1] * load
    places = queues.replicas.places
    own = work_factor(places, (above, upto), work_scv)
    ratio = _ratio(load, (above, upto)) * (own / work_factor(places, (0 * load, load), work_scv))
    return _ranked(found.latencies, (above, upto), ratio, ClassLatencies), ratio


def chance_factor(places: FloatArray, load: FloatArray, work_scv: FloatArray) -> FloatArray:
    """Return the factor on the probability of queueing for non-exponential work (eq. 173).

    The factor is that of many slots near saturation: for fixed work, the probability that the maximum of a
    Gaussian random walk is positive, divided by its exponential counterpart (Halfin and Whitt). It is linear
    in the squared coefficient of variation up to 1. Above it is 1, because the probability hardly grows with
    more variable work. With one slot the probability is the load for any work.

    Args:
        places: slots of the batch.
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

    Over a span much shorter than a service, slots are freed as by a Poisson process; over a longer one, as by
    a renewal process. With one slot the factor is exact.

    Args:
        places: slots of the batch.
        loads: loads of higher classes, and of these plus the class itself.
        work_scv: squared coefficient of variation of a request's work.
    """
    above, upto = loads
    services = 1 / (places * (1 - above) * (1 - upto))
    fresh = np.where(places > 1, np.exp(-MEMORY * services / (1 + work_scv)), 0.0)
    return np.asarray((1 + work_scv + (1 - work_scv) * fresh) / 2)


def _ratio(load: FloatArray, loads: Shares) -> FloatArray:
    """Return the mean wait of classes divided by that under first come, first served (eq. 166)."""
    above, upto = loads
    return (1 - load) / ((1 - above) * (1 - upto))


def _ranked(
    everyone: Latencies, loads: Shares, ratio: FloatArray, result: type[ClassLatencies]
) -> ClassLatencies:
    """Return the latencies with the queueing time of a class instead of that of all requests."""
    chance, wait = everyone.place_chance, everyone.place_wait_ms
    delays = PriorityDelays(wait * ratio, *loads)
    values = {field.name: getattr(everyone, field.name) for field in fields(Latencies)}
    change = chance * wait * (ratio - 1)
    spread = _place_variance(chance, delays.mean_ms, delays.variance) - _place_variance(chance, wait, wait**2)
    values["turn_ms"] = everyone.turn_ms + change
    values["e2e_ms"] = everyone.e2e_ms + change
    values["e2e_variance"] = everyone.e2e_variance + spread
    values["place_wait_ms"] = delays.mean_ms
    return result(**values, delays=delays)


def _place_variance(chance: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the variance of a time that applies to a fraction of the requests and is 0 for the others."""
    return np.maximum(chance * (variance + mean**2) - (chance * mean) ** 2, 0.0)
