"""From a solution to a plan: indices become names again, and what is not served gets its reason."""

import numpy as np

from optimizer.arrays import IntArray
from optimizer.candidates import Candidates, CandidateTable, Rejection
from optimizer.plan.document import CapacityUse, Change, Level, Placement, Plan, Pool, Unserved
from optimizer.solvers.levels import VALUE
from optimizer.solvers.problem import Problem, Solution


def make_plan(candidates: Candidates, problem: Problem, solution: Solution) -> Plan:
    """Name what a solution chose."""
    fleet, table = candidates.fleet, candidates.table
    chosen = np.flatnonzero(solution.replicas)
    pools: dict[str, tuple[Pool, ...]] = {}
    for s, name in enumerate(fleet.server_names):
        first, last = np.searchsorted(table.server[chosen], [s, s + 1])
        mine = chosen[first:last]
        if len(mine) or not problem.to_serve[s]:
            pools[name] = tuple(_pool(candidates, solution, c) for c in mine)
    units = solution.replicas * table.units_per_replica
    used = np.bincount(table.kind, units, minlength=len(fleet.type_names)).astype(np.int64)
    unserved = tuple(
        _unserved(candidates, problem, s, used)
        for s in range(len(fleet.server_names))
        if fleet.server_names[s] not in pools
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
        allocations=pools,
        unserved=unserved,
        capacity=tuple(
            CapacityUse(
                type=name,
                limit=None if problem.capacity is None else int(problem.capacity[t]),
                used=int(used[t]),
            )
            for t, name in enumerate(fleet.type_names)
        ),
        changes=_changes(candidates, pools),
    )


def _pool(candidates: Candidates, solution: Solution, c: int) -> Pool:
    table, fleet = candidates.table, candidates.fleet
    replicas = int(solution.replicas[c])
    return Pool(
        accelerator=fleet.accelerator_names[table.accelerator[c]],
        num_replicas=replicas,
        max_batch=int(table.max_batch[c]),
        cost_cents_per_h=float(table.cost_per_replica[c] * replicas),
        arrival_rate_rpm=float(fleet.servers.load_rps[table.server[c]] * 60.0),
        max_arrival_rate_rpm=float(table.max_rate_rps[c] * 60.0 * replicas),
        itl_ms=float(table.itl_ms[c]),
        ttft_ms=float(table.ttft_ms[c]),
        utilization=float(table.utilization[c]),
        loss=float(table.loss[c]),
    )


def _changes(candidates: Candidates, pools: dict[str, tuple[Pool, ...]]) -> tuple[Change, ...]:
    changes = []
    costs = candidates.fleet.servers.current_cost
    for s, (name, server) in enumerate(candidates.system.servers.items()):
        current = server.current
        running = bool(current.accelerator and current.num_replicas)
        before = (
            (Placement(accelerator=current.accelerator, num_replicas=current.num_replicas),)
            if running
            else ()
        )
        mine = pools.get(name, ())
        after = tuple(
            Placement(accelerator=pool.accelerator, num_replicas=pool.num_replicas) for pool in mine
        )
        if before != after:
            difference = sum(pool.cost_cents_per_h for pool in mine) - float(costs[s])
            changes.append(
                Change.model_validate({"server": name, "from": before, "to": after, "costChange": difference})
            )
    return tuple(changes)


# --- reasons -------------------------------------------------------------------------------------------


def _unserved(candidates: Candidates, problem: Problem, s: int, used: IntArray) -> Unserved:
    first, last = np.searchsorted(candidates.table.server, [s, s + 1])
    mine = candidates.table.take(np.arange(first, last))
    reason, detail = _shortage(candidates, problem, mine, used) if len(mine) else _nearest_miss(candidates, s)
    return Unserved(
        server=candidates.fleet.server_names[s],
        priority=int(problem.priority[s]),
        reason=reason,
        detail=detail,
    )


def _shortage(
    candidates: Candidates, problem: Problem, mine: CandidateTable, used: IntArray
) -> tuple[str, str]:
    """Name the accelerator for which the fewest units are missing."""
    capacity = problem.capacity if problem.capacity is not None else np.full(len(used), np.inf)
    left = capacity[mine.kind] - used[mine.kind]
    c = int(np.lexsort((mine.units, mine.units - left))[0])
    accelerator = candidates.fleet.accelerator_names[mine.accelerator[c]]
    kind = candidates.fleet.type_names[mine.kind[c]]
    needed, there = int(mine.units[c]), int(left[c])
    text = f"{int(mine.num_replicas[c])} replicas on {accelerator} take {needed:,} units of {kind}; "
    if needed <= there:
        return "solver_stopped", text + f"{there:,} are left, but the solver stopped before it used them"
    return "capacity", text + f"{there:,} of {int(capacity[mine.kind[c]]):,} are left"


def _nearest_miss(candidates: Candidates, s: int) -> tuple[str, str]:
    """Name the rejection that misses by the smallest factor."""
    rejections = list(candidates.rejections(s))
    if not rejections:
        return "no_candidate", "there is no accelerator in the system"
    nearest = min(rejections, key=_miss)
    reasons = {item.reason for item in rejections if item.reason != "not_allowed"} or {"not_allowed"}
    reason = nearest.reason if len(reasons) == 1 else "no_candidate"
    if nearest.value is None and len(reasons) == 1:
        return reason, nearest.detail
    others = f" (the nearest of {len(rejections)} accelerators)" if len(rejections) > 1 else ""
    return reason, f"{nearest.accelerator}: {nearest.detail}{others}"


def _miss(rejection: Rejection) -> tuple[bool, bool, float]:
    """Return a key that puts measured misses first, by their factor, and what is not allowed last."""
    if rejection.value is None or not rejection.limit:
        return True, rejection.reason == "not_allowed", 0.0
    factor = rejection.value / rejection.limit
    return False, False, max(factor, 1 / factor)
