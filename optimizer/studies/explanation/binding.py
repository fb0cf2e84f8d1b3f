"""Which limits keep the largest rate of a replica from rising, found by relaxing each of them alone.

All replicas and all relaxations are sized at once, by the code that sized the candidates.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.pairs import (
    Pairs,
    batch_limit,
    largest_rates,
    queue_capacity,
    requests_in_memory,
    targets_of,
)
from optimizer.candidates.table import CandidateTable
from optimizer.queueing.measures import METRICS
from optimizer.studies.explanation.document import Binding, Limit
from optimizer.tabulation import SystemArrays

if TYPE_CHECKING:
    from optimizer.queueing.targets import Targets

RELAXATION = 0.01
"""Share by which a latency target is relaxed."""
LEAST_GAIN = 1e-8
"""Relative rise of the largest rate that is more than the root-finder's rounding."""


def binding_limits(
    arrays: SystemArrays, rows: CandidateTable, *, choose_batch: bool
) -> list[tuple[Binding, ...]]:
    """Return the binding constraints of each candidate (eq. 58); nothing for rows without load.

    Relaxed are: a latency target by 1 %, a throughput target by giving it up, a batch limit by one request,
    and the memory by the tokens of one request. Where no target binds, it is the stable rate, or a step (of
    the prefill chunks, or of chosen batches) that takes a larger relaxation. Two limits that stand at the
    same point, so that only both together raise the rate, are both named. Where batch sizes are chosen the
    rate is the largest over all batches, as a looser target may call for another.
    """
    bindings: list[tuple[Binding, ...]] = [()] * len(rows)
    loaded = np.flatnonzero(arrays.servers.load_rps[rows.server] > 0)
    if not len(loaded):
        return bindings
    gains = _gains(arrays, rows.take(loaded), choose_batch=choose_batch)
    capped = _caps(arrays, rows.take(loaded), choose_batch=choose_batch)
    for i, row in enumerate(loaded):
        gain = {name: float(values[i]) for name, values in gains.items()}
        caps = tuple(name for name, holds in capped.items() if holds[i])
        bindings[row] = (*_of_rate(gain), *_of_batch(gain["batch"], caps))
    return bindings


def _of_rate(gain: dict[str, float]) -> tuple[Binding, ...]:
    """Name the target that the largest rate runs into, or what stands in its place."""
    metrics = [name for name in METRICS if name in gain]
    found = [Binding(limit=name, rate_gain=gain[name]) for name in metrics if gain[name] > LEAST_GAIN]
    if gain["throughput"] > LEAST_GAIN:
        found.append(Binding(limit="throughput", rate_gain=gain["throughput"]))
    if found:
        return tuple(found)
    if gain["all"] > LEAST_GAIN:
        return tuple(Binding(limit=name, rate_gain=0.0) for name in metrics)
    return (Binding(limit="stability" if gain["any"] <= LEAST_GAIN else "step", rate_gain=0.0),)


def _of_batch(gain: float, caps: tuple[Limit, ...]) -> tuple[Binding, ...]:
    """Name what caps the batch, where a larger one would do."""
    if gain <= LEAST_GAIN:
        return ()
    return tuple(Binding(limit=name, rate_gain=gain if len(caps) == 1 else 0.0) for name in caps)


def _gains(arrays: SystemArrays, rows: CandidateTable, *, choose_batch: bool) -> dict[str, FloatArray]:
    """Return by how much the largest rate rises under each relaxation, as a share; shapes (R,)."""
    own, more = arrays.servers.targets, 1 + RELAXATION
    questions: dict[str, tuple[Targets, int]] = {
        metric: (own.scaled(more, metric), 0) for metric in own.metrics
    }
    questions |= {
        "all": (own.scaled(more), 0),
        "any": (own.scaled(np.inf), 0),
        "throughput": (replace(own, tps=np.zeros_like(own.tps)), 0),
        "batch": (own, 1),
    }
    now = _rates(arrays, rows, choose_batch=choose_batch)
    gains = {}
    for name, (targets, larger) in questions.items():
        asked = replace(arrays, servers=replace(arrays.servers, targets=targets))
        rates = _rates(asked, rows, larger, choose_batch=choose_batch)
        gains[name] = np.nan_to_num(rates / now - 1, nan=0.0)
    return gains


def _rates(arrays: SystemArrays, rows: CandidateTable, larger: int = 0, *, choose_batch: bool) -> FloatArray:
    """Return the largest rate at the batch of each row, or over all batches up to its ceiling."""
    batch = rows.batch_ceiling + larger
    pairs = Pairs(
        server=rows.server,
        accelerator=rows.accelerator,
        profile=arrays.profile_of[rows.server, rows.accelerator],
        max_batch=batch,
        max_queue=queue_capacity(arrays, rows.server, batch),
        batch_ceiling=batch,
        best_rate_rps=np.full(len(rows), np.nan),
    )
    if choose_batch:
        return with_best_batches(arrays, pairs).best_rate_rps
    return largest_rates(arrays, pairs, targets_of(arrays, pairs))


def _caps(arrays: SystemArrays, rows: CandidateTable, *, choose_batch: bool) -> dict[Limit, BoolArray]:
    """Return which of the two limits of the batch stand exactly at the largest batch of each row."""
    profile: IntArray = arrays.profile_of[rows.server, rows.accelerator]
    stated = batch_limit(arrays, rows.server, profile, choose_batch=choose_batch)
    return {
        "batch": stated < rows.batch_ceiling + 1,
        "memory": requests_in_memory(arrays, rows.server, profile) < rows.batch_ceiling + 1,
    }
