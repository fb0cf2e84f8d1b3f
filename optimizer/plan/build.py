"""From a solution to a plan: indices become names again, and what is not served gets its reason."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable, Rejection
from optimizer.candidates.finder import COUNT_TOLERANCE, Measured, measure_pairs
from optimizer.plan.document import (
    CapacityUse,
    Change,
    Level,
    Plan,
    Pool,
    TargetFigure,
    Unserved,
)
from optimizer.plan.reasons import (
    NO_ACCELERATOR,
    STOPPED_UNLIMITED,
    Shortage,
    rejection_reason,
    shortage_reason,
)
from optimizer.queueing.measures import MEANS
from optimizer.queueing.table import QUEUE_MODELS
from optimizer.solvers.formulation import served_in_full
from optimizer.solvers.levels import VALUE
from optimizer.solvers.problem import Problem, Solution, units_used
from optimizer.spec.schema import AllocationData
from optimizer.tabulation import SECONDS_PER_MINUTE, SystemArrays, slowest_of


def make_plan(candidates: Candidates, problem: Problem, solution: Solution) -> Plan:
    """Name what a solution chose, with every pool's performance at the load that it gets."""
    names = candidates.arrays.server_names
    pools = _pools(candidates, problem, solution.replicas)
    carried = np.array([sum(pool.arrival_rate_rpm for pool in pools.get(name, ())) for name in names])
    fraction = _served_fraction(problem, solution.replicas, carried / SECONDS_PER_MINUTE)
    for s, name in enumerate(names):
        if not problem.to_serve[s]:
            pools.setdefault(name, ())
    used = units_used(problem, solution.replicas, len(candidates.arrays.type_names))
    unserved = tuple(
        _unserved(candidates, problem, int(s), used, float(fraction[s]))
        for s in np.flatnonzero(~served_in_full(problem, solution.replicas))
    )
    value = solution.level(VALUE)
    return Plan(
        status=solution.status.value,
        solver=solution.solver,
        complete=not unserved,
        objective=value.value,
        bound=value.bound,
        gap=value.gap,
        levels=tuple(Level(name=x.name, value=x.value, bound=x.bound, gap=x.gap) for x in solution.levels),
        total_cost_cents_per_h=float(sum(pool.cost_cents_per_h for mine in pools.values() for pool in mine)),
        allocations={name: pools[name] for name in names if name in pools},
        unserved=unserved,
        capacity=tuple(
            CapacityUse(
                type=name,
                limit=None if problem.capacity is None else int(problem.capacity[t]),
                used=int(used[t]),
            )
            for t, name in enumerate(candidates.arrays.type_names)
        ),
        changes=_changes(candidates, pools),
        currency=candidates.system.currency,
        rate_factors=_rate_factors(candidates),
    )


def _rate_factors(candidates: Candidates) -> dict[str, dict[str, float]]:
    factors: dict[str, dict[str, float]] = {}
    for (server, accelerator), factor in candidates.system.rate_factors.items():
        factors.setdefault(server, {})[accelerator] = factor
    return factors


def _served_fraction(problem: Problem, replicas: IntArray, carried_rps: FloatArray) -> FloatArray:
    """Return the share of each server's load that is carried, or of its least replicas where it is idle."""
    count = np.bincount(problem.table.server, replicas, minlength=len(problem.priority))
    loaded = problem.load_rps > 0
    demand = np.where(loaded, problem.load_rps, np.maximum(problem.min_replicas, 1))
    share = np.where(problem.to_serve, np.minimum(np.where(loaded, carried_rps, count) / demand, 1.0), 1.0)
    return np.where(share >= 1 - COUNT_TOLERANCE, 1.0, share)


def _pools(candidates: Candidates, problem: Problem, replicas: IntArray) -> dict[str, tuple[Pool, ...]]:
    """Return the pools of every server that has any.

    The load splits in proportion to the pools' largest rates, so that each runs at the same share of its own
    (eq. 49); a server whose pools cannot carry all of it gives them what they can.
    """
    table, arrays = problem.table, candidates.arrays
    chosen = np.flatnonzero(replicas)
    count, server = replicas[chosen], table.server[chosen]
    most = table.max_rate_rps[chosen] * count
    together = np.bincount(server, most, minlength=len(problem.priority))[server]
    load = problem.load_rps[server]
    carried = (
        np.where(load >= together * (1 - COUNT_TOLERANCE), np.minimum(load, together), load) * most / together
    )
    figures = {name: getattr(table, name)[chosen] for name in ("itl_ms", "ttft_ms", "utilization", "loss")}
    figures["wait_ms"] = np.zeros(len(chosen))  # where there is no load nothing waits
    loaded = np.flatnonzero(carried > 0)
    measured = measure_pairs(
        arrays,
        server[loaded],
        table.accelerator[chosen[loaded]],
        table.max_batch[chosen[loaded]],
        carried[loaded] / count[loaded],
    )
    for name, values in figures.items():
        values[loaded] = getattr(measured.performance, name)
    figures_of = dict(
        zip(loaded.tolist(), _target_figures(arrays, server[loaded], measured.targets), strict=True)
    )
    collected = _collected(candidates, table.take(chosen), loaded, measured)
    rows = zip(
        server.tolist(),
        table.accelerator[chosen].tolist(),
        count.tolist(),
        table.max_batch[chosen].tolist(),
        (table.cost_per_replica[chosen] * count).tolist(),
        (carried * SECONDS_PER_MINUTE).tolist(),
        (most * SECONDS_PER_MINUTE).tolist(),
        strict=True,
    )
    shown = {name: values.tolist() for name, values in figures.items()}
    pools: dict[str, tuple[Pool, ...]] = {}
    for i, (s, a, replicas_here, max_batch, cost, rate_rpm, max_rate_rpm) in enumerate(rows):
        mine = {name: values[i] for name, values in shown.items()}
        pool = Pool(
            accelerator=arrays.accelerator_names[a],
            num_replicas=replicas_here,
            max_batch=max_batch,
            cost_cents_per_h=cost,
            arrival_rate_rpm=rate_rpm,
            max_arrival_rate_rpm=max_rate_rpm,
            **mine,
            targets=figures_of.get(i, ()),
            **collected[i],
            estimated=candidates.estimated(s, a),
            provenance=candidates.provenance(s, a),
            outside=candidates.outside(s, a, mine["utilization"] * max_batch),
        )
        name = arrays.server_names[s]
        pools[name] = (*pools.get(name, ()), pool)
    return pools


def _collected(
    candidates: Candidates, chosen: CandidateTable, loaded: IntArray, measured: Measured
) -> list[dict[str, Any]]:
    """Return what pools of batch servers show beside the figures of all: nothing for others."""
    arrays = candidates.arrays
    profile = arrays.profile_of[chosen.server, chosen.accelerator]
    models = [*QUEUE_MODELS.values()]
    rows: list[dict[str, Any]] = []
    place_of = {row: i for i, row in enumerate(loaded.tolist())}
    for row, (s, a) in enumerate(zip(chosen.server.tolist(), chosen.accelerator.tolist(), strict=True)):
        shown: dict[str, Any] = {}
        if not models[int(arrays.profiles.queue_model[profile[row]])].has_tokens:
            shown["batch_window_ms"] = float(arrays.servers.window_ms[s, a])
            shown["binding"] = slowest_of(
                candidates.system,
                arrays.server_names[s],
                arrays.accelerator_names[a],
                int(chosen.max_batch[row]),
            )
            if row in place_of:
                shown["busy"] = float(measured.busy[place_of[row]])
                shown["mean_batch"] = float(measured.mean_batch[place_of[row]])
        rows.append(shown)
    return rows


def _target_figures(
    arrays: SystemArrays, server: IntArray, measured: FloatArray
) -> Iterator[tuple[TargetFigure, ...]]:
    """Yield what is measured against each row's targets beyond means, shape (K, R)."""
    targets = arrays.servers.targets.take(server)
    other = [k for k, measure in enumerate(targets.measures) if measure not in MEANS]
    for row in range(len(server)):
        yield tuple(
            TargetFigure(
                measure=targets.measures[k].label,
                value=float(measured[k, row]),
                limit=float(targets.limits[k, row]),
            )
            for k in other
            if np.isfinite(targets.limits[k, row])
        )


def _changes(candidates: Candidates, pools: dict[str, tuple[Pool, ...]]) -> tuple[Change, ...]:
    changes = []
    costs = candidates.arrays.servers.current_cost
    for s, (name, server) in enumerate(candidates.system.servers.items()):
        before = [_placed(server.current)] if server.current.is_running else []
        mine = pools.get(name, ())
        after = [_placed(pool) for pool in mine]
        if before != after:
            difference = sum(pool.cost_cents_per_h for pool in mine) - float(costs[s])
            changes.append(
                Change.model_validate({"server": name, "from": before, "to": after, "costChange": difference})
            )
    return tuple(changes)


def _placed(item: AllocationData | Pool) -> dict[str, object]:
    return {"accelerator": item.accelerator, "numReplicas": item.num_replicas}


# --- reasons -------------------------------------------------------------------------------------------


def _unserved(candidates: Candidates, problem: Problem, s: int, used: IntArray, fraction: float) -> Unserved:
    first, last = np.searchsorted(problem.table.server, [s, s + 1])
    mine = np.arange(first, last)[problem.full[first:last]]
    if len(mine):
        reason, detail = _shortage(candidates, problem, problem.table.take(mine), used)
    else:
        reason, detail = nearest_miss(candidates, s)
    return Unserved(
        server=candidates.arrays.server_names[s],
        priority=int(problem.priority[s]),
        reason=reason,
        detail=detail,
        served_fraction=fraction,
    )


def _shortage(
    candidates: Candidates, problem: Problem, mine: CandidateTable, used: IntArray
) -> tuple[str, str]:
    """Name the accelerator for which the fewest units are missing."""
    if problem.capacity is None:
        return STOPPED_UNLIMITED
    left = (problem.capacity[mine.kind] - used[mine.kind]).astype(np.int64)
    c = int(np.lexsort((mine.units, mine.units - left))[0])
    kind = candidates.arrays.type_names[mine.kind[c]]
    return shortage_reason(
        Shortage(
            accelerator=candidates.arrays.accelerator_names[mine.accelerator[c]],
            type=kind,
            num_replicas=int(mine.num_replicas[c]),
            units=int(mine.units[c]),
            left=int(left[c]),
            limit=int(problem.capacity[mine.kind[c]]),
            is_listed=kind in candidates.system.capacity,
        )
    )


def nearest_miss(candidates: Candidates, s: int) -> tuple[str, str]:
    """Name the rejection that misses by the smallest factor."""
    rejections = list(candidates.rejections(s))
    if not rejections:
        return NO_ACCELERATOR
    labels = {item.reason for item in rejections if item.reason != "not_allowed"} or {"not_allowed"}
    return rejection_reason(min(rejections, key=_miss), labels, len(rejections))


def _miss(rejection: Rejection) -> tuple[bool, bool, float]:
    """Return a key that puts measured misses first, by their factor, and what is not allowed last."""
    if rejection.factor is None:
        return True, rejection.reason == "not_allowed", 0.0
    return False, False, rejection.factor
