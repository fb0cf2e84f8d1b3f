"""Computes the fields of a plan that follow from its placements; planning and verification both use this."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from optimizer.candidates.arrays import reserve_arrays, server_loads_rps
from optimizer.features.caches.feature import CACHES
from optimizer.features.caches.view import cache_uses
from optimizer.features.offline.feature import OFFLINE
from optimizer.features.offline.view import deadline_uses
from optimizer.features.reserves.purposes import replica_counts
from optimizer.features.reserves.view import reserve_uses
from optimizer.features.rollouts.view import rollout_uses
from optimizer.features.routes.feature import ROUTES
from optimizer.features.routes.view import Divisions, route_uses
from optimizer.features.shared_queues.uses import SharedQueueUse
from optimizer.features.versions.feature import VERSIONS
from optimizer.features.versions.view import split_uses
from optimizer.plan.document import Kept, Unserved
from optimizer.plan.views import PlanPlacements
from optimizer.spec.system import System


class StatedFacts(NamedTuple):
    """Facts of a plan that do not follow from its placements."""

    unserved: tuple[Unserved, ...]
    has_reserve: Mapping[str, bool]
    """Whether each server that requires a reserve has it, by name."""
    queues: Mapping[str, SharedQueueUse]
    divisions: Divisions
    """Division of the requests of each route."""
    all_large: Mapping[str, float | None]
    """Cost of serving all requests with the large model alone [cents/h], by route; None if impossible."""


def sections(placed: PlanPlacements, stated: StatedFacts) -> dict[str, Any]:
    """Return all fields of a plan, by Python name, except those about its bounds and optimality."""
    system, pools = placed.system, placed.pools
    short = {item.server for item in stated.unserved}
    short |= {name for name, use in stated.queues.items() if short & use.members.keys()}
    # Only servers on unshared replicas that are served in full have reserves.
    elsewhere = {*placed.rented, *(item.server for use in placed.cards for item in use.servers)}
    used = system.features
    loads_rps = server_loads_rps(system)
    wanted = reserve_arrays(system, loads_rps)
    reserves = (
        reserve_uses(system, pools, wanted, loads_rps, short, elsewhere, stated.has_reserve)
        if wanted.wanted.any()
        else ()
    )
    of_served = [item for item in reserves if item.server not in short]
    rollouts = rollout_uses(system, pools) if system.options.rollout else {}
    return {
        **_stated_by(system),
        "complete": not stated.unserved,
        "total_cost_cents_per_h": placed.total_cost_cents_per_h,
        "allocations": {name: pools[name] for name in system.servers if name in pools},
        "shared_queues": stated.queues,
        "routes": route_uses(system, stated.divisions, pools, stated.all_large)
        if ROUTES.name in used
        else {},
        "unserved": tuple(sorted(stated.unserved, key=attrgetter("server"))),
        "capacity": placed.capacity,
        "limits": placed.limits,
        "tiers": placed.tiers,
        "shared_cards": placed.cards,
        "rented": tuple(placed.rented[name] for name in sorted(placed.rented)),
        "reserves": reserves,
        "versions": split_uses(system, pools, short, reserves) if VERSIONS.name in used else {},
        "rollouts": rollouts,
        "replica_counts": replica_counts(placed.arrays, pools, of_served, rollouts)
        if reserves or rollouts
        else {},
        "deadlines": deadline_uses(system, placed.parts) if OFFLINE.name in used else (),
        "changes": placed.changes,
    }


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
