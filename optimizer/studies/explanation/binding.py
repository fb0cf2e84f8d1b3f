"""Limits that bind the maximum rate of a replica, found by relaxing each limit separately.

All replicas and all relaxations are sized at once, by the code that sizes candidates.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.pairs import (
    Pairs,
    batch_limit,
    largest_rates,
    requests_in_memory,
    targets_of,
)
from optimizer.candidates.table import CandidateTable
from optimizer.queueing.measures import METRICS
from optimizer.studies.explanation.explanation_document import Binding, Limit

if TYPE_CHECKING:
    from optimizer.queueing.targets import Targets

RELAXATION = 0.01
"""Fraction by which latency targets are relaxed."""
MIN_GAIN = 1e-8
"""Minimum relative increase of the maximum rate that counts; smaller ones are rounding of the root finder."""


def binding_limits(
    arrays: SystemArrays, rows: CandidateTable, *, choose_batch: bool
) -> list[tuple[Binding, ...]]:
    """Return the binding constraints of each candidate (eq. 58); none for candidates without load.

    Shared queues have none, because their members have separate targets. A latency target is relaxed by 1 %,
    a throughput target by removing it, a batch limit by one request, and the memory by the tokens of one
    request. If no target binds, the constraint is the maximum stable rate, or a jump (of the chunk count or
    of the optimised batch) that needs a larger relaxation. If two limits must both be relaxed to raise the
    rate, both are named. If batch limits are optimised, the rate is the maximum over all batches, because a
    looser target can change the best batch.
    """
    bindings: list[tuple[Binding, ...]] = [()] * len(rows)
    alone = ~arrays.servers.is_queue[rows.server]
    loaded = np.flatnonzero((arrays.servers.load_rps[rows.server] > 0) & alone)
    if not len(loaded):
        return bindings
    gains = _gains(arrays, rows.take(loaded), choose_batch=choose_batch)
    for i, row in enumerate(loaded):
        gain = {name: float(values[i]) for name, values in gains.items()}
        bindings[row] = (*_of_rate(gain), *_of_batch(gain))
    return bindings


def _of_rate(gain: dict[str, float]) -> tuple[Binding, ...]:
    """Return the target that binds the maximum rate, or the constraint that replaces it.

    `gain` is the relative increase of the rate by each relaxation.
    """
    metrics = [name for name in METRICS if name in gain]
    bindings = [Binding(limit=name, rate_gain=gain[name]) for name in metrics if gain[name] > MIN_GAIN]
    if gain["throughput"] > MIN_GAIN:
        bindings.append(Binding(limit="throughput", rate_gain=gain["throughput"]))
    if bindings:
        return tuple(bindings)
    if gain["all"] > MIN_GAIN:
        return tuple(Binding(limit=name, rate_gain=0.0) for name in metrics)
    return (Binding(limit="stability" if gain["any"] <= MIN_GAIN else "step", rate_gain=0.0),)


def _of_batch(gain: Mapping[str, float]) -> tuple[Binding, ...]:
    """Return the constraint on the batch, if a larger batch would raise the maximum rate.

    `gain` is the relative increase of the rate by each relaxation.
    """
    caps: tuple[Limit, ...] = ("batch", "memory")
    bindings = [Binding(limit=name, rate_gain=gain[name]) for name in caps if gain[name] > MIN_GAIN]
    if not bindings and gain["both"] > MIN_GAIN:
        return tuple(Binding(limit=name, rate_gain=0.0) for name in caps)
    return tuple(bindings)


def _gains(arrays: SystemArrays, rows: CandidateTable, *, choose_batch: bool) -> dict[str, FloatArray]:
    """Return the relative increase of the maximum rate by each relaxation, by limit name, shapes (R,)."""
    own, more = arrays.servers.targets, 1 + RELAXATION
    questions: dict[str, tuple[Targets, int, int]] = {
        metric: (own.scaled(more, metric), 0, 0) for metric in own.metrics
    }
    questions |= {
        "all": (own.scaled(more), 0, 0),
        "any": (own.scaled(np.inf), 0, 0),
        "throughput": (replace(own, tps=np.zeros_like(own.tps)), 0, 0),
        "batch": (own, 1, 0),
        "memory": (own, 0, 1),
        "both": (own, 1, 1),
    }
    now = _rates(arrays, rows, choose_batch=choose_batch)
    gains = {}
    for name, (targets, larger, more) in questions.items():
        asked = replace(arrays, servers=replace(arrays.servers, targets=targets))
        rates = _rates(asked, rows, larger, more, choose_batch=choose_batch)
        gains[name] = np.nan_to_num(rates / now - 1, nan=0.0)
    return gains


def _rates(
    arrays: SystemArrays, rows: CandidateTable, larger: int = 0, more: int = 0, *, choose_batch: bool
) -> FloatArray:
    """Return the maximum rate of each row [requests/s] at its batch limit, or the best one over all batches.

    Args:
        larger: number of requests by which the batch limits exceed the stated ones.
        more: number of additional requests that fit in the KV cache.
        choose_batch: whether the batch is optimised up to its ceiling.
    """
    profile: IntArray = arrays.profile_of[rows.server, rows.accelerator]
    tokens = arrays.servers.request_tokens[rows.server]
    mine = replace(arrays, profiles=arrays.profiles.of_rows(profile, more * tokens))
    own = np.arange(len(rows))
    stated = batch_limit(mine, rows.server, own, choose_batch=choose_batch) + larger
    batch = np.minimum(stated, requests_in_memory(mine, rows.server, own)).astype(np.int64)
    pairs = replace(Pairs.of(arrays, rows.server, rows.accelerator, batch), profile=own)
    if choose_batch:
        return with_best_batches(mine, pairs).best_rate_rps
    return largest_rates(mine, pairs, targets_of(mine, pairs))
