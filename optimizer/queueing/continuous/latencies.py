"""Means and percentiles of latencies as a client sees them, derived from iterations and prompts.

Arrays have shape (R,), and those of the rows of loads (R, H); times are in ms and rates in requests/ms.
Equation numbers refer to ``docs/math.md``.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays
from optimizer.queueing.continuous.arrivals import NEARLY_EVEN, dispersion
from optimizer.queueing.continuous.distributions import Gamma, Lognormal, Parts, least_of, most_of, quantiles
from optimizer.queueing.continuous.replicas import Iteration, Prompts, ReplicaArrays, column, row_steps
from optimizer.queueing.continuous.slots import BatchSlots
from optimizer.queueing.measures import LATENCIES, LatencyName, TargetMeasure
from optimizer.queueing.shapes import row_sum

MIN_SHARE = 1e-9
"""Share of requests that queue for a slot below which percentiles ignore them."""
FIXED_LIFE = 2 / 3
"""Variance of the batch averaged over a request's lifetime, divided by that of the batch, for constant
lifetimes (infinite server, eq. 79).
"""
RANDOM_LIFE = 4 * math.log(2) - 2
"""The same ratio as `FIXED_LIFE`, for exponential lifetimes (eq. 79)."""
MIN_ITL_SHARE = 0.8
"""Fraction of the shortest iteration that is a lower bound on the mean ITL of any output."""


class Intervals(NamedTuple):
    """Inter-token latencies of the rows of loads, shapes (R, H) unless stated."""

    mean_ms: FloatArray
    """Mean over requests [ms]."""
    of_tokens_ms: FloatArray
    """Mean over tokens [ms]."""
    variance: FloatArray
    """Variance over requests [ms²]."""
    of_tokens_variance: FloatArray
    """Variance over tokens [ms²]."""


@dataclass(frozen=True, slots=True)
class Latencies(RowArrays):
    """Latency distributions of R replicas, as their clients see them; shapes (R,), or (R, H) for rows."""

    prefill_ms: FloatArray
    """Mean prefill time of a prompt [ms]."""
    turn_ms: FloatArray
    """Mean time from arrival to the start of the prefill, including queueing for a batch slot [ms]."""
    client_ms: FloatArray
    """Delay between the engine and the client [ms]."""
    itl_ms: FloatArray
    """Mean inter-token latency of an output [ms]."""
    place_chance: FloatArray
    place_wait_ms: FloatArray
    e2e_ms: FloatArray
    weight: FloatArray
    """Share of the requests that belong to each row, shape (R, H)."""
    decoding: FloatArray
    """The same share of the requests with more than one output token, shape (R, H)."""
    shape: IntArray
    """Number of the request shape of each row (`shape_number`), shape (R, H)."""
    stalls_ms: FloatArray
    """Delay that a prompt of each row adds to every decoding request [ms], shape (R, H)."""
    first: Parts
    """TTFT without queueing for a batch slot, which clients see."""
    interval: Parts
    """Mean ITL of an output."""
    most_itl_ms: FloatArray
    """Time of a full iteration [ms]: an upper bound on the mean ITL of any output, shape (R, H)."""
    e2e_rows_ms: FloatArray
    """Mean end-to-end latency of each row [ms], shape (R, H)."""
    e2e_variance: FloatArray
    """Variance of the end-to-end latency of each row [ms²], shape (R, H)."""

    @classmethod
    def of(
        cls,
        replicas: ReplicaArrays,
        rate: FloatArray,
        iteration: Iteration,
        prompts: Prompts,
        places: BatchSlots,
        intervals: Intervals,
    ) -> Self:
        """Compute the latencies that clients see (eq. 84-88).

        Args:
            replicas: R replicas.
            rate: arrival rate [1/ms].
            iteration: mean iterations.
            prompts: service of prompts in the replicas.
            places: queueing of requests for batch slots.
            intervals: inter-token latencies.
        """
        rows = replicas.rows
        # Means: a request queues for a slot, waits for its prefill, and then decodes.
        steps, decoding = row_steps(rows), decoding_share(replicas)
        place_wait = places.chance * places.wait_ms
        turn, itl = prompts.wait_ms + place_wait, row_sum(decoding * intervals.mean_ms)
        client = replicas.client.ms(iteration.decodes, itl, rate, replicas.arrival_scv)
        # Distributions: the TTFT is gamma-distributed above its minimum.
        least = np.minimum(prompts.least_ms, 0.999 * prompts.own_ms)
        variance = column(prompts.wait_variance) + prompts.own_variance
        first = Parts.single(
            least + column(client), prompts.own_ms + column(prompts.wait_ms) - least, variance
        )
        # The queueing time for a slot is exponential for requests that queue, and 0 for others.
        place_variance = np.maximum(2 * places.chance * places.wait_ms**2 - place_wait**2, 0.0)
        of_tokens, answer = intervals.of_tokens_ms, rows.answer_scv * (steps + 1) ** 2
        e2e = prompts.own_ms + column(turn) + steps * of_tokens + column(client)
        interval, most = itl_parts(replicas, iteration, places, intervals)
        return cls(
            prefill_ms=rows.mean(prompts.own_ms),
            turn_ms=turn,
            client_ms=client,
            itl_ms=itl,
            place_chance=places.chance,
            place_wait_ms=places.wait_ms,
            e2e_ms=rows.mean(e2e),
            weight=rows.weight,
            decoding=decoding,
            shape=rows.shape,
            stalls_ms=prompts.stalls_ms,
            first=first,
            interval=interval,
            most_itl_ms=most,
            e2e_rows_ms=e2e,
            e2e_variance=variance
            + column(place_variance)
            + of_tokens**2 * answer
            + steps**2 * intervals.of_tokens_variance,
        )

    @property
    def ttft_ms(self) -> FloatArray:
        """Mean TTFT [ms]."""
        return self.prefill_ms + self.turn_ms + self.client_ms

    def mean_ms(self, metric: LatencyName) -> FloatArray:
        """Return the mean of a latency over all requests [ms], shape (R,)."""
        return {"itl": self.itl_ms, "ttft": self.ttft_ms, "e2e": self.e2e_ms}[metric]

    def statistic_ms(self, measure: TargetMeasure) -> float:
        """Return the mean or percentile of a latency of the first replica [ms]; shapes do not count."""
        metric = next(name for name in LATENCIES if name == measure.metric)
        if measure.percentile is None:
            return float(self.mean_ms(metric)[0])
        return float(self.quantile(metric, measure.percentile / 100)[0])

    def of_shape(self, shape: int) -> Self:
        """Return the latencies of the requests of one shape, by its number (`shape_number`).

        Replicas without such requests keep the latencies of all.
        """
        return self.of_rows(self.shape == shape)

    def of_rows(self, mine: BoolArray) -> Self:
        """Return the latencies of the requests of some rows, a mask of shape (R, H).

        Replicas without such requests keep the latencies of all.
        """
        weight, decoding = (_within(share, mine) for share in (self.weight, self.decoding))
        place_wait = self.place_chance * self.place_wait_ms
        prefill_and_wait = row_sum(weight * self.first.rows_ms) - self.client_ms
        means: dict[str, Any] = {
            "prefill_ms": prefill_and_wait - (self.turn_ms - place_wait),
            "itl_ms": row_sum(decoding * self.interval.rows_ms),
            "e2e_ms": row_sum(weight * self.e2e_rows_ms),
        }
        every = (mine | (self.weight == 0)).all(axis=1)  # their means are known exactly
        means = {name: np.where(every, getattr(self, name), values) for name, values in means.items()}
        return replace(self, weight=weight, decoding=decoding, **means)

    # --- distributions -------------------------------------------------------------------------------

    @property
    def _life(self) -> Lognormal | Gamma:
        return Lognormal(self.e2e_rows_ms, self.e2e_variance)

    def place_survival(self, wait_ms: FloatArray) -> FloatArray:
        """Return P(queueing time > `wait_ms`) over the requests that queue for a slot, shapes (R, ...)."""
        scale = self.place_wait_ms.reshape(-1, *[1] * (wait_ms.ndim - 1))
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-wait_ms / scale))

    def place_quantile(self, one_in: FloatArray) -> FloatArray:
        """Return the queueing time [ms] that one in `one_in` of the requests that queue for a slot exceed."""
        return np.asarray(np.log(one_in) * self.place_wait_ms)

    def rows_survival(self, metric: LatencyName, limit_ms: FloatArray) -> FloatArray:
        """Return P(latency > limit) over the requests of each row, shape (R, H) (eq. 85-87, 262)."""
        limits = column(limit_ms)
        if metric == "e2e":
            return self._life.survival(limits)
        parts = self.first if metric == "ttft" else self.interval
        rest = limits[..., np.newaxis] - parts.least_ms
        survival = parts.above.survival(rest)
        if metric == "itl":
            return np.where(limits >= self.most_itl_ms, 0.0, (parts.share * survival).sum(axis=2))
        # Some requests queue for a batch slot.
        tail = self.place_survival(np.maximum(rest - parts.mean_ms, 0.0))
        chance = self.place_chance[:, np.newaxis, np.newaxis]
        rows = np.where(rest < 0, 1.0, survival + chance * np.maximum(tail - survival, 0.0))
        return np.asarray((parts.share * rows).sum(axis=2))

    def survival(self, metric: LatencyName, limit_ms: FloatArray) -> FloatArray:
        """Return P(latency > limit) over all requests, shape (R,)."""
        weight = self.decoding if metric == "itl" else self.weight
        return row_sum(weight * self.rows_survival(metric, limit_ms))

    def missed_share(self, limits_ms: FloatArray) -> FloatArray:
        """Return the share of requests that exceed any limit, assuming independent latencies (eq. 88).

        Requests that wait long also tend to decode slowly, so the true share is not larger.

        Args:
            limits_ms: limits by latency name [ms], in the order ITL, TTFT, end-to-end; shape (3, R).
        """
        kept = np.ones_like(self.weight)
        metrics: tuple[LatencyName, ...] = ("itl", "ttft", "e2e")
        for metric, limit in zip(metrics, limits_ms, strict=True):
            kept *= 1 - self.rows_survival(metric, limit)
        return 1 - row_sum(self.weight * kept)

    def quantile(self, metric: LatencyName, share: float) -> FloatArray:
        """Return the latency that a share of requests does not exceed [ms], shape (R,)."""
        if metric == "ttft":
            return self.ttft_quantile(share)
        if metric == "e2e":
            real, each = self.weight > 0, self._life.quantile(share)
        else:
            parts = self.interval
            real = (self.decoding[..., np.newaxis] > 0) & (parts.share > 0)
            each = np.minimum(parts.least_ms + parts.above.quantile(share), self.most_itl_ms[..., np.newaxis])
        low, high = least_of(each, real), most_of(each, real)
        return quantiles(_Beyond(self, metric), low, share, high > low, lambda rows: high[rows])

    def ttft_quantile(self, share: float) -> FloatArray:
        """Return the TTFT that a share of requests does not exceed [ms], shape (R,)."""

        def high(rows: IntArray) -> FloatArray:
            some, parts = self.take(rows), self.first.take(rows)
            late = some.place_quantile(np.maximum(2 * some.place_chance / (1 - share), 1.0))
            above = np.maximum(
                parts.above.quantile((1 + share) / 2), parts.mean_ms + late[:, np.newaxis, np.newaxis]
            )
            return most_of(parts.least_ms + above, real[rows])

        real = (self.weight[..., np.newaxis] > 0) & (self.first.share > 0)
        low = least_of(self.first.least_ms + self.first.above.quantile(share), real)
        # If too few requests queue for a slot to exceed the quantile of the others, that is the quantile.
        wide = (self.place_chance > MIN_SHARE) | (real.reshape(len(low), -1).sum(axis=1) > 1)
        return quantiles(_Beyond(self, "ttft"), low, share, wide, high)


@dataclass(frozen=True, slots=True)
class _Beyond:
    """Survival functions of a latency of R replicas."""

    latencies: Latencies
    metric: LatencyName

    def take(self, rows: IntArray) -> "_Beyond":
        return _Beyond(self.latencies.take(rows), self.metric)

    def __call__(self, x: FloatArray, /) -> FloatArray:
        return self.latencies.survival(self.metric, x)


def merged(parts: list[tuple[IntArray, Latencies]]) -> Latencies:
    """Merge the latencies of several groups of rows, in the original order of the rows."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    most = max(group.first.share.shape[2] for _, group in parts)
    groups = [
        replace(group, first=group.first.divided(most), interval=group.interval.divided(most))
        for _, group in parts
    ]

    def joined(values: list[Any]) -> Any:
        if isinstance(values[0], RowArrays):
            columns = zip(*(item.columns() for item in values), strict=True)
            return type(values[0])(*map(np.concatenate, columns)).take(order)
        return np.concatenate(values)[order]

    return Latencies(
        *(joined([getattr(group, field.name) for group in groups]) for field in fields(Latencies))
    )


def _within(share: FloatArray, mine: BoolArray) -> FloatArray:
    """Return the shares within some of the rows, shape (R, H); those of all rows if none of these has any."""
    some = np.where(mine, share, 0.0)
    total = column(row_sum(some))
    return np.where(total > 0, some / np.where(total > 0, total, 1.0), share)


def decoding_share(replicas: ReplicaArrays) -> FloatArray:
    """Return the share of each row in the requests with more than one output token, shape (R, H).

    If all outputs have one token, it is the share in all requests.
    """
    rows = replicas.rows
    return _within(rows.weight, rows.answer > 1)


def itl_parts(
    replicas: ReplicaArrays, iteration: Iteration, places: BatchSlots, intervals: Intervals
) -> tuple[Parts, FloatArray]:
    """Return the distribution of the ITL of each row, and its upper bound [ms], shape (R, H) (eq. 86).

    The ITL is between that of an idle replica and that of an iteration with two standard deviations more
    requests and a full token budget.
    """
    least = MIN_ITL_SHARE * np.minimum(column(replicas.times.standing_ms(0.0)), intervals.mean_ms)
    crowd = np.minimum(iteration.decodes + 2 * np.sqrt(places.variance), replicas.places)
    budget = np.maximum(replicas.budget - crowd, 1.0)
    most = np.maximum(column(replicas.iteration_ms(crowd, budget)), intervals.mean_ms)
    return Parts.single(least, intervals.mean_ms - least, intervals.variance), most


def intervals_of(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, prompts: Prompts, places: BatchSlots
) -> Intervals:
    """Return the inter-token latencies of rows (eq. 78, 79).

    In addition to the mean iteration, an output is delayed by prompts that arrived during its prefill, and by
    the rest of its burst of arrivals. Both have more effect on short outputs.
    """
    rows, scv = replicas.rows, column(replicas.arrival_scv)
    steps = np.maximum(row_steps(rows), 1.0)
    mean = (
        column(iteration.mean_ms) + column(replicas.times.kv_read_per_token_ms) * replicas.row_context_shift
    )
    longest = np.maximum(prompts.longest_ms, iteration.mean_ms)
    turn, share = prompts.own_ms + column(prompts.wait_ms), np.minimum(prompts.share, 0.95)
    left = column(prompts.share / (1 - share) * (1 - iteration.mean_ms / longest)) * turn
    most = np.maximum(column(longest), mean)
    # E[1/O]·E[O] of short outputs exceeds 1 by about its squared coefficient of variation.
    of_answers = np.minimum(mean + left * (1 + rows.answer_scv) / steps, most)
    of_tokens = np.minimum(mean + left / steps, most)
    burst = np.where(scv > 1, burst_ms(replicas, rate, iteration, prompts, places), 0.0)
    even = scv <= NEARLY_EVEN
    stalls = stall_variance(replicas, rate, iteration, prompts, column(prompts.stall_square))
    batch = batch_variance(replicas, rate, iteration, places)
    return Intervals(
        np.where(even, mean, of_answers + burst),
        np.where(even, mean, of_tokens + burst),
        batch + stalls * (1 + rows.answer_scv),
        batch + stalls,
    )


def burst_ms(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, prompts: Prompts, places: BatchSlots
) -> FloatArray:
    """Return the ITL that later requests of the same burst add to each row [ms], shape (R, H) (eq. 78)."""
    steps, scv = row_steps(replicas.rows), replicas.arrival_scv
    ttft = prompts.own_ms + column(prompts.wait_ms + places.chance * places.wait_ms)
    during = dispersion(column(rate) * (ttft + steps * column(iteration.mean_ms)), column(scv))
    before = dispersion(rate * prompts.found_ms / 2, scv)
    after = (during - column(before)) / 2 - column(np.where(prompts.fits_one, 0.0, 1.0))
    return np.asarray(np.maximum(after, 0.0) * column(prompts.stall_ms) / np.maximum(steps, 1.0))


def batch_variance(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, places: BatchSlots
) -> FloatArray:
    """Return the variance of the ITL that batch and contexts cause in each row [ms²], shape (R, H) (eq. 79).

    Other requests change slowly, so their variation averages out only partly; the own context does not
    change.
    """
    standing, alike = replicas.times.standing_ms(iteration.seen), replicas.alike_ms(iteration)
    per_decode = (alike - standing) / iteration.seen
    read_square = replicas.times.kv_read_per_token_ms**2
    inside = rate * replicas.steps * alike * alike / np.maximum(standing, 1e-12)
    averaged = FIXED_LIFE + (RANDOM_LIFE - FIXED_LIFE) * np.minimum(replicas.answer_scv, 1.0)
    averaged *= places.batch_variance / np.maximum(places.variance, 1e-12)
    batch = averaged * (per_decode**2 * places.variance + read_square * replicas.context_variance * inside)
    return np.asarray(column(batch) + column(read_square) * replicas.own_context_variance)


def stall_variance(
    replicas: ReplicaArrays, rate: FloatArray, iteration: Iteration, prompts: Prompts, square: FloatArray
) -> FloatArray:
    """Return the variance of the ITL that prompts cause in each row [ms²], shape (R, H) (eq. 79).

    A short output averages over few iterations, so the variance over requests is larger than that over
    tokens.

    Args:
        replicas: R replicas.
        rate: arrival rate [1/ms].
        iteration: mean iterations.
        prompts: service of prompts.
        square: second moment of the delay that a prompt adds [ms²], shape (R, 1) or (R, H).
    """
    steps, per_iteration = row_steps(replicas.rows), column(rate * iteration.mean_ms)
    spread = dispersion(per_iteration * steps, column(replicas.arrival_scv))
    free = (1 - np.minimum(prompts.share, 0.95)) ** 2
    return np.asarray(per_iteration * square * spread / np.maximum(steps, 1.0) / column(free))
