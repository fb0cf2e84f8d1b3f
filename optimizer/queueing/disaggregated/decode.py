"""Queue model of decode replicas: continuous batching in which every prompt is one token.

The last prompt token is computed again with the transferred KV cache, as if it were decoded. Equation numbers
refer to ``docs/math.md``.
"""

from dataclasses import replace

import numpy as np

from optimizer.queueing.continuous.model import ContinuousQueues
from optimizer.queueing.continuous.replicas import ReplicaArrays
from optimizer.queueing.continuous.schedulers import SCHEDULERS
from optimizer.queueing.performance import ReplicaLimits, Variability
from optimizer.queueing.shapes import ShapeRows
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
