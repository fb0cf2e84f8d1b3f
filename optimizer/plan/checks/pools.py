"""Recomputes the metrics of all pools and members of queues with their queue models.

Maximum rates are verified without a search: all targets must be met just below the rate, and one must be
missed just above it, unless it is the maximum stable rate. A rate is searched again only if this is
inconclusive.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.candidates.batches import with_best_batches
from optimizer.candidates.class_rows import ServerRows, rows_of
from optimizer.candidates.measuring import ReplicaMetrics, parts
from optimizer.candidates.pairs import Pairs, law_of, queue_capacity
from optimizer.kinds.table import KindPoolFields
from optimizer.plan.checks.differences import differences
from optimizer.plan.checks.facts import Facts
from optimizer.plan.checks.service import stated_limit
from optimizer.plan.rows import figures_at_load, origin_of, owner_of, pool_pairs
from optimizer.queueing.sizing import TPS_STABILITY_SHARE, largest_rate
from optimizer.queueing.targets import MISS_TOLERANCE, TARGET_TOLERANCE, Targets, meets_target
from optimizer.schema.pools import Pool
from optimizer.tolerances import ROUNDING, SAME
from optimizer.units import SECONDS_PER_MINUTE

FLAT = 1e-12
"""Relative difference from a target that counts as rounding."""


def check_pools(facts: Facts) -> list[str]:
    """Return errors for wrong values of pools and for missed targets."""
    pools = facts.placed.named_pools
    if not pools:
        return []
    pairs, rate_rps = pool_pairs(facts.arrays, pools)
    broken = [pools[row] for row in _without_work(facts, pairs)]
    if broken:
        return [f"{name}: no token times on {pool.accelerator} are known" for name, pool in broken]
    # The stated maximum is confirmed from both sides instead of searched again, which is much faster.
    most_rps = np.array([pool.max_arrival_rate_rpm / pool.num_replicas for _, pool in pools])
    most_rps = _largest_rates(facts, pairs, most_rps / SECONDS_PER_MINUTE)
    most_rps[[pool.role is not None for _, pool in pools]] = 0.0
    computed, measured = figures_at_load(facts.arrays, facts.whole, pairs, rate_rps)
    problems = [*_missed(facts, pairs, rate_rps, measured), *_batches(facts, pairs, rate_rps)]
    for i, (name, pool) in enumerate(pools):
        if np.isnan(most_rps[i]):
            problems.append(f"{name}: on {pool.accelerator} no rate meets the targets")
            continue
        true = dict.fromkeys(KindPoolFields.model_fields) | {"shapes": (), "doubts": ()} | computed[i]
        true |= _derived(facts, name, pool, float(most_rps[i]), computed[i]["utilization"])
        problems += _differences(true, pool, f"allocations.{name}.{facts.plan.allocations[name].index(pool)}")
    return problems


def _differences(true: dict[str, Any], pool: Pool, path: str) -> Iterator[str]:
    for name, value in true.items():
        place = f"{path}.{Pool.model_fields[name].alias or name}"
        yield from differences(value, getattr(pool, name), place, ROUNDING)


def _derived(facts: Facts, name: str, pool: Pool, most_rps: float, utilization: float) -> dict[str, Any]:
    """Return the fields of a pool that do not depend on its metrics at the load, by Python name."""
    system, count = facts.whole, pool.num_replicas
    profile = system.profiles[system.servers[name].model, pool.accelerator]
    price = system.accelerators[pool.accelerator].cost_cents_per_h * profile.acc_count
    return {
        "cost_cents_per_h": price * count,
        "max_arrival_rate_rpm": most_rps * SECONDS_PER_MINUTE * count,
        **owner_of(facts.system, name, pool.accelerator, count),
        **origin_of(facts.system, name, pool.accelerator, utilization * pool.max_batch),
    }


def _without_work(facts: Facts, pairs: Pairs) -> Iterator[int]:
    """Yield the indices of pools whose requests take no time, except those of idle servers."""
    loaded = np.flatnonzero(facts.arrays.servers.load_rps[pairs.server] > 0)
    for at, some in parts(facts.arrays, pairs.take(loaded)):
        yield from loaded[at[~law_of(facts.arrays, some).has_work()]].tolist()


# --- metrics -------------------------------------------------------------------------------------------


def _missed(facts: Facts, pairs: Pairs, rate_rps: FloatArray, measured: ReplicaMetrics) -> Iterator[str]:
    """Yield a text for each target that a pool with load misses, given the metrics of these pools."""
    loaded = np.flatnonzero(rate_rps > 0)
    targets = facts.arrays.servers.targets.take(pairs.server[loaded])
    for row, label, text in missed_targets(targets, measured.targets):
        name, pool = facts.placed.named_pools[loaded[row]]
        yield f"{name}: {label} on {pool.accelerator} is {text}"


def missed_targets(targets: Targets, values: FloatArray) -> Iterator[tuple[int, str, str]]:
    """Yield row, name and text of each target that `values`, shape (K, R), miss."""
    for k, row in np.argwhere(~meets_target(values, targets.limits, 2 * MISS_TOLERANCE)).tolist():
        measure, limit = targets.measures[k], targets.limits[k, row]
        yield row, measure.label, f"{measure.text(values[k, row])}, target {measure.text(limit)}"


def _batches(facts: Facts, pairs: Pairs, rate_rps: FloatArray) -> Iterator[str]:
    """Yield an error for each optimised batch limit that contradicts load and targets (eq. 26)."""
    if facts.whole.options.batch_sizing != "optimal":
        return
    arrays, pools = facts.arrays, facts.placed.named_pools
    limits = [stated_limit(facts, facts.system.servers[name], pool.accelerator) for name, pool in pools]
    # Batches of queues follow from their members; those of idle queues are checked like others.
    alone = np.flatnonzero(~arrays.servers.is_queue[pairs.server] | (rate_rps == 0))
    ceiling, pairs = np.array(limits).astype(np.int64)[alone], pairs.take(alone)
    max_queue = queue_capacity(arrays, pairs.server, ceiling)
    # The choice is repeated from the same ceiling, and must give the same batch.
    best = replace(pairs, max_batch=ceiling, batch_ceiling=ceiling, max_queue=max_queue)
    for row, batch in zip(alone.tolist(), with_best_batches(arrays, best).max_batch.tolist(), strict=True):
        name, pool = pools[row]
        if pool.max_batch != batch:
            yield f"{name}: batch {pool.max_batch} on {pool.accelerator}, the best is {batch}"


def check_members(facts: Facts) -> list[str]:
    """Return texts on the targets that members of queues miss at the load per replica.

    Other checks compare the metrics of members.
    """
    targets, problems = facts.arrays.servers.members.targets, list[str]()
    for (_, member), metrics in facts.placed.members:
        missed = missed_targets(replace(targets, limits=metrics.limits[:, None]), metrics.targets[:, None])
        problems += [f"{member}: {label} is {text}" for _, label, text in missed]
    return problems


# --- largest rates ---------------------------------------------------------------------------------------


def _largest_rates(facts: Facts, pairs: Pairs, stated_rps: FloatArray) -> FloatArray:
    """Return the maximum rate of a replica of each pool [requests/s]; the stated one if it is confirmed.

    The rate is NaN if no rate meets the targets.
    """
    arrays, largest_rates = facts.arrays, np.empty(len(stated_rps))
    idle = np.flatnonzero(arrays.servers.load_rps[pairs.server] == 0)
    loaded = np.flatnonzero(arrays.servers.load_rps[pairs.server] > 0)
    for at, some in parts(arrays, pairs.take(idle)):
        _, turnaround_ms = law_of(arrays, some).idle_times(some.max_batch)
        # Without load there is no queue: a full batch per turnaround time [ms].
        largest_rates[idle[at]] = 1000.0 * some.max_batch / turnaround_ms

    for rows, some in parts(arrays, pairs.take(loaded)):
        at = loaded[rows]
        factor = arrays.rate_factor[some.server, some.accelerator]
        usable = np.where(factor > 0, factor, np.nan)
        # The stated rate includes the usable share; targets are checked at the rate without it.
        whole_rps = stated_rps[at] / np.where(factor > 0, factor, 1.0)
        largest_rates[at] = usable * _confirmed(rows_of(arrays, some), whole_rps)
    return largest_rates


def _confirmed(rows: ServerRows, stated_rps: FloatArray) -> FloatArray:
    """Return the stated rates of pairs if they are verified to be maximal, else the recomputed rates."""
    confirmed = stated_rps.copy()
    # With chunk-count jumps, a test at two rates is not conclusive.
    settled = np.logical_not(rows.of_pairs(np.logical_or, rows.queues.is_non_monotone))
    pairs = np.flatnonzero(settled)
    if len(pairs):
        settled[pairs] = _is_largest(rows.take(pairs), stated_rps[pairs])
    others = np.flatnonzero(~settled)
    if len(others):
        some = rows.take(others)
        # The stated rate is a good start of the search, so most searches are short.
        searched = largest_rate(some.queues, some.targets, some.of_rows(stated_rps[others])).max_rate_rps
        confirmed[others] = some.of_pairs(np.minimum, searched)
    return confirmed


def _is_largest(rows: ServerRows, rate_rps: FloatArray) -> BoolArray:
    """Return a mask of pairs whose rate is verified to be maximal if latencies increase with the rate."""
    # With a throughput target, only a share of the stable rate is usable.
    limit = np.where(rows.targets.tps, TPS_STABILITY_SHARE, 1.0) * rows.queues.stable_rate_rps
    limit = rows.of_pairs(np.minimum, limit)
    both = rows.take(np.tile(np.arange(len(rate_rps)), 2))
    # Just below the rate all targets must hold, and just above it one must be missed.
    rates_rps = np.outer([1 - SAME / 2, 1 + SAME / 2], rate_rps).ravel()
    below, above = np.split(both.targets.ratios(both.analyze(rates_rps)) - 1, 2, axis=1)
    meets = rows.of_pairs(np.logical_and, (below <= 2 * TARGET_TOLERANCE).all(axis=0))
    over = rows.of_pairs(np.logical_or, (above > FLAT).any(axis=0))
    at_limit = np.abs(rate_rps - limit) <= SAME / 2 * limit
    # A rate is also maximal at the limit of stability, where no target needs to be missed.
    seen: BoolArray = (rate_rps > 0) & meets & (at_limit | (over & (rate_rps < limit)))
    return seen
