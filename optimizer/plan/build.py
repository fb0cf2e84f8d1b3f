"""Builds a plan from a solution: names instead of indices, metrics, and reasons for unserved servers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import SystemArrays, tabulate_as_served
from optimizer.candidates.measuring import largest_rates_of, measure_pairs
from optimizer.candidates.replica_power import power_of_rows
from optimizer.candidates.table import Source
from optimizer.features.external.uses import Rented
from optimizer.features.external.view import rental
from optimizer.features.routes.feature import ROUTES
from optimizer.features.routes.view import Divisions, all_large_cents_per_h, divisions_of, routed_loads_rpm
from optimizer.features.shared_cards.feature import SHARED_CARDS
from optimizer.features.shared_cards.uses import SharedCardUse
from optimizer.features.shared_cards.view import card_uses
from optimizer.features.shared_queues.feature import SHARED_QUEUES
from optimizer.features.shared_queues.uses import SharedQueueUse
from optimizer.features.shared_queues.view import (
    Served,
    measured_members,
    member_figures,
    queue_uses,
    queues_as_served,
    short_members,
)
from optimizer.features.views import StatedFacts, sections
from optimizer.plan.document import Plan, PlanLevel, Unserved
from optimizer.plan.rows import idle_figures, origin_of, pool_figures
from optimizer.plan.shortages import Shortages
from optimizer.plan.views import PlanPlacements
from optimizer.schema.pools import Pool
from optimizer.solvers.levels import reserves_held, served_in_full
from optimizer.solvers.objectives import VALUE
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.placed import needs_power
from optimizer.spec.streams import has_members
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE


def make_plan(candidates: Candidates, problem: Problem, solution: Solution) -> Plan:
    """Build the plan of a solution, with the performance of every pool at its load.

    Args:
        candidates: candidates of the system.
        problem: the planning problem.
        solution: its solution.
    """
    names, system = candidates.arrays.server_names, candidates.system
    used = system.features
    rates = queues_as_served(candidates, problem, solution) if SHARED_QUEUES.name in used else {}
    divisions = divisions_of(system, problem, solution) if ROUTES.name in used else {}
    arrays = _arrays_as_served(candidates, problem, solution, rates, divisions)
    cards = card_uses(candidates, problem, solution.replicas) if SHARED_CARDS.name in used else ()
    pools, rented = _placed(candidates, arrays, problem, solution.replicas, cards)
    power = _power_of_pools(candidates, problem, solution.replicas) if needs_power(system) else {}
    placed = PlanPlacements(system, arrays, pools, power, cards, rented)
    fraction = served_fraction(problem, solution.replicas, _carried_rps(names, pools, rented, cards))
    has_reserve: list[bool] = [False] * len(names)
    if problem.reserve.wanted.any():
        has_reserve = reserves_held(problem, solution.replicas)[1][: len(names)].tolist()
    stated = StatedFacts(
        unserved=_unserved(candidates, problem, solution.replicas, placed, fraction, rates),
        has_reserve=dict(zip(names, has_reserve, strict=True)),
        queues=_queue_uses(placed, rates) if SHARED_QUEUES.name in used else {},
        divisions=divisions,
        all_large={name: all_large_cents_per_h(candidates, route) for name, route in system.routes.items()},
    )
    return Plan(**_proof_of(solution), **sections(placed, stated))


def _queue_uses(placed: PlanPlacements, rates: Served) -> dict[str, SharedQueueUse]:
    figures = dict(member_figures(placed.arrays, measured_members(placed.arrays, placed.named_pools)))
    return queue_uses(placed.system, rates, figures)


def _proof_of(solution: Solution) -> dict[str, Any]:
    """Return the fields of a plan about objectives, bounds and gaps, by Python name."""
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


def _arrays_as_served(
    candidates: Candidates, problem: Problem, solution: Solution, queues: Served, divisions: Divisions
) -> SystemArrays:
    """Return the system as arrays; shared queues and routes have only the load that a solution serves."""
    names, system = candidates.arrays.server_names, candidates.system
    taken = (solution.replicas > 0) & problem.table.alone
    running = {names[s] for s in problem.table.server[taken].tolist()}
    loads = {**queues, **(routed_loads_rpm(system, divisions, running) if divisions else {})}
    return tabulate_as_served(system, candidates.arrays, loads)


def _unserved(
    candidates: Candidates,
    problem: Problem,
    replicas: IntArray,
    placed: PlanPlacements,
    fraction: FloatArray,
    queues: Served,
) -> tuple[Unserved, ...]:
    """Return the servers that are not served in full, including members of shared queues, sorted by name."""
    names = candidates.arrays.server_names
    shortages = Shortages(candidates, placed, {names[s] for s in problem.excluded})
    found = [
        shortages.of_server(names[s], float(fraction[s]))
        for s in np.flatnonzero(~served_in_full(problem, replicas)).tolist()
        if names[s] not in queues
    ]
    found += [
        shortages.of_member(names[s], problem.members.names[m], [*queues[names[s]]], share)
        for s, m, share in (short_members(candidates, problem, queues) if queues else ())
    ]
    return tuple(found)


def _placed(
    candidates: Candidates,
    arrays: SystemArrays,
    problem: Problem,
    replicas: IntArray,
    cards: Iterable[SharedCardUse],
) -> tuple[dict[str, tuple[Pool, ...]], dict[str, Rented]]:
    """Return the pools of each server, empty if it needs none, and the rentals of servers; both by name."""
    table = problem.table
    pools = _pools(candidates, arrays, problem, replicas)
    full = served_in_full(problem, replicas)
    rents = np.where(table.source == Source.rental, replicas, 0)
    rented = {item.server: item for item in _rented(candidates, problem, rents)}
    for s, name in enumerate(candidates.arrays.server_names):
        needs = problem.to_serve[s] and not (problem.joint_load[s] and full[s])
        if not needs or name in rented or has_members(candidates.system.servers[name]):
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


def served_fraction(problem: Problem, replicas: IntArray, carried_rps: FloatArray) -> FloatArray:
    """Return the served fraction of each server's load, or of its minimum replicas if it is idle."""
    count = np.bincount(problem.table.server, replicas, minlength=len(problem.priority))
    loaded = problem.load_rps > 0
    carried_rps = np.append(carried_rps, np.zeros(len(problem.priority) - len(carried_rps)))  # extra servers
    demand = np.where(loaded, problem.load_rps, np.maximum(problem.min_replicas, 1))
    share = np.where(problem.to_serve, np.minimum(np.where(loaded, carried_rps, count) / demand, 1.0), 1.0)
    return np.where(share >= 1 - ROUNDING, 1.0, share)


def _power_of_pools(
    candidates: Candidates, problem: Problem, replicas: IntArray
) -> dict[tuple[str, str], float]:
    """Return the power of one replica of each pool at its maximum rate [W], by server and accelerator."""
    table, arrays = problem.table, candidates.arrays
    rows = np.flatnonzero(replicas * table.units_per_replica * table.is_pool)
    power, pairs = power_of_rows(candidates, table)[rows].tolist(), table.take(rows).pairs()
    return {
        (arrays.server_names[s], arrays.accelerator_names[a]): each
        for (s, a), each in zip(pairs, power, strict=True)
    }


def _pools(
    candidates: Candidates, arrays: SystemArrays, problem: Problem, replicas: IntArray
) -> dict[str, tuple[Pool, ...]]:
    """Return the pools of each server that has replicas: those that serve it, then those with a role."""
    owner, role = _owners(problem)
    chosen = np.flatnonzero((replicas > 0) & (owner >= 0))
    table, count = problem.table.take(chosen), replicas[chosen]
    serves = np.where(table.is_pool, table.max_rate_rps, 0.0)
    table = replace(table, server=owner[chosen], max_rate_rps=serves)
    most_rps, carried_rps = _shared_loads(arrays, problem, table, count)
    loaded = carried_rps > 0
    pairs = table.server[loaded], table.accelerator[loaded], table.max_batch[loaded]
    idle = table.server[~loaded], table.accelerator[~loaded], table.max_batch[~loaded]
    measured = measure_pairs(arrays, *pairs, carried_rps[loaded] / count[loaded])
    at_load = pool_figures(arrays, candidates.system, pairs, measured)
    without_load = iter(idle_figures(arrays, candidates.system, idle))
    pools: dict[str, tuple[Pool, ...]] = {}
    for i, (s, a) in enumerate(table.pairs()):
        batch, mine = int(table.max_batch[i]), next(at_load if loaded[i] else without_load)
        name, accelerator = arrays.server_names[s], arrays.accelerator_names[a]
        pool = Pool(
            accelerator=accelerator,
            num_replicas=int(count[i]),
            max_batch=batch,
            cost_cents_per_h=float(table.cost_per_replica[i] * count[i]),
            arrival_rate_rpm=float(carried_rps[i] * SECONDS_PER_MINUTE),
            max_arrival_rate_rpm=float(most_rps[i] * SECONDS_PER_MINUTE),
            role=role.get(int(chosen[i])),
            **mine,
            **origin_of(candidates.system, name, accelerator, mine["utilization"] * batch),
        )
        pools[name] = (*pools.get(name, ()), pool)
    return pools


def _owners(problem: Problem) -> tuple[IntArray, dict[int, str]]:
    """Return the server to whose pools each candidate belongs, shape (C,), -1 for none, and roles.

    Roles are by index of the candidate.
    """
    table, roles = problem.table, dict[int, str]()
    owner = np.where(table.is_pool, table.server, -1)
    for topology in problem.topologies:
        units = topology.owners(table)
        owner = np.where(units >= 0, units, owner)
        roles |= dict.fromkeys(np.flatnonzero(units >= 0).tolist(), topology.role)
    return owner, roles


def _shared_loads(
    arrays: SystemArrays, problem: Problem, table: CandidateTable, count: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the maximum rate and the load of each pool [requests/s], shapes (R,).

    The load is split in proportion to the pools' maximum rates, so that all have the same utilisation (eq.
    49). If the pools cannot carry all of it, the load of each is its maximum rate.
    """
    most, load = table.max_rate_rps * count, table.load_rps
    load = np.where(problem.joint_load[table.server], arrays.servers.load_rps[table.server], load)
    queued = arrays.servers.is_queue[table.server]
    if queued.any():
        load = np.where(queued, arrays.servers.load_rps[table.server], load)
        partly = np.flatnonzero(queued & (load != table.load_rps))
        columns = table.server[partly], table.accelerator[partly], table.max_batch[partly]
        most[partly] = largest_rates_of(arrays, *columns) * count[partly]
    together = np.bincount(table.server, most, minlength=len(problem.priority))[table.server]
    is_too_much = load >= together * (1 - ROUNDING)
    return most, np.where(is_too_much, np.minimum(load, together), load) * most / together


def _rented(candidates: Candidates, problem: Problem, replicas: IntArray) -> Iterator[Rented]:
    """Yield the rented external services of a solution."""
    table = problem.table
    for c in np.flatnonzero(replicas).tolist():
        s, cost = table.server[c], float(table.cost_per_replica[c] * replicas[c])
        server = candidates.system.servers[candidates.arrays.server_names[s]]
        yield rental(server, float(problem.load_rps[s] * SECONDS_PER_MINUTE), cost)
