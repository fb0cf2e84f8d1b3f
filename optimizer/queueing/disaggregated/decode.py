"""Queue model of decode replicas: continuous batching in which every prompt is one token.

The last prompt token is computed again with the transferred KV cache, as if it were decoded. Equation numbers
refer to ``docs/math.md``.
"""

from dataclasses import replace

import numpy as np

from optimizer.arrays import BoolArray
from optimizer.queueing.continuous.distributions import Parts
from optimizer.queueing.continuous.latencies import Latencies
from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.continuous.replicas import ReplicaArrays, column, row_steps
from optimizer.queueing.continuous.schedulers import SCHEDULERS
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.shapes import ShapeRows, row_sum
from optimizer.timing.engine import EngineLaw


def decode_rows(rows: ShapeRows) -> ShapeRows:
    """Return the rows of loads as decode replicas see them: all prompt tokens but one are in the cache."""
    before = np.maximum(rows.computed + rows.cached - 1, 0.0)
    held = np.maximum(rows.computed + rows.stored - 1, 0.0)
    one, none = np.ones_like(before), np.zeros_like(before)
    return replace(rows, computed=one, cached=before, stored=held, computed_scv=none)


def decode_queues(
    law: EngineLaw, rows: ShapeRows, variability: Variability, limits: ReplicaLimits
) -> ContinuousQueues:
    """Return the queue model of decode replicas (eq. 298).

    Args:
        law: latency model.
        rows: rows of the loads, without variation of the computed tokens.
        variability: coefficient of variation of the arrivals.
        limits: limits of the replicas.
    """
    replicas = ReplicaArrays.of(law, replace(variability, shapes=decode_rows(rows)), limits)
    times = law.iterations
    # A prompt token reads the KV cache like a decoded one.
    times = replace(
        times, prompt_attention_ms=times.kv_read_per_token_ms, prompt_base_ms=np.zeros_like(times.base_ms)
    )
    # The token budget does not limit decode replicas.
    replicas = replace(replicas, times=times, budget=2 * replicas.places)
    largest = SCHEDULERS["chunked"].largest_rate(replicas)
    chunked = np.zeros(len(largest), np.bool_)
    return ContinuousQueues(replicas, chunked, limits.max_queue, limits.max_batch, largest)


def step_after_handover(decode: Latencies) -> Parts:
    """Return the times from the handover to the next token, without a wait for a batch slot."""
    return Parts(*(values[..., 0] for values in decode.first.columns()))


def with_first_interval(decode: Latencies, rows: ShapeRows, seeded: BoolArray) -> Latencies:
    """Return latencies in which the time from the handover to the next token counts for the ITL (eq. 301).

    Args:
        decode: latencies of decode replicas.
        rows: rows of the loads, with the tokens of the client.
        seeded: mask of the rows of which the prefill replica sends the first token, shape (R,).
    """
    entry, steps = step_after_handover(decode), np.maximum(row_steps(rows), 1.0)
    wait = decode.place_chance * decode.place_wait_ms
    tau = decode.interval.rows_ms
    excess = entry.least_ms + entry.mean_ms + column(wait) - tau
    spread = entry.variance + column(2 * decode.place_chance * decode.place_wait_ms**2 - wait**2)
    # Moments of the inverse of the number of intervals, which is lognormal and at least 1.
    growth = 1 + rows.answer_scv * ((steps + 1) / steps) ** 2
    inverse, square = np.minimum(growth / steps, 1.0), np.minimum(growth**3 / steps**2, 1.0)
    more = np.maximum((excess**2 + spread) * square - (excess * inverse) ** 2, 0.0)
    itl = np.where(seeded[:, np.newaxis], tau + excess * inverse, tau)
    interval = decode.interval
    return replace(
        decode,
        itl_ms=row_sum(decode.decoding * itl),
        interval=replace(
            interval,
            mean_ms=np.maximum(interval.mean_ms + (itl - tau)[..., np.newaxis], 0.0),
            variance=interval.variance + np.where(seeded[:, np.newaxis], more, 0.0)[..., np.newaxis],
        ),
        most_itl_ms=np.where(seeded[:, np.newaxis], np.inf, decode.most_itl_ms),
    )
