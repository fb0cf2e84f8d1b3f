"""Build a plan from a solution, with names instead of indices and reasons for unserved servers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import SystemArrays, own_fields, tabulate_as_served
from optimizer.candidates.measuring import COUNT_TOLERANCE, ReplicaMetrics, largest_queue_rates, measure_pairs
from optimizer.candidates.power import power_of_rows
from optimizer.candidates.renting import rented_per_million
from optimizer.candidates.table import NO_PATTERN
from optimizer.limits.cards import CARDS
from optimizer.limits.limit import PlacedReplicas
from optimizer.limits.power import POWER
from optimizer.limits.table import LIMITS
from optimizer.plan.caches import cache_uses
from optimizer.plan.deadlines import deadline_uses
from optimizer.plan.document import (
    EXTERNAL,
    SHARED,
    CapacityUse,
    Change,
    Kept,
    LimitUse,
    Plan,
    PlanLevel,
    Pool,
    Rented,
    SharedCardUse,
    TargetFigure,
    TierUse,
    Unserved,
)
from optimizer.plan.power import power_at_load_w
from optimizer.plan.replica_counts import replica_counts
from optimizer.plan.reserves import reserve_uses
from optimizer.plan.rollouts import rollout_uses
from optimizer.plan.routes import Divisions, divisions_of, route_uses, routed_loads_rpm
from optimizer.plan.rows import target_figures
from optimizer.plan.shared_cards import card_uses
from optimizer.plan.shared_queues import Served, is_shared, queue_uses, queues_as_served, unserved_members
from optimizer.plan.shortages import unserved_with_reason
from optimizer.plan.tiers import difference_cents_per_h, tier_uses
from optimizer.plan.versions import split_uses
from optimizer.solvers.levels import served_in_full
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.placed import kept_replicas, needs_power, placed, placed_cards, placed_cost, stock_of
from optimizer.spec.schema import AllocationData
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


def make_plan(candidates: Candidates, problem: Problem, solution: Solution) -> Plan:
    """Return the plan of a solution, with the performance of every pool at its load.

    Args:
        candidates: candidates of the system.
        problem: the planning problem.
        solution: its solution.
    """
    names = candidates.arrays.server_names
    queues = queues_as_served(candidates, problem, solution)
    divisions = divisions_of(candidates.system, problem, solution)
    arrays = _arrays_as_served(candidates, problem, solution, queues, divisions)
    cards = card_uses(candidates, problem, solution.replicas)
    pools, rented = _placed(candidates, arrays, problem, solution.replicas, cards)
    fraction = served_fraction(problem, solution.replicas, _carried_rps(names, pools, rented, cards))
    tiers = tier_uses(candidates.system, pools, cards)
    items = _items(candidates, problem, solution.replicas, tiers, rented.values(), cards)
    used_now = _with_load_use(candidates.system, arrays, _limit_uses(candidates, items), pools)
    left = _left(candidates.system, problem, solution.replicas, used_now)
    unserved = _unserved(candidates, problem, solution.replicas, left, items, fraction, queues)
    full = served_in_full(problem, solution.replicas)[: len(names)]
    reserves = reserve_uses(candidates, problem, solution, pools, full)
    rollouts = rollout_uses(candidates.system, pools)
    return Plan(
        **_proof_of(solution),
        complete=not unserved,
        total_cost_cents_per_h=_total_cost(pools, rented, tiers, cards),
        allocations={name: pools[name] for name in names if name in pools},
        shared_queues=queue_uses(candidates.system, arrays, pools, queues),
        routes=route_uses(candidates, divisions, pools),
        unserved=unserved,
        capacity=_capacity(candidates, problem, solution.replicas),
        limits=used_now,
        tiers=tiers,
        shared_cards=cards,
        rented=tuple(rented.values()),
        not_rented=candidates.system.not_rented,
        reserves=reserves,
        caches=cache_uses(candidates.system),
        versions=split_uses(candidates, problem, pools, unserved, reserves),
        rollouts=rollouts,
        replica_counts=replica_counts(arrays, pools, reserves, rollouts),
        deadlines=deadline_uses(candidates.system, pools, rented),
        changes=_changes(candidates, pools, rented, cards),
        currency=candidates.system.currency,
        rate_factors=_rate_factors(candidates),
        kept=_kept(candidates.system),
    )


def _proof_of(solution: Solution) -> dict[str, Any]:
    """Return the fields of a plan that state how well each objective is solved."""
    value = solution.level(VALUE)
    return {
        "status": solution.status.value,
        "solver": solution.solver,
        "objective": value.value,
        "bound": value.bound,
        "gap": value.gap,
        "levels": tuple(
            PlanLevel(name=x.name, value=x.value, bound=x.bound, gap=x.gap) for x in solution.levels
        ),
    }


def _kept(system: System) -> tuple[Kept, ...]:
    return tuple(
        Kept(server=server, accelerator=accelerator, num_replicas=replicas)
        for (server, accelerator), replicas in system.kept.items()
    )


def _arrays_as_served(
    candidates: Candidates, problem: Problem, solution: Solution, queues: Served, divisions: Divisions
) -> SystemArrays:
    """Return the system arrays with only the load that a solution serves of shared queues and routes."""
    names, system = candidates.arrays.server_names, candidates.system
    taken = (solution.replicas > 0) & (problem.table.pattern == NO_PATTERN)
    running = {names[s] for s in problem.table.server[taken].tolist()}
    loads = {**queues, **routed_loads_rpm(system, divisions, running)}
    return tabulate_as_served(system, candidates.arrays, loads)


def _unserved(
    candidates: Candidates,
    problem: Problem,
    replicas: IntArray,
    left: FloatArray,
    items: Sequence[PlacedReplicas],
    fraction: FloatArray,
    queues: Served,
) -> tuple[Unserved, ...]:
    """Return the servers not served in full, including those of shared queues, sorted by name."""
    names = candidates.arrays.server_names
    found = [
        unserved_with_reason(candidates, problem, int(s), left, items, float(fraction[s]))
        for s in np.flatnonzero(~served_in_full(problem, replicas))
        if names[s] not in queues
    ]
    found += unserved_members(candidates, problem, replicas, left, items, queues)
    return tuple(sorted(found, key=lambda item: item.server))


def _placed(
    candidates: Candidates,
    arrays: SystemArrays,
    problem: Problem,
    replicas: IntArray,
    cards: Iterable[SharedCardUse],
) -> tuple[dict[str, tuple[Pool, ...]], dict[str, Rented]]:
    """Return the pools of each server, empty if it needs none, and the rentals of servers, by name."""
    replicas = np.where(problem.table.pattern == NO_PATTERN, replicas, 0)
    own = problem.table.accelerator < len(candidates.arrays.accelerator_names)
    pools = _pools(candidates, arrays, problem, np.where(own, replicas, 0))
    full = served_in_full(problem, replicas)
    rented = {item.server: item for item in _rented(candidates, problem, np.where(own, 0, replicas))}
    for s, name in enumerate(candidates.arrays.server_names):
        needs = problem.to_serve[s] and not (problem.joint_load[s] and full[s])
        if not needs or name in rented or is_shared(candidates.system, name):
            pools.setdefault(name, ())
    return pools | {item.server: () for use in cards for item in use.servers}, rented


def _carried_rps(
    names: Iterable[str],
    pools: Mapping[str, Iterable[Pool]],
    rented: Mapping[str, Rented],
    cards: Iterable[SharedCardUse],
) -> FloatArray:
    """Return the served load of each server [requests/s], shape (S,)."""
    answered = {name: rented[name].arrival_rate_rpm if name in rented else 0.0 for name in names}
    for use in cards:
        for item in use.servers:
            answered[item.server] += item.arrival_rate_rpm
    carried = [
        sum(pool.arrival_rate_rpm for pool in pools.get(name, ())) + answered[name] for name in answered
    ]
    return np.array(carried) / SECONDS_PER_MINUTE


def _total_cost(
    pools: Mapping[str, Iterable[Pool]],
    rented: Mapping[str, Rented],
    tiers: Iterable[TierUse],
    cards: Iterable[SharedCardUse],
) -> float:
    cost = float(sum(pool.cost_cents_per_h for mine in pools.values() for pool in mine))
    cost += sum(use.cost_cents_per_h for use in cards)
    return cost + difference_cents_per_h(tiers) + sum(item.cost_cents_per_h for item in rented.values())


def _capacity(candidates: Candidates, problem: Problem, replicas: IntArray) -> tuple[CapacityUse, ...]:
    system, types = candidates.system, candidates.arrays.type_names
    used = problem.table.units_used(replicas, len(types)).tolist()
    limits = [None if system.options.unlimited else system.capacity.get(name, 0) for name in types]
    return tuple(
        CapacityUse(type=name, limit=limit, used=units)
        for name, limit, units in zip(types, limits, used[: len(types)], strict=True)
    )


def _with_load_use(
    system: System, arrays: SystemArrays, uses: tuple[LimitUse, ...], pools: Mapping[str, Iterable[Pool]]
) -> tuple[LimitUse, ...]:
    """Return the use of limits, including the power at the served load if power is limited."""
    placed_pools = [(name, pool) for name, mine in pools.items() for pool in mine]
    return tuple(
        use.model_copy(update={"used_at_load": float(power_at_load_w(system, arrays, placed_pools).sum())})
        if use.limit == POWER
        else use
        for use in uses
    )


def _items(
    candidates: Candidates,
    problem: Problem,
    replicas: IntArray,
    tiers: Iterable[TierUse],
    rented: Iterable[Rented],
    cards: Iterable[SharedCardUse],
) -> list[PlacedReplicas]:
    """Return all replicas and cards of a plan that count towards limits."""
    table, arrays, system = problem.table, candidates.arrays, candidates.system
    power = power_of_rows(candidates, table) if needs_power(system) else np.zeros(len(table))
    items = [
        placed(
            system,
            arrays.server_names[table.server[c]],
            arrays.accelerator_names[table.accelerator[c]],
            int(replicas[c]),
            float(power[c]),
        )
        for c in np.flatnonzero(replicas * table.units_per_replica * (table.pattern == NO_PATTERN))
    ]
    items += [placed_cards(system, use.accelerator, use.num_cards, use.name) for use in cards]
    items += [placed_cost(item.server, item.cost_cents_per_h) for item in rented]
    items += [placed_cost(use.accelerator, use.difference_cents_per_h) for use in tiers]
    return items


def _limit_uses(candidates: Candidates, items: Sequence[PlacedReplicas]) -> tuple[LimitUse, ...]:
    """Return the use of limits other than cards."""
    stock = stock_of(candidates.system, candidates.arrays.type_names)
    amounts = {limit: limit.amounts(stock) for limit in LIMITS if limit.name != CARDS}
    used = {limit: limit.used(items) for limit in amounts if amounts[limit]}
    return tuple(
        LimitUse(limit=limit.name, item=item, amount=amount, used=used[limit].get(item, 0.0))
        for limit, mine in amounts.items()
        for item, amount in mine.items()
    )


def _left(system: System, problem: Problem, replicas: IntArray, uses: Iterable[LimitUse]) -> FloatArray:
    """Return the remaining amount of each limited item, shape (R,), as the plan states it."""
    left, kept = problem.left_by(replicas), list(kept_replicas(system))
    place = {row.key: r for r, row in enumerate(problem.limits.items) if row.limit.is_sum}
    for use in uses:
        r = place.get((use.limit, use.item))
        if r is not None and not problem.limits.items[r].limit.whole:
            taken = problem.limits.items[r].limit.used(kept).get(use.item, 0.0) if kept else 0.0
            left[r] = max(use.amount - taken, 0.0) - use.used
    return left


def _rate_factors(candidates: Candidates) -> dict[str, dict[str, float]]:
    factors: dict[str, dict[str, float]] = {}
    for (server, accelerator), factor in candidates.system.rate_factors.items():
        factors.setdefault(server, {})[accelerator] = factor
    return factors


def served_fraction(problem: Problem, replicas: IntArray, carried_rps: FloatArray) -> FloatArray:
    """Return the served fraction of each server's load, or of its minimum replicas if it is idle."""
    count = np.bincount(problem.table.server, replicas, minlength=len(problem.priority))
    loaded = problem.load_rps > 0
    carried_rps = np.append(carried_rps, np.zeros(len(problem.priority) - len(carried_rps)))  # extra servers
    demand = np.where(loaded, problem.load_rps, np.maximum(problem.min_replicas, 1))
    share = np.where(problem.to_serve, np.minimum(np.where(loaded, carried_rps, count) / demand, 1.0), 1.0)
    return np.where(share >= 1 - COUNT_TOLERANCE, 1.0, share)


def _pools(
    candidates: Candidates, arrays: SystemArrays, problem: Problem, replicas: IntArray
) -> dict[str, tuple[Pool, ...]]:
    """Return the pools of each server with replicas."""
    chosen = np.flatnonzero(replicas)
    table, count = problem.table.take(chosen), replicas[chosen]
    most_rps, carried_rps = _shared_loads(arrays, problem, table, count)
    loaded = np.flatnonzero(carried_rps > 0)
    measured = measure_pairs(
        arrays,
        table.server[loaded],
        table.accelerator[loaded],
        table.max_batch[loaded],
        carried_rps[loaded] / count[loaded],
    )
    figures = _figures(table, loaded, measured)
    targets = dict(
        zip(
            loaded.tolist(),
            _target_figures(arrays, table.server[loaded], measured.targets),
            strict=True,
        )
    )
    own = _own_figures(candidates, table, loaded, measured)
    pools: dict[str, tuple[Pool, ...]] = {}
    for i, (s, a) in enumerate(zip(table.server.tolist(), table.accelerator.tolist(), strict=True)):
        batch = int(table.max_batch[i])
        pool = Pool(
            accelerator=arrays.accelerator_names[a],
            num_replicas=int(count[i]),
            max_batch=batch,
            cost_cents_per_h=float(table.cost_per_replica[i] * count[i]),
            arrival_rate_rpm=float(carried_rps[i] * SECONDS_PER_MINUTE),
            max_arrival_rate_rpm=float(most_rps[i] * SECONDS_PER_MINUTE),
            **figures[i],
            targets=targets.get(i, ()),
            **own[i],
            estimated=candidates.estimated(s, a),
            provenance=candidates.provenance(s, a),
            outside=candidates.outside(s, a, figures[i]["utilization"] * batch),
        )
        name = arrays.server_names[s]
        pools[name] = (*pools.get(name, ()), pool)
    return pools


def _shared_loads(
    arrays: SystemArrays, problem: Problem, table: CandidateTable, count: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the maximum and the actual load of each pool [requests/s].

    The load is split in proportion to the pools' maximum rates, so that all have the same utilisation (eq.
    49). If the pools cannot carry all of it, each runs at its maximum.
    """
    most, load = table.max_rate_rps * count, table.load_rps
    load = np.where(problem.joint_load[table.server], arrays.servers.load_rps[table.server], load)
    queued = arrays.servers.is_queue[table.server]
    if queued.any():
        load = np.where(queued, arrays.servers.load_rps[table.server], load)
        partly = np.flatnonzero(queued & (load != table.load_rps))
        most[partly] = largest_queue_rates(arrays, table.take(partly)) * count[partly]
    together = np.bincount(table.server, most, minlength=len(problem.priority))[table.server]
    is_too_much = load >= together * (1 - COUNT_TOLERANCE)
    return most, np.where(is_too_much, np.minimum(load, together), load) * most / together


def _figures(table: CandidateTable, loaded: IntArray, measured: ReplicaMetrics) -> list[dict[str, Any]]:
    """Return the mean metrics of each pool at its load, or those of its candidate without load."""
    figures = {name: getattr(table, name).copy() for name in ("itl_ms", "ttft_ms", "utilization", "loss")}
    figures["wait_ms"] = np.zeros(len(table))  # no queueing without load
    for name, values in figures.items():
        values[loaded] = getattr(measured.performance, name)
    columns = {name: values.tolist() for name, values in figures.items()}
    return [{name: values[i] for name, values in columns.items()} for i in range(len(table))]


def _own_figures(
    candidates: Candidates, chosen: CandidateTable, loaded: IntArray, measured: ReplicaMetrics
) -> list[dict[str, Any]]:
    """Return the additional fields of pools' kinds: settings, and metrics if there is a load."""
    place_of = {row: i for i, row in enumerate(loaded.tolist())}
    rows: list[dict[str, Any]] = []
    pairs = zip(
        *(column.tolist() for column in (chosen.server, chosen.accelerator, chosen.max_batch)), strict=True
    )
    for row, (s, a, batch) in enumerate(pairs):
        shown = dict(own_fields(candidates.arrays, candidates.system, s, a, batch))
        for name, values in measured.own.items() if row in place_of else ():
            value = float(values[place_of[row]])
            shown |= {} if math.isnan(value) else {name: value}
        rows.append(shown)
    return rows


def _target_figures(
    arrays: SystemArrays, server: IntArray, measured: FloatArray
) -> Iterator[tuple[TargetFigure, ...]]:
    """Yield the targets of each row other than means; queues have none, because their members do.

    Args:
        arrays: the system as arrays.
        server: indices of the servers, shape (R,).
        measured: values of the targets' measures, shape (K, R).
    """
    targets = arrays.servers.targets.take(server)
    for row, queued in enumerate(arrays.servers.is_queue[server].tolist()):
        found = target_figures(targets.measures, measured[:, row], targets.limits[:, row])
        yield () if queued else found


def _rented(candidates: Candidates, problem: Problem, replicas: IntArray) -> Iterator[Rented]:
    """Yield the external services that a solution uses."""
    table = problem.table
    for c in np.flatnonzero(replicas).tolist():
        yield Rented(
            server=candidates.arrays.server_names[table.server[c]],
            arrival_rate_rpm=float(problem.load_rps[table.server[c]] * SECONDS_PER_MINUTE),
            cost_cents_per_h=float(table.cost_per_replica[c] * replicas[c]),
            cost_per_million=_per_million(candidates, int(table.server[c])),
            itl_ms=float(table.itl_ms[c]),
            ttft_ms=float(table.ttft_ms[c]),
        )


def _per_million(candidates: Candidates, s: int) -> float:
    server = candidates.system.servers[candidates.arrays.server_names[s]]
    assert server.external is not None
    return rented_per_million(server.external, server.current.load)


def _changes(
    candidates: Candidates,
    pools: dict[str, tuple[Pool, ...]],
    rented: Mapping[str, Rented],
    cards: Iterable[SharedCardUse],
) -> tuple[Change, ...]:
    changes, on_cards = [], dict[str, float]()
    for item in (item for use in cards for item in use.servers):
        on_cards[item.server] = on_cards.get(item.server, 0.0) + item.cost_cents_per_h
    costs = candidates.arrays.servers.current_cost
    for s, (name, server) in enumerate(candidates.system.servers.items()):
        before = [_placement(server.current)] if server.current.is_running else []
        mine = pools.get(name, ())
        after = [_placement(pool) for pool in mine]
        after += [{"accelerator": EXTERNAL, "numReplicas": 1}] if name in rented else []
        after += [{"accelerator": SHARED, "numReplicas": 1}] if name in on_cards else []
        if before != after:
            cost = sum(item.cost_cents_per_h for item in (*mine, rented.get(name)) if item)
            cost += on_cards.get(name, 0.0)
            difference = cost - float(costs[s])
            changes.append(
                Change.model_validate({"server": name, "from": before, "to": after, "costChange": difference})
            )
    return tuple(changes)


def _placement(item: AllocationData | Pool) -> dict[str, object]:
    return {"accelerator": item.accelerator, "numReplicas": item.num_replicas}
