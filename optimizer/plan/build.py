"""Builds a plan from a solution: names instead of indices, metrics, and reasons for unserved servers."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import optimizer
from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import SystemArrays, tabulate_as_served
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.replica_power import power_of_rows
from optimizer.features.views import JointService, plan_fields, with_placements_elsewhere
from optimizer.plan.document import Plan, PlanLevel, Unserved
from optimizer.plan.rows import figures_at_load, origin_of, owner_of
from optimizer.plan.shortages import Shortages
from optimizer.plan.views import PlanPlacements
from optimizer.schema.pools import Pool
from optimizer.solvers.levels import reserves_held, served_in_full
from optimizer.solvers.objectives import VALUE, unit_of_level
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
    """
    names, system, replicas = candidates.arrays.server_names, candidates.system, solution.replicas
    joint = JointService.of(candidates, problem, solution)
    arrays = _arrays_as_served(candidates, problem, replicas, joint)
    pools = _pools(candidates, arrays, problem, replicas)
    power = _power_of_pools(candidates, problem, replicas) if needs_power(system) else {}
    placed = PlanPlacements(system, arrays, pools, power)
    placed = with_placements_elsewhere(placed, candidates, problem, replicas)
    full, elsewhere = served_in_full(problem, replicas), placed.elsewhere
    # Servers without pools are in the plan, too, unless they lack replicas that they need.
    needs = problem.to_serve & ~(problem.served_by_rows & full)
    without_pools = [
        name
        for s, name in enumerate(names)
        if name not in pools and (not needs[s] or name in elsewhere or has_members(system.servers[name]))
    ]
    placed = replace(placed, pools={**pools, **dict.fromkeys(without_pools, ())})
    unserved = [*_unserved(candidates, problem, replicas, placed, joint)]
    held = dict(zip(names, reserves_held(problem, replicas)[1].tolist(), strict=False))
    fields = plan_fields(placed, joint, placed.members, unserved, held, candidates)
    return Plan(
        inferplan_version=optimizer.__version__,
        document_hash=candidates.system.document_hash,
        **_proof_of(solution),
        **fields,
    )


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
            PlanLevel.taken_from(level, unit=unit_of_level(level.name)) for level in solution.levels
        ),
    }


def _arrays_as_served(
    candidates: Candidates, problem: Problem, replicas: IntArray, joint: JointService
) -> SystemArrays:
    """Return the system as arrays; shared queues and routes have only the load that a solution serves."""
    names, system = candidates.arrays.server_names, candidates.system
    taken = (replicas > 0) & problem.table.alone
    running = {names[s] for s in problem.table.server[taken].tolist()}
    return tabulate_as_served(system, candidates.arrays, joint.served_rpm(system, running))


def _unserved(
    candidates: Candidates, problem: Problem, replicas: IntArray, placed: PlanPlacements, joint: JointService
) -> Iterator[Unserved]:
    """Yield the servers that are not served in full, including members of shared queues."""
    names = candidates.arrays.server_names
    shortages = Shortages(candidates, placed, {names[s] for s in problem.excluded})
    carried = [sum(row.rate_rpm for row in placed.rows.get(name, ())) for name in names]
    fraction = served_fraction(problem, replicas, np.array(carried) / SECONDS_PER_MINUTE)
    for s in np.flatnonzero(~served_in_full(problem, replicas)).tolist():
        if names[s] not in joint.queues:
            yield shortages.of_server(names[s], float(fraction[s]))
    for s, m, share in joint.short(candidates, problem):
        served = [*joint.queues[names[s]]]
        yield shortages.of_member(names[s], problem.members.names[m], served, share)


def served_fraction(problem: Problem, replicas: IntArray, carried_rps: FloatArray) -> FloatArray:
    """Return the served fraction of each server's load, or of its minimum replicas if it is idle."""
    count = np.bincount(problem.table.server, replicas, minlength=len(problem.priority))
    loaded = problem.load_rps > 0
    carried_rps = np.append(carried_rps, np.zeros(len(problem.priority) - len(carried_rps)))  # extra servers
    # The demand is a rate, or for an idle server a number of replicas.
    demand = np.where(loaded, problem.load_rps, np.maximum(problem.min_replicas, 1))
    # Servers that need nothing are served in full.
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
    # Replicas with a role carry no load of their server.
    serves = np.where(table.is_pool, table.max_rate_rps, 0.0)
    table = replace(table, server=owner[chosen], max_rate_rps=serves)
    most_rps, carried_rps = _shared_loads(arrays, problem, table, count)
    pairs = Pairs.of_rows(arrays, table)
    figures, _ = figures_at_load(arrays, candidates.system, pairs, carried_rps / count)
    pools: dict[str, tuple[Pool, ...]] = {}
    for i, (s, a) in enumerate(table.pairs()):
        batch, metrics = int(table.max_batch[i]), figures[i]
        name, accelerator = arrays.server_names[s], arrays.accelerator_names[a]
        pool = Pool(
            accelerator=accelerator,
            num_replicas=int(count[i]),
            max_batch=batch,
            cost_cents_per_h=float(table.cost_per_replica[i] * count[i]),
            arrival_rate_rpm=float(carried_rps[i] * SECONDS_PER_MINUTE),
            max_arrival_rate_rpm=float(most_rps[i] * SECONDS_PER_MINUTE),
            role=role.get(int(chosen[i])),
            **metrics,
            **owner_of(candidates.system, name, accelerator, int(count[i])),
            **origin_of(candidates.system, name, accelerator, metrics["utilization"] * batch),
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
    load = np.where(problem.served_by_rows[table.server], arrays.servers.load_rps[table.server], load)
    # Sum over the pools of each server, spread back to its pools.
    together = np.bincount(table.server, most, minlength=len(problem.priority))[table.server]
    # Beyond their maximum rates the pools serve a part; within rounding they serve all.
    is_too_much = load >= together * (1 - ROUNDING)
    return most, np.where(is_too_much, np.minimum(load, together), load) * most / together
