"""Computes the routes of a plan: the load of each server, the quality loss, and the savings."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from optimizer.arrays import sorted_by_key
from optimizer.candidates import Candidates, find_candidates
from optimizer.features.routes.divisions import Division, RouteFlows
from optimizer.features.routes.streams import (
    flows_of,
    has_kinds_alike,
    large_rpm,
    quality_lost,
    small_rpm,
    with_all_requests,
)
from optimizer.features.routes.topology import RouteTopology
from optimizer.features.routes.uses import RoutedKind, RouteUse, traffic_rpm
from optimizer.plan.checks.facts import Facts
from optimizer.plan.document import Plan
from optimizer.schema import Route
from optimizer.schema.pools import Pool
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

Divisions = Mapping[str, Division | None]
"""Division of each route's requests, by the route's name; None if the route is not served."""


def divisions_of(system: System, problem: Problem, solution: Solution) -> Divisions:
    """Return the division of each route that has load, for the replicas of a solution."""
    divisions: dict[str, Division | None] = {
        name: Division(routed=False, shares=(0.0,) * len(route.kinds))
        for name, route in system.routes.items()
    }
    routing = problem.topology(RouteTopology)
    if routing is not None:
        for route, division in routing.divisions(problem.table, solution.replicas):
            divisions[route.name] = division
    return divisions


def divisions_within(plan: Plan, system: System) -> Divisions:
    """Return the division of each route among a plan's replicas, at the rates of `system`.

    Args:
        system: the planned system; the rates of its routes can differ from those of the plan.
    """
    return {
        name: RouteFlows.of(route, _servers(route)).division(*capacities_rps(route, plan))
        if route.arrival_rate_rpm
        else Division(routed=False, shares=(0.0,) * len(route.kinds))
        for name, route in system.routes.items()
    }


def route_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield an error for each missing or unknown route."""
    yield from (f"{name}: not in routes" for name in system.routes if name not in plan.routes)
    for name, use in plan.routes.items():
        route = system.routes.get(name)
        if route is None:
            yield f"{name}: no route of the system"
        elif (use.small, use.large) != (route.small, route.large):
            yield f"{name}: its servers are {route.small} and {route.large}"


def recomputed_divisions(facts: Facts) -> Divisions:
    """Return the division of the requests of the routes that a plan serves, among its replicas."""
    within = divisions_within(facts.plan, facts.whole)
    return {
        name: None if route.large in facts.listed else within[name]
        for name, route in facts.whole.routes.items()
    }


def largest_rate_rpm(route: Route, plan: Plan) -> float:
    """Return the largest rate of a route that a plan serves [requests/min]."""
    if not route.arrival_rate_rpm:
        return 0.0
    result = RouteFlows.of(route, _servers(route)).most_rps(*capacities_rps(route, plan))
    return result * SECONDS_PER_MINUTE


def capacities_rps(route: Route, plan: Plan) -> tuple[float, float]:
    """Return the maximum rates of a route's pools [requests/s]: the arguments of `RouteFlows.division`."""
    small, large = (
        sum(pool.max_arrival_rate_rpm for pool in plan.allocations.get(server, ())) / SECONDS_PER_MINUTE
        for server in _servers(route)
    )
    return small, large


def routed_loads_rpm(
    system: System, divisions: Divisions, running: Collection[str]
) -> dict[str, dict[str, float]]:
    """Return the loads of the servers of routes [requests/min], by name on two levels, as `as_served` needs.

    All requests of an unserved route are assigned to its large server.

    Args:
        system: the planned system.
        divisions: division of the requests of each route.
        running: names of servers that have replicas in the plan.
    """
    loads: dict[str, dict[str, float]] = {}
    for name, division in divisions.items():
        route = system.routes[name]
        shares = (0.0,) * len(route.kinds) if division is None else division.shares
        routed = division is not None and division.routed
        both = small_rpm(route, shares), large_rpm(route, shares, routed=routed)
        for server, rate in zip(_servers(route), both, strict=True):
            loads[server] = {server: traffic_rpm(rate, has_replicas=server in running)}
    return loads


def route_uses(
    system: System,
    divisions: Divisions,
    pools: Mapping[str, Sequence[Pool]],
    candidates: Candidates | None,
) -> dict[str, RouteUse]:
    """Return the plan's entry for each route, by name.

    Args:
        system: the planned system.
        divisions: division of the requests of each route.
        pools: pools by server.
        candidates: candidates of the system; None sizes the large servers.
    """
    all_large = costs_all_large(system, candidates)
    return {
        name: _use(
            system.routes[name],
            division,
            [pool for server in _servers(system.routes[name]) for pool in pools.get(server, ())],
            all_large[name],
        )
        for name, division in divisions.items()
    }


def with_savings(plan: Plan, candidates: Candidates) -> Plan:
    """Return the plan with the savings of routes computed from all candidates, not only from those used.

    Args:
        candidates: all candidates of the system.
    """
    routes = {}
    for name, all_large in costs_all_large(candidates.system, candidates).items():
        use = plan.routes[name]
        saving = 1 - use.cost_cents_per_h / all_large if use.served and all_large else None
        routes[name] = use.model_copy(update={"all_large_cents_per_h": all_large, "saving": saving})
    return plan.model_copy(update={"routes": routes})


def _servers(route: Route) -> tuple[str, str]:
    return route.small, route.large


def costs_all_large(system: System, candidates: Candidates | None) -> dict[str, float | None]:
    """Return the cost of each route without its small model [cents/h].

    Args:
        system: the planned system.
        candidates: its candidates; None sizes the large servers.
    """
    alone = {
        route.large: with_all_requests(system.servers[route.large], route)
        for route in system.routes.values()
        if candidates is None or not has_kinds_alike(route)
    }
    if alone:
        servers = sorted_by_key(alone)
        sized = find_candidates(replace(system, servers=servers, kept=MappingProxyType({})))
    return {
        name: _all_large(sized if route.large in alone or candidates is None else candidates, route)
        for name, route in system.routes.items()
    }


def _all_large(candidates: Candidates, route: Route) -> float | None:
    """Return the minimum cost of serving a route with its large model on one accelerator, ignoring capacity.

    Args:
        candidates: candidates, including those of the large server with all requests of the route.

    Returns:
        The cost [cents/h]; None if no accelerator can serve all requests.
    """
    table = candidates.table
    rows = np.flatnonzero(table.server == candidates.arrays.server_names.index(route.large))
    return float(table.cost_cents_per_h[rows].min()) if len(rows) else None


def _use(route: Route, division: Division | None, pools: Sequence[Pool], all_large: float | None) -> RouteUse:
    served = division is not None
    shares = (0.0,) * len(route.kinds) if division is None else division.shares
    routed = division is not None and division.routed and any(shares)  # without shares, nothing is routed
    cost = sum(pool.cost_cents_per_h for pool in pools)
    large = large_rpm(route, shares, routed=routed) if served else 0.0
    small = small_rpm(route, shares)
    return RouteUse.taken_from(
        route,
        served=served,
        routed=routed,
        kinds=tuple(
            RoutedKind(
                name=kind.name or f"kind {i}",
                arrival_rate_rpm=flow.rate_rpm,
                small_share=share,
                least_share=flow.lower,
                most_share=flow.upper,
                quality_lost=flow.quality * share,
            )
            for i, (kind, flow, share) in enumerate(zip(route.kinds, flows_of(route), shares, strict=True), 1)
        ),
        small_rpm=small,
        large_rpm=large,
        rerun_rpm=small + large - route.arrival_rate_rpm if route.rerun and routed else 0.0,
        small_token_share=small_token_share(route, shares),
        quality_lost=quality_lost(route, shares),
        cost_cents_per_h=cost,
        all_large_cents_per_h=all_large,
        saving=1 - cost / all_large if served and all_large else None,
    )


def small_token_share(route: Route, shares: Sequence[float]) -> float:
    """Return the share of the route's tokens that belong to requests at the small model (eq. 228)."""
    tokens = [kind.share * (kind.in_tokens + kind.out_tokens) for kind in route.kinds]
    return sum(share * each for share, each in zip(shares, tokens, strict=True)) / sum(tokens)
