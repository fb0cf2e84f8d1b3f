"""Latencies of replicas that mix request shapes, some with prompts beyond the token budget (eq. 266-268).

A long prompt stalls every decoding request for several iterations in a row, and lets other requests queue
meanwhile, which then prolong the iterations. So the number of requests depends on the stalls and these on the
number; three passes suffice. Arrays have shape (R,), and those of rows (R, H).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.continuous.arrivals import NEARLY_EVEN, dispersion
from optimizer.queueing.continuous.distributions import Parts
from optimizer.queueing.continuous.iterations import mean_iterations
from optimizer.queueing.continuous.latencies import (
    Intervals,
    Latencies,
    batch_variance,
    burst_ms,
    itl_parts,
    stall_variance,
)
from optimizer.queueing.continuous.long_prompts import LongPrompts, LongService
from optimizer.queueing.continuous.replicas import Iteration, ReplicaArrays, column, row_steps
from optimizer.queueing.continuous.slots import MIN_DISPERSION, BatchSlots, requests_inside

MAX_SHARE = 0.9
"""Maximum share of time spent on prompts, in formulas that divide by the rest."""
MAX_FACTOR = 0.85
"""Maximum factor between two steps of the fixed point, which is extrapolated."""
MAX_EXPONENT = 50.0


class Delay(NamedTuple):
    """Delay of the decoding of each row by the prompts that came during its prefill, shapes (R, H) (eq. 266).

    It is often 0, otherwise about exponential, and limited by the number of decode steps.
    """

    base_ms: FloatArray
    """ITL without this delay [ms]."""
    longest_ms: FloatArray
    """Upper bound on the mean ITL [ms]."""
    mean_ms: FloatArray
    """Mean over the entire output [ms]."""
    variance: FloatArray
    """Variance [ms²]."""
    room: FloatArray
    """Largest possible delay divided by the mean of those that are not 0."""

    @classmethod
    def of(
        cls, replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, service: LongService
    ) -> "Delay":
        """Compute the delay, given mean iterations and the service of prompts."""
        prompts, steps = service.prompts, np.maximum(row_steps(replicas.rows), 1.0)
        longest = np.maximum(prompts.longest_ms, iteration.mean_ms)
        share = np.minimum(prompts.share, 0.95)
        turn = prompts.own_ms + column(prompts.wait_ms)
        left = column(prompts.share / (1 - share) * (1 - iteration.mean_ms / longest)) * turn
        base = (
            column(iteration.mean_ms)
            + column(replicas.times.kv_read_per_token_ms) * replicas.row_context_shift
        )
        met = column(rate * prompts.stall_ms**2 / prompts.stall_square) * turn
        chance = -np.expm1(-np.maximum(met, 1e-9))
        mean = np.maximum(left / chance, 1e-9)
        room = np.minimum(np.maximum(column(longest) - base, 0.0) * steps / mean, MAX_EXPONENT)
        none = np.exp(-room)
        cut, square = chance * mean * (1 - none), 2 * chance * mean**2 * (1 - none - room * none)
        return cls(base, np.maximum(column(longest), base), cut, np.maximum(square - cut**2, 0.0), room)


def long_latencies(
    scheduler: LongPrompts, replicas: ReplicaArrays, rate: FloatArray, largest: FloatArray
) -> Latencies:
    """Return the latencies of R replicas at arrival rates [requests/ms].

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        largest: rate with all batch slots occupied [1/ms].
    """
    start = np.zeros((2, len(rate)))
    first = _feedback(scheduler, replicas, rate, start)
    second = _feedback(scheduler, replicas, rate, first)
    # Aitken's extrapolation of the fixed point.
    step = first - start
    factor = np.divide(second - first, step, out=np.zeros_like(step), where=step != 0)
    factor = np.clip(factor, -0.5, MAX_FACTOR)
    delay, more = np.maximum(first + (second - first) / (1 - factor), 0.0)
    replicas = replace(replicas, delay_ms=delay, more_seen=more)
    iteration = mean_iterations(scheduler, replicas, rate)
    service = scheduler.service(replicas, rate, iteration)
    places = BatchSlots.of(replicas, rate, largest, _requests_inside(replicas, rate, iteration, service))
    intervals, met = _intervals(replicas, rate, iteration, service, places)
    plain = Latencies.of(replicas, rate, iteration, service.prompts, places, intervals)
    prompts, chance = service.prompts, column(service.beside_long)
    least, none = plain.first.least_ms[..., 0], np.zeros_like(intervals.mean_ms)
    behind = [
        (
            share + none,
            least,
            prompts.own_ms + column(wait + plain.client_ms) - least,
            column(variance) + prompts.own_variance,
        )
        for share, wait, variance in zip(
            (1 - chance, chance), service.waits_ms, service.wait_variances, strict=True
        )
    ]
    lowest = itl_parts(replicas, iteration, places, intervals)[0].least_ms[..., 0]
    others = [(share, lowest, mean - lowest, variance) for share, mean, variance in met]
    return replace(
        plain,
        first=Parts(*(np.stack(columns, axis=2) for columns in zip(*behind, strict=True))),
        interval=Parts(*(np.stack(columns, axis=2) for columns in zip(*others, strict=True))),
    )


def _feedback(
    scheduler: LongPrompts, replicas: ReplicaArrays, rate: FloatArray, given: FloatArray
) -> FloatArray:
    """Return the mean delay of decoding [ms] and the additional requests seen that follow, shape (2, R).

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        given: the same two quantities, as assumed.
    """
    replicas = replace(replicas, delay_ms=given[0], more_seen=given[1])
    iteration = mean_iterations(scheduler, replicas, rate)
    service = scheduler.service(replicas, rate, iteration)
    delay = replicas.rows.mean(Delay.of(replicas, rate, iteration, service).mean_ms)
    # All requests of equal length see those that a stall lets queue, half of them if lengths are exponential.
    seen = 1 - np.minimum(replicas.answer_scv, 1.0) / 2
    free = (1 - np.minimum(service.prompts.share, 0.95)) ** 2
    return np.stack((delay, seen * rate**2 * service.prompts.stall_square / free))


def _queued_by_stalls(rate: FloatArray, service: LongService) -> FloatArray:
    """Return the variance per request that stalls add, as requests queue during them (eq. 267)."""
    free = (1 - np.minimum(service.prompts.share, MAX_SHARE)) ** 2
    return np.asarray(rate**2 * service.prompts.stall_square / free)


def _number_inside(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, service: LongService
) -> tuple[FloatArray, FloatArray]:
    """Return the mean number of requests in a replica, with delays, and its variance per request."""
    inside, _ = requests_inside(replicas, rate, iteration, service.prompts.own_ms)
    inside = inside + rate * replicas.delay_ms
    return inside, np.maximum(dispersion(inside, replicas.arrival_scv), MIN_DISPERSION)


def _requests_inside(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, service: LongService
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the number of requests in a replica, without queued ones (eq. 81, 267)."""
    share, base = service.prompts.share, replicas.times.standing_ms(0.0)
    inside, spread = _number_inside(replicas, rate, iteration, service)
    growth = replicas.alike_ms(iteration) / np.maximum(replicas.times.standing_ms(iteration.seen), 1e-12)
    per_decode = np.maximum(iteration.mean_ms * (1 - share) - base, 0.0) / iteration.seen
    room = np.maximum(1 - share - rate * replicas.steps * per_decode, 0.02)
    spread = spread + _queued_by_stalls(rate, service)
    return inside, spread * inside * np.minimum(growth, 1 / room)


Part = tuple[FloatArray, FloatArray, FloatArray]
"""Share of a row's requests, mean and variance of their ITL, shapes (R, H)."""


def _intervals(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, service: LongService, places: BatchSlots
) -> tuple[Intervals, tuple[Part, Part]]:
    """Return the inter-token latencies of rows, and those of requests that meet no long prompt, and others.

    The second result divides the first: mean and variance over both parts are those of the row (eq. 268).
    """
    rows, prompts, delay = replicas.rows, service.prompts, Delay.of(replicas, rate, iteration, service)
    steps = np.maximum(row_steps(rows), 1.0)
    scv = column(replicas.arrival_scv)
    short = 1 + rows.answer_scv * np.exp(-1 / np.maximum(delay.room, 1e-9))
    burst = np.where(scv > 1, burst_ms(replicas, rate, iteration, prompts, places), 0.0)
    mean = np.minimum(delay.base_ms + delay.mean_ms * short / steps, delay.longest_ms) + burst
    of_tokens = np.minimum(delay.base_ms + delay.mean_ms / steps, delay.longest_ms) + burst
    mean, of_tokens = (np.where(scv <= NEARLY_EVEN, delay.base_ms, values) for values in (mean, of_tokens))
    batch = batch_variance(replicas, rate, iteration, places)
    every, by_long = (
        stall_variance(replicas, rate, iteration, prompts, _overlap(replicas, service, some))
        for some in (np.ones_like(service.stalls), (service.chunks.full > 0).astype(np.float64))
    )
    more = delay.variance / steps**2 + _covariance(replicas, rate, iteration, service, (every, batch))
    # A mean ITL between two values has a bounded variance.
    most = np.maximum(mean - column(iteration.decode_ms), 0.0) * np.maximum(
        column(service.full_ms) - mean, 0.0
    )
    stalls = np.minimum(every + more, most / (1 + rows.answer_scv))
    variance = batch + stalls * (1 + rows.answer_scv)
    shrunk = np.divide(stalls, every + more, out=np.ones_like(stalls), where=every + more > 0)
    of_long = (by_long + more) * shrunk * (1 + rows.answer_scv)
    parts = _met_or_not(replicas, rate, iteration, service, delay, (mean, variance, of_long))
    return Intervals(mean, of_tokens, variance, batch + stalls), parts


def _met_or_not(
    replicas: ReplicaArrays,
    rate: FloatArray,
    iteration: Iteration,
    service: LongService,
    delay: Delay,
    total: tuple[FloatArray, FloatArray, FloatArray],
) -> tuple[Part, Part]:
    """Divide the ITL of each row into requests that meet no long prompt, and those that do (eq. 268).

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations.
        service: service of prompts.
        delay: delay by the prompts that came during the prefill.
        total: mean and variance of the ITL, and the variance that long prompts cause, shapes (R, H).
    """
    (mean, variance, of_long), prompts = total, service.prompts
    steps = np.maximum(row_steps(replicas.rows), 1.0)
    long = (service.chunks.full > 0).astype(np.float64)
    life = prompts.own_ms + column(prompts.wait_ms) + row_steps(replicas.rows) * column(iteration.mean_ms)
    chance = np.maximum(-np.expm1(-column(rate * replicas.rows.mean(long)) * life), 1e-9)
    stall = column(rate * iteration.mean_ms * replicas.rows.mean(service.stalls * long))
    more = np.minimum(stall + delay.mean_ms / steps, np.maximum(mean - column(iteration.decode_ms), 0.0))
    rest = np.maximum(variance - of_long, 1e-12)
    with_long = np.maximum((of_long + more**2) / chance - (more / chance) ** 2, 0.0) + rest
    return (1 - chance, mean - more, rest), (chance, mean - more + more / chance, with_long)


def _overlap(replicas: ReplicaArrays, service: LongService, some: FloatArray) -> FloatArray:
    """Return the second moment of the stalls that an output of each row meets [ms²], shape (R, H) (eq. 267).

    A long prompt stalls a run of iterations, which an output can meet in part.

    Args:
        replicas: R replicas.
        service: service of prompts.
        some: mask of the rows whose prompts count.
    """
    rows, chunks = replicas.rows, service.chunks
    steps = np.maximum(row_steps(rows), 1.0)[:, :, np.newaxis]
    runs = (chunks.full + (chunks.rest > 0))[:, np.newaxis, :]
    short, long = np.minimum(runs, steps), np.maximum(runs, steps)
    met = (long - short + 1) * short**2 + (short - 1) * short * (2 * short - 1) / 3
    squares = rows.weight * service.stalls**2 * (1 + rows.computed_scv) * some
    return np.asarray(
        (squares[:, np.newaxis, :] * met / np.maximum(runs, 1) ** 2).sum(axis=2) / steps[..., 0]
    )


def _covariance(
    replicas: ReplicaArrays,
    rate: FloatArray,
    iteration: Iteration,
    service: LongService,
    variances: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Return twice the covariance of stalls and batch [ms²], shape (R, H) (eq. 267).

    The same long prompt stalls a request and lets others queue.

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations.
        service: service of prompts.
        variances: of the ITL that stalls cause, and that batch and contexts cause, shapes (R, H).
    """
    stalls, batch = variances
    own = column(replicas.times.kv_read_per_token_ms**2) * replicas.own_context_variance
    queued = _queued_by_stalls(rate, service)
    _, spread = _number_inside(replicas, rate, iteration, service)
    part = queued / (spread + queued)
    return np.asarray(2 * np.sqrt(np.maximum(stalls * (batch - own), 0.0)) * column(part))
