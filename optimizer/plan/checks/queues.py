"""Check the performance of all pools with their queue models.

Maximum rates are verified without a search: all targets must be met just below the rate, and one must be
missed just above it, unless it is the maximum stable rate. Only inconclusive rates are searched again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates.arrays import SystemArrays, own_fields
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.pairs import Pairs, chunks, law_of, queue_capacity, replicas_of, targets_of
from optimizer.kinds.table import KindPoolFields
from optimizer.parallel import in_threads
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, SHARE_TOLERANCE, Facts, close, differing
from optimizer.plan.checks.service import batch_limit, is_well_formed
from optimizer.plan.document import Pool
from optimizer.plan.rows import pool_rows
from optimizer.quantities import precise
from optimizer.queueing.measures import MEANS
from optimizer.queueing.performance import QueueModel
from optimizer.queueing.sizing import TPS_STABILITY_SHARE, largest_rate
from optimizer.queueing.targets import MISS_TOLERANCE, TARGET_TOLERANCE, Targets, meets_target
from optimizer.timing import Law
from optimizer.units import SECONDS_PER_MINUTE

FLAT = 1e-12
"""Relative difference from a target that counts as equal."""
FIGURES = (
    ("itl_ms", "ITL", " ms", RELATIVE_TOLERANCE),
    ("ttft_ms", "TTFT", " ms", RELATIVE_TOLERANCE),
    ("wait_ms", "wait", " ms", RELATIVE_TOLERANCE),
    ("utilization", "utilization", "", SHARE_TOLERANCE),
    ("loss", "loss", "", SHARE_TOLERANCE),
)
"""Metrics of a pool at its load: field, name, unit and absolute tolerance."""


@dataclass(frozen=True, slots=True)
class _QueueMetrics:
    """Performance of pools at their loads, one row each; shapes (R,)."""

    measured: FloatArray
    """Values of the target measures, shape (K, R)."""
    itl_ms: FloatArray
    ttft_ms: FloatArray
    wait_ms: FloatArray
    utilization: FloatArray
    loss: FloatArray
    max_rate_rps: FloatArray
    """Maximum rate of a replica; NaN if no rate meets the targets."""
    own: Mapping[str, FloatArray]
    """Metrics of individual kinds, by field of `Pool`."""


def check_queues(facts: Facts) -> list[str]:
    """Return wrong metrics of pools, and missed targets."""
    rows = [
        (name, pool)
        for name, pool in facts.pools
        if is_well_formed(facts, name, pool)
        and not (name in facts.plan.shared_queues and pool.arrival_rate_rpm > 0)
    ]
    if not rows:
        return []
    pairs = _pairs(facts, rows)
    return [*_batches(facts, pairs, rows), *_performance(facts, pairs, rows)]


def _pairs(facts: Facts, rows: list[tuple[str, Pool]]) -> Pairs:
    """Return the pools as pairs of server and accelerator."""
    arrays = facts.arrays
    server, accelerator, batch, _ = pool_rows(arrays, rows)
    limits = [batch_limit(facts, facts.system.servers[name], pool.accelerator) for name, pool in rows]
    return Pairs(
        server=server,
        accelerator=accelerator,
        profile=arrays.profile_of[server, accelerator],
        max_batch=batch,
        max_queue=queue_capacity(arrays, server, batch),
        batch_ceiling=np.array(limits).astype(np.int64),
        best_rate_rps=np.full(len(rows), np.nan),
    )


def _batches(facts: Facts, pairs: Pairs, rows: list[tuple[str, Pool]]) -> Iterator[str]:
    """Check optimised batch limits against load and targets (eq. 26)."""
    if facts.system.options.batch_sizing != "optimal":
        return
    arrays, ceiling = facts.arrays, pairs.batch_ceiling
    best = with_best_batches(
        arrays, replace(pairs, max_batch=ceiling, max_queue=queue_capacity(arrays, pairs.server, ceiling))
    ).max_batch
    for (name, pool), batch in zip(rows, best, strict=True):
        if pool.max_batch != batch:
            yield f"{name}: batch {pool.max_batch} on {pool.accelerator}, the best is {batch}"


def _performance(facts: Facts, pairs: Pairs, rows: list[tuple[str, Pool]]) -> Iterator[str]:
    arrays = facts.arrays
    for chunk, at_replica in _figures(arrays, pairs, [pool for _, pool in rows]):
        some = pairs.take(chunk)
        network_ms = arrays.servers.network_ms[some.server, some.accelerator]
        found = _at_client(at_replica, targets_of(arrays, some), network_ms)
        targets = arrays.servers.targets.take(some.server)
        missed = ~meets_target(found.measured, targets.limits, 2 * MISS_TOLERANCE)
        figures = [getattr(found, field).tolist() for field, *_ in FIGURES]
        others = [k for k, measure in enumerate(targets.measures) if measure not in MEANS]
        for i, (row, maximum_rps) in enumerate(zip(chunk, found.max_rate_rps.tolist(), strict=True)):
            name, pool = rows[row]
            for (field, word, unit, absolute), values in zip(FIGURES, figures, strict=True):
                value, stated = values[i], getattr(pool, field)
                yield from differing(
                    f"{name}: {word} on {pool.accelerator} is", value, stated, unit, absolute
                )
            for k in np.flatnonzero(missed[:, i]) if pool.arrival_rate_rpm > 0 else ():
                measure, value, limit = targets.measures[k], found.measured[k, i], targets.limits[k, i]
                text = f"{measure.text(value)}, target {measure.text(limit)}"
                yield f"{name}: {measure.label} on {pool.accelerator} is {text}"
            yield from _own_fields(facts, some, found, i, name, pool)
            shown = [k for k in others if targets.limits[k, i] < np.inf]
            yield from _target_figures(name, pool, targets, shown, found.measured[:, i], targets.limits[:, i])
            maximum = maximum_rps * SECONDS_PER_MINUTE * pool.num_replicas
            if np.isnan(maximum):
                yield f"{name}: on {pool.accelerator} no rate meets the targets"
            elif not close(maximum, pool.max_arrival_rate_rpm):
                yield (
                    f"{name}: the maximum rate on {pool.accelerator} is {precise(maximum)} requests/min, "
                    f"the plan says {precise(pool.max_arrival_rate_rpm)}"
                )


def _at_client(found: _QueueMetrics, targets: Targets, network_ms: FloatArray) -> _QueueMetrics:
    """Return the metrics with the network latency between client and replica added."""
    delays = np.where(targets.limits < np.inf, targets.delays(network_ms), 0.0)
    return replace(found, measured=found.measured + delays, ttft_ms=found.ttft_ms + network_ms)


def _own_fields(
    facts: Facts, pairs: Pairs, found: _QueueMetrics, row: int, name: str, pool: Pool
) -> Iterator[str]:
    """Check the additional fields of a pool's kind, and that it has none of other kinds."""
    pair = int(pairs.server[row]), int(pairs.accelerator[row])
    expected = {**own_fields(facts.arrays, facts.system, *pair, pool.max_batch)}
    expected |= {field: float(values[row]) for field, values in found.own.items()}
    for field in KindPoolFields.model_fields:
        value, stated = expected.get(field), getattr(pool, field)
        if isinstance(value, float) and isinstance(stated, float) and close(value, stated, SHARE_TOLERANCE):
            continue
        if value != stated:
            label = Pool.model_fields[field].alias or field
            yield f"{name}: {label} on {pool.accelerator} is {value}, the plan says {stated}"


def _target_figures(
    name: str, pool: Pool, targets: Targets, shown: list[int], measured: FloatArray, limits: FloatArray
) -> Iterator[str]:
    """Check the values of a pool's targets other than means."""
    expected = [targets.measures[k].label for k in shown] if pool.arrival_rate_rpm > 0 else []
    stated = [item.measure for item in pool.targets]
    if stated != expected:
        yield f"{name}: on {pool.accelerator} targets use {stated}, not {expected}"
        return
    for k, item in zip(shown, pool.targets, strict=False):
        for what, value, claimed in (("", measured[k], item.value), ("the limit on ", limits[k], item.limit)):
            if not close(float(value), claimed, SHARE_TOLERANCE):
                text = f"{name}: {what}{item.measure} on {pool.accelerator} is {precise(value)}"
                yield f"{text}, the plan says {precise(claimed)}"


def _figures(
    arrays: SystemArrays, pairs: Pairs, pools: list[Pool]
) -> Iterator[tuple[IntArray, _QueueMetrics]]:
    """Yield rows of pools with their performance, idle pools first."""
    replicas = np.array([pool.num_replicas for pool in pools])
    rate = np.array([pool.arrival_rate_rpm for pool in pools]) / SECONDS_PER_MINUTE / replicas
    maximum = np.array([pool.max_arrival_rate_rpm for pool in pools]) / SECONDS_PER_MINUTE / replicas
    idle = arrays.servers.load_rps[pairs.server] == 0
    for rows in chunks(arrays, pairs, np.flatnonzero(idle)):
        some = pairs.take(rows)
        yield rows, _idle_figures(law_of(arrays, some), some, targets_of(arrays, some))

    def of_loaded(rows: IntArray) -> list[tuple[IntArray, _QueueMetrics]]:
        found = []
        has_work = law_of(arrays, pairs.take(rows)).has_work()
        works, broken = rows[has_work], rows[~has_work]
        if len(works):
            some = pairs.take(works)
            queues, targets = replicas_of(arrays, some), targets_of(arrays, some)
            factor = arrays.rate_factor[some.server, some.accelerator]
            found.append((works, _loaded_figures(queues, targets, rate[works], maximum[works], factor)))
        if len(broken):
            nothing = np.zeros(len(broken))
            measured = np.zeros_like(targets_of(arrays, pairs.take(broken)).limits)
            none = nothing + np.nan
            figures = _QueueMetrics(measured, nothing, nothing, nothing, nothing, nothing, none, {})
            found.append((broken, figures))
        return found

    for found in in_threads(of_loaded, chunks(arrays, pairs, np.flatnonzero(~idle))):
        yield from found


def _idle_figures(law: Law, pairs: Pairs, targets: Targets) -> _QueueMetrics:
    """Return the reference's metrics for replicas without load."""
    times, turnaround_ms = law.idle_times(pairs.max_batch)
    nothing = np.zeros(len(pairs.server))
    return _QueueMetrics(
        measured=np.zeros_like(targets.limits),
        itl_ms=times.itl_ms,
        ttft_ms=times.first_token_ms,
        wait_ms=nothing,
        utilization=nothing,
        loss=nothing,
        max_rate_rps=1000.0 * pairs.max_batch / turnaround_ms,
        own={},
    )


def _loaded_figures(
    queues: QueueModel, targets: Targets, rate_rps: FloatArray, stated_rps: FloatArray, factor: FloatArray
) -> _QueueMetrics:
    """Return the performance of pools at their loads, with verified maximum rates.

    Args:
        queues: queue models of the pools, R rows.
        targets: their targets.
        rate_rps: their loads per replica [requests/s], shape (R,).
        stated_rps: stated maximum rates of a replica [requests/s], shape (R,).
        factor: factors included in the stated rates, shape (R,).
    """
    found = queues.analyze(rate_rps)
    maximum = stated_rps / np.where(factor > 0, factor, 1.0)
    settled = ~queues.is_non_monotone  # with chunk-count jumps, two rates are not conclusive
    rows = np.flatnonzero(settled)
    if len(rows):
        settled[rows] = _is_largest(queues.take(rows), targets.take(rows), maximum[rows])
    unsettled = np.flatnonzero(~settled)
    if len(unsettled):
        maximum[unsettled] = largest_rate(queues.take(unsettled), targets.take(unsettled)).max_rate_rps
    return _QueueMetrics(
        targets.figures(found),
        found.itl_ms,
        found.ttft_ms,
        found.wait_ms,
        found.utilization,
        found.loss,
        maximum * np.where(factor > 0, factor, np.nan),
        found.own,
    )


def _is_largest(queues: QueueModel, targets: Targets, rate_rps: FloatArray) -> BoolArray:
    """Return a mask of rates verified to be maximal, assuming that latencies increase with the rate."""
    limit = np.where(targets.tps, TPS_STABILITY_SHARE, 1.0) * queues.stable_rate_rps
    twice = np.tile(np.arange(len(rate_rps)), 2)
    below, above = rate_rps * (1 - RELATIVE_TOLERANCE / 2), rate_rps * (1 + RELATIVE_TOLERANCE / 2)
    around = queues.take(twice).analyze(np.concatenate([below, above]))
    below, above = np.split(targets.take(twice).ratios(around) - 1, 2, axis=1)
    meets = (below <= 2 * TARGET_TOLERANCE).all(axis=0)
    over = (above > FLAT).any(axis=0)
    at_limit = np.abs(rate_rps - limit) <= RELATIVE_TOLERANCE / 2 * limit
    seen: BoolArray = (rate_rps > 0) & meets & (at_limit | (over & (rate_rps < limit)))
    return seen
