"""Check routes: loads, capacities, router errors, quality and savings."""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from optimizer.candidates import Candidates, find_candidates
from optimizer.plan.checks.facts import RELATIVE_TOLERANCE, SHARE_TOLERANCE, Facts, close, differing
from optimizer.plan.document import Plan, RouteUse
from optimizer.plan.routes import all_large_cents_per_h
from optimizer.quantities import precise
from optimizer.spec.schema import RequestKind, Route
from optimizer.spec.system import System

LOSS_TOLERANCE = 1e-8
"""Excess of the lost quality over its limit that counts as rounding."""


def check_route_names(plan: Plan, system: System) -> list[str]:
    """Return missing and unknown routes, and routes whose kinds are not those of the system."""
    problems = [f"{name}: not in routes" for name in system.routes if name not in plan.routes]
    for name, use in plan.routes.items():
        route = system.routes.get(name)
        if route is None:
            problems.append(f"{name}: no route of the system")
            continue
        kinds = [kind.name or f"kind {i}" for i, kind in enumerate(route.kinds, 1)]
        if [kind.name for kind in use.kinds] != kinds:
            problems.append(f"{name}: its kinds of requests are {', '.join(kinds)}")
        if (use.small, use.large) != (route.small, route.large):
            problems.append(f"{name}: its servers are {route.small} and {route.large}")
    return problems


def check_routes(facts: Facts, candidates: Candidates | None) -> list[str]:
    """Return the errors of the routes of a plan.

    Args:
        facts: the plan and its system.
        candidates: candidates of the system, if available.
    """
    return [
        f"{name}: {line}"
        for name, use in facts.plan.routes.items()
        for line in _route(facts, candidates, facts.whole.routes[name], use)
    ]


def _route(facts: Facts, candidates: Candidates | None, route: Route, use: RouteUse) -> Iterator[str]:
    if use.served and route.large in facts.listed:
        yield f"is served, but {route.large} is in unserved"
    if not use.served and route.large not in facts.listed:
        yield f"is not served, but {route.large} is not in unserved"
    if use.routed and not use.served:
        yield "is not served, but its router is in use"
    yield from _shares(route, use)
    yield from _totals(facts, route, use)
    yield from _loads(facts, route, use)
    true = _all_large(facts, candidates, route)
    if (true is None) != (use.all_large_cents_per_h is None) or not close(
        true or 0.0, use.all_large_cents_per_h or 0.0
    ):
        yield f"costAllLarge is {true}, the plan says {use.all_large_cents_per_h}"


def _shares(route: Route, use: RouteUse) -> Iterator[str]:
    """Check that the router can produce the shares; without a router, the small model gets nothing."""
    for kind, routed in zip(route.kinds, use.kinds, strict=True):
        lower, upper = (kind.wrong, 1 - kind.miss) if use.routed else (0.0, 0.0)
        share = routed.small_share
        if not lower - SHARE_TOLERANCE <= share <= upper + SHARE_TOLERANCE:
            limits = f"{precise(lower)} to {precise(upper)}"
            yield f"{precise(share)} of {routed.name} goes to {route.small}, the router sends {limits}"
        for field, true, said in (
            ("arrivalRate", route.arrival_rate_rpm * kind.share, routed.arrival_rate_rpm),
            ("least", kind.wrong, routed.least_share),
            ("most", 1 - kind.miss, routed.most_share),
            ("qualityLost", kind.share * kind.loss * share, routed.quality_lost),
        ):
            yield from differing(f"{field} of {routed.name} is", true, said, absolute=SHARE_TOLERANCE)


def _again(kind: RequestKind, share: float) -> float:
    """Return the share of a kind that runs on both models because of router errors (eq. 221)."""
    lower, upper = kind.wrong, 1 - kind.miss
    meant_for_large = (upper - share) / (upper - lower) if upper > lower else 1.0
    return lower * meant_for_large


def _totals(facts: Facts, route: Route, use: RouteUse) -> Iterator[str]:
    """Check loads, tokens, lost quality and cost."""
    shares = [kind.small_share for kind in use.kinds]
    pairs = list(zip(route.kinds, shares, strict=True))
    rate = route.arrival_rate_rpm
    again = math.fsum(k.share * _again(k, x) for k, x in pairs) if route.rerun and use.routed else 0.0
    small = math.fsum(kind.share * share for kind, share in pairs)
    tokens = [(kind.share * (kind.in_tokens + kind.out_tokens), share) for kind, share in pairs]
    cost = math.fsum(
        facts.cost_of(name, pool) for name in (route.small, route.large) for pool in facts.pools_of(name)
    )
    all_large = use.all_large_cents_per_h
    lost = math.fsum(kind.share * kind.loss * share for kind, share in pairs)
    for field, true, said in (
        ("smallRate", rate * small, use.small_rpm),
        ("largeRate", rate * (1 - small + again) if use.served else 0.0, use.large_rpm),
        ("rerunRate", rate * again, use.rerun_rpm),
        (
            "smallTokens",
            math.fsum(n * x for n, x in tokens) / math.fsum(n for n, _ in tokens),
            use.small_token_share,
        ),
        ("qualityLost", lost, use.quality_lost),
        ("maxLoss", route.max_loss, use.max_loss),
        ("arrivalRate", rate, use.arrival_rate_rpm),
        ("cost", cost, use.cost_cents_per_h),
        ("saving", 1 - cost / all_large if use.served and all_large else None, use.saving),
    ):
        rounding = RELATIVE_TOLERANCE * rate if field.endswith("Rate") else SHARE_TOLERANCE
        if (true is None) != (said is None) or not close(true or 0.0, said or 0.0, rounding):
            yield f"{field} is {true}, the plan says {said}"
    if lost > route.max_loss + LOSS_TOLERANCE:
        yield f"{precise(100 * lost)} % of answers are worse, the limit is {precise(100 * route.max_loss)} %"


def _loads(facts: Facts, route: Route, use: RouteUse) -> Iterator[str]:
    """Check that the replicas of both servers can carry the load that the route sends them."""
    for name, load in ((route.small, use.small_rpm), (route.large, use.large_rpm)):
        pools = facts.pools_of(name)
        most = math.fsum(pool.max_arrival_rate_rpm for pool in pools)
        carried = math.fsum(pool.arrival_rate_rpm for pool in pools)
        if load > most * (1 + RELATIVE_TOLERANCE) + RELATIVE_TOLERANCE:
            yield f"sends {precise(load)} requests/min to {name}, which can take {precise(most)}"
        elif pools and not close(load, carried):
            yield f"sends {precise(load)} requests/min to {name}, whose pools carry {precise(carried)}"


def _all_large(facts: Facts, candidates: Candidates | None, route: Route) -> float | None:
    known = candidates
    if known is None:
        alone = MappingProxyType({route.large: facts.whole.servers[route.large]})
        known = find_candidates(replace(facts.whole, servers=alone, kept=MappingProxyType({})))
    return all_large_cents_per_h(known, known.arrays.server_names.index(route.large))
