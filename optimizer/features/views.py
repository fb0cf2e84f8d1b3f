"""Computes the fields of a plan that follow from its placements; planning and verification both use this.

The service and the placements of a solution by features are read here, too: shared queues, routes, shared
cards and rentals.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from optimizer.arrays import IntArray
from optimizer.candidates import Candidates
from optimizer.candidates.arrays import reserve_arrays, server_loads_rps
from optimizer.documents import MAX_QUANTITY
from optimizer.features.caches.feature import CACHES
from optimizer.features.caches.view import cache_uses
from optimizer.features.disaggregation.feature import DISAGGREGATION
from optimizer.features.disaggregation.view import role_pool_names, role_uses
from optimizer.features.external.view import recomputed_rentals, rentals
from optimizer.features.length_pools.feature import LENGTH_POOLS
from optimizer.features.length_pools.view import length_pool_names, length_uses
from optimizer.features.offline.feature import OFFLINE
from optimizer.features.offline.view import deadline_uses
from optimizer.features.reserves.purposes import replica_counts
from optimizer.features.reserves.uses import ReserveUse
from optimizer.features.reserves.view import reserve_uses
from optimizer.features.rollouts.view import rollout_uses
from optimizer.features.routes.feature import ROUTES
from optimizer.features.routes.view import (
    Divisions,
    divisions_of,
    largest_rate_rpm,
    recomputed_divisions,
    route_names,
    route_uses,
    routed_loads_rpm,
)
from optimizer.features.shared_cards.view import card_names, card_uses
from optimizer.features.shared_queues.view import (
    Members,
    Served,
    member_figures,
    queue_names,
    queue_uses,
    queues_as_served,
    short_members,
)
from optimizer.features.versions.feature import VERSIONS
from optimizer.features.versions.view import split_uses
from optimizer.plan.checks.facts import Facts
from optimizer.plan.document import Kept, Plan, Unserved
from optimizer.plan.placements import services_of
from optimizer.plan.views import PlanPlacements
from optimizer.schema import Route, Server
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.loads import planned_loads
from optimizer.spec.system import System


class JointService(NamedTuple):
    """Loads of a solution that servers share: those of queues and routes."""

    queues: Served
    """Served rates of the members of each shared queue."""
    divisions: Divisions
    """Division of the requests of each route."""

    @classmethod
    def of(cls, candidates: Candidates, problem: Problem, solution: Solution) -> "JointService":
        """Return the shared loads of a solution."""
        queues = queues_as_served(candidates, problem, solution)
        return cls(queues, divisions_of(candidates.system, problem, solution))

    def served_rpm(self, system: System, running: Collection[str]) -> dict[str, Mapping[str, float]]:
        """Return the served rates of queues and routed servers, in the format of `as_served`.

        Args:
            system: the planned system.
            running: servers with replicas.
        """
        return {**self.queues, **routed_loads_rpm(system, self.divisions, running)}

    def short(self, candidates: Candidates, problem: Problem) -> Iterator[tuple[int, int, float]]:
        """Yield queue, member and served share of each member that is not served in full."""
        return short_members(candidates, problem, self.queues)


def with_placements_elsewhere(
    placed: PlanPlacements, candidates: Candidates, problem: Problem, replicas: IntArray
) -> PlanPlacements:
    """Return what a solution places, given its pools: also shared cards and rentals."""
    cards = card_uses(candidates, problem, replicas)
    return replace(placed, cards=cards, rented=rentals(candidates, problem, replicas))


def group_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield missing, unknown and duplicate names in the sections of servers that share loads."""
    yield from queue_names(plan, system)
    yield from route_names(plan, system)
    yield from length_pool_names(plan, system)
    yield from role_pool_names(plan, system)


def placement_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield errors for unknown names in placements on shared cards."""
    yield from card_names(plan, system)


def recomputed_fields(facts: Facts, candidates: Candidates | None) -> dict[str, Any]:
    """Return the fields of a plan as they follow from what it places, without the solver."""
    plan, rented = facts.plan, recomputed_rentals(facts)
    placed = replace(facts.placed, rented=rented) if rented else facts.placed
    joint = JointService(plan.served_in_queues_rpm, recomputed_divisions(facts))
    has_reserve = {item.server: item.has_reserve for item in plan.reserves}
    return plan_fields(placed, joint, facts.placed.members, plan.unserved, has_reserve, candidates)


def plan_fields(
    placed: PlanPlacements,
    joint: JointService,
    members: Members,
    unserved: Collection[Unserved],
    has_reserve: Mapping[str, bool],
    candidates: Candidates | None,
) -> dict[str, Any]:
    """Return all fields of a plan, by Python name, except those about its bounds and optimality.

    Args:
        placed: what the plan places.
        joint: how it serves loads that servers share.
        members: metrics of the members of queues.
        unserved: servers that it does not serve in full.
        has_reserve: whether each server that requires a reserve has it, by name.
        candidates: candidates of the system, if available.
    """
    system, pools = placed.system, placed.pools
    queues = queue_uses(system, joint.queues, dict(member_figures(system, placed.arrays, members)))
    short = {item.server for item in unserved}
    short |= {name for name, use in queues.items() if short & use.members.keys()}
    used, reserves = system.features, _reserves(placed, short, has_reserve)
    of_served = [item for item in reserves if item.server not in short]
    rollouts = rollout_uses(system, pools) if system.options.rollout else {}
    return {
        **_stated_by(system),
        "complete": not unserved,
        "total_cost_cents_per_h": placed.total_cost_cents_per_h,
        "allocations": {name: pools[name] for name in system.servers if name in pools},
        "shared_queues": queues,
        "routes": route_uses(system, joint.divisions, pools, candidates) if ROUTES.name in used else {},
        "unserved": tuple(sorted(unserved, key=attrgetter("server"))),
        "capacity": placed.capacity,
        "limits": placed.limits,
        "tiers": placed.tiers,
        "costs": placed.costs,
        "nodes": placed.nodes.uses,
        "node_moves": placed.nodes.moves,
        "shared_cards": placed.cards,
        "rented": tuple(placed.rented[name] for name in sorted(placed.rented)),
        "reserves": reserves,
        "versions": split_uses(system, pools, short, reserves) if VERSIONS.name in used else {},
        "length_pools": length_uses(system, pools, short, candidates) if LENGTH_POOLS.name in used else {},
        "disaggregation": role_uses(system, pools, short, candidates) if DISAGGREGATION.name in used else {},
        "rollouts": rollouts,
        "replica_counts": replica_counts(placed.arrays, pools, of_served, rollouts)
        if reserves or rollouts
        else {},
        "deadlines": deadline_uses(system, placed.rows) if OFFLINE.name in used else (),
        "changes": placed.changes,
    }


def _reserves(
    placed: PlanPlacements, short: Collection[str], has_reserve: Mapping[str, bool]
) -> tuple[ReserveUse, ...]:
    """Return the plan's entries for the reserves of servers, given the servers not served in full."""
    system, loads_rps = placed.system, server_loads_rps(placed.system)
    wanted = reserve_arrays(system, loads_rps)
    if not wanted.wanted.any():
        return ()
    return reserve_uses(system, placed.pools, wanted, loads_rps, short, placed.elsewhere, has_reserve)


def _stated_by(system: System) -> dict[str, Any]:
    """Return the fields of a plan that depend only on its system."""
    factors: dict[str, dict[str, float]] = {}
    for (server, accelerator), factor in system.rate_factors.items():
        factors.setdefault(server, {})[accelerator] = factor
    return {
        "not_rented": system.not_rented,
        "caches": cache_uses(system) if CACHES.name in system.features else (),
        "currency": system.currency,
        "rate_factors": factors,
        "kept": tuple(
            Kept(server=server, accelerator=accelerator, num_replicas=replicas)
            for (server, accelerator), replicas in system.kept.items()
        ),
    }


def largest_loads_rpm(plan: Plan, system: System) -> list[float]:
    """Return the largest loads of a system's `planned_loads` that a plan serves [requests/min]."""
    services = frozenset(services_of(plan))
    return [
        largest_rate_rpm(owner, plan)
        if isinstance(owner, Route)
        else _largest_load_rpm(owner, plan, services)
        for owner in planned_loads(system)
    ]


def _largest_load_rpm(server: Server, plan: Plan, services: Collection[str]) -> float:
    """Return the largest load of a server, including its cache hits."""
    if server.name in services:
        return MAX_QUANTITY
    most = sum(pool.max_arrival_rate_rpm for pool in plan.pools_of(server.name))
    return most / (1 - server.cache_hit_rate)
