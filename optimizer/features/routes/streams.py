"""Loads of the servers of routes, whose requests are divided between a small and a large model.

The planned load of a routed server is the largest that the route can send to it, with the longest mean
lengths of any division. Replicas sized for it meet their targets under every division, because the maximum
rate of the reference queue falls with both lengths. Other queue models require kinds of equal lengths.
Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from optimizer.documents import MIN_RATE, Document
from optimizer.features.routes.fields import RequestKind
from optimizer.kinds.queue_models import REFERENCE
from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.quantities import precise
from optimizer.schema import ModelProfile, Route, Server
from optimizer.schema.assumptions import could_use
from optimizer.schema.files import Part
from optimizer.schema.names import Entry, Finding, Index
from optimizer.schema.positions import Location
from optimizer.spec.feature import Documents
from optimizer.timing.static import is_static
from optimizer.tolerances import SAME

NEGLIGIBLE_SHARE = 1e-8
"""Fraction of a route's load below which a server's load counts as rounding."""


# --- flows of a route -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KindFlow:
    """Flow of one kind of requests through a route, as a function of φ, the share sent to the small model."""

    rate_rpm: float
    """Arrival rate [requests/min]."""
    lower: float
    """Minimum share that a router in use sends to the small model."""
    upper: float
    """Maximum share that a router in use sends to the small model."""
    quality: float
    """Increase of the route's fraction of worse answers per unit of φ."""
    large_base: float
    """Requests at the large model per request of the kind, at φ = 0."""
    large_slope: float
    """Change of the requests at the large model per request of the kind, per unit of φ."""

    @classmethod
    def of(cls, route: Route, kind: RequestKind) -> "KindFlow":
        """Return the flow of one kind of a route's requests (eq. 220, 221)."""
        lower, upper = kind.wrong, 1 - kind.miss
        # If a share ψ of the kind is assigned to the small model, φ = ψ upper + (1 − ψ) lower.
        rerun_slope = lower / (upper - lower) if route.rerun and upper > lower else 0.0
        rerun_base = rerun_slope * upper if upper > lower else lower * route.rerun
        return cls(
            rate_rpm=route.arrival_rate_rpm * kind.share,
            lower=min(lower, upper),
            upper=upper,
            quality=kind.share * kind.loss,
            large_base=1.0 + rerun_base,
            large_slope=-1.0 - rerun_slope,
        )

    def large_rpm(self, share: float) -> float:
        """Return the kind's requests at the large model if a router in use has φ = `share` [requests/min]."""
        return self.rate_rpm * (self.large_base + self.large_slope * share)

    def rerun_share(self, share: float) -> float:
        """Return the fraction of the kind's requests at the small model that the large one answers, too."""
        return max(self.large_base + self.large_slope * share - (1 - share), 0.0) / share if share else 0.0


def flows_of(route: Route) -> tuple[KindFlow, ...]:
    """Return the flow of each kind of requests of a route."""
    return tuple(KindFlow.of(route, kind) for kind in route.kinds)


def small_rpm(route: Route, shares: Iterable[float]) -> float:
    """Return the load of the small server for shares φ of the kinds [requests/min] (eq. 222)."""
    result = sum(flow.rate_rpm * share for flow, share in zip(flows_of(route), shares, strict=True))
    return result if result > NEGLIGIBLE_SHARE * route.arrival_rate_rpm else 0.0


def large_rpm(route: Route, shares: Sequence[float], *, routed: bool) -> float:
    """Return the load of the large server for shares φ of the kinds [requests/min] (eq. 223).

    If the router is not in use (`routed` is false), the large server gets all requests.
    """
    if not routed:
        return route.arrival_rate_rpm
    result = sum(flow.large_rpm(share) for flow, share in zip(flows_of(route), shares, strict=True))
    return result if result > NEGLIGIBLE_SHARE * route.arrival_rate_rpm else 0.0


def quality_lost(route: Route, shares: Iterable[float]) -> float:
    """Return the share of answers that are worse because the small model produced them (eq. 224)."""
    return sum(flow.quality * share for flow, share in zip(flows_of(route), shares, strict=True))


# --- loads of servers -------------------------------------------------------------------------------------


def largest_mean(values: Sequence[float], least: Sequence[float], most: Sequence[float]) -> float:
    """Return the largest weighted mean of values over all weights within bounds (eq. 226).

    At the maximum, the weights of all values above some threshold are at their upper bounds, and the others
    at their lower bounds.

    Args:
        least: lower bounds of the weights.
        most: upper bounds of the weights.
    """
    # Exchange argument: moving weight from a smaller to a larger value raises the mean. So it is enough to
    # try every threshold in descending order of the values.
    order = sorted(range(len(values)), key=lambda i: -values[i])
    best, weights = 0.0, list(least)
    for i in order:
        weights[i] = most[i]
        total = sum(weights)
        if total > 0:
            best = max(best, sum(w * value for w, value in zip(weights, values, strict=True)) / total)
    return best


def with_routed_loads(servers: Mapping[str, Server], routes: Iterable[Route]) -> Mapping[str, Server]:
    """Return all servers; those of routes have the largest load that their route can send to them.

    Args:
        servers: the servers, by name.
    """
    changed: dict[str, Server] = {}
    for route in routes:
        flows = flows_of(route)
        least, most = [f.rate_rpm * f.lower for f in flows], [f.rate_rpm * f.upper for f in flows]
        small, large = servers[route.small], servers[route.large]
        changed[route.small] = _with_mix(small, route, least, most, sum(most))
        if can_use_router(route):
            least, most = [flow.large_rpm(flow.upper) for flow in flows], [flow.rate_rpm for flow in flows]
            changed[route.large] = _with_mix(large, route, least, most, sum(most))
        else:
            changed[route.large] = with_all_requests(large, route)
    return MappingProxyType({**servers, **changed}) if changed else servers


def _with_mix(
    server: Server, route: Route, least: Sequence[float], most: Sequence[float], rate_rpm: float
) -> Server:
    """Return the server with the rate, and the longest mean lengths for kind weights within the bounds."""
    values = {
        field: largest_mean([getattr(kind, field) for kind in route.kinds], least, most)
        for field in ("in_tokens", "out_tokens")
    }
    values["arrival_rate_rpm"] = rate_rpm if rate_rpm >= MIN_RATE else 0.0
    return server.with_load(server.current.load.model_copy(update=values))


def largest_shares(route: Route) -> dict[str, float]:
    """Return the planned load of each server of a route as a fraction of the route's rate, by name."""
    flows = flows_of(route.model_copy(update={"arrival_rate_rpm": 1.0}))
    most = sum(flow.rate_rpm * flow.upper for flow in flows)
    return {route.small: most, route.large: sum(flow.rate_rpm for flow in flows)}


def with_all_requests(server: Server, route: Route) -> Server:
    """Return the large server of a route with all its requests and their mean lengths."""
    weights = [flow.rate_rpm for flow in flows_of(route)]
    return _with_mix(server, route, weights, weights, route.arrival_rate_rpm)


def can_use_router(route: Route) -> bool:
    """Return whether the router's errors alone lose no more quality than the limit (eq. 224 at the bounds).

    Otherwise the large model gets all requests, in their mean mix.
    """
    return quality_lost(route, [flow.lower for flow in flows_of(route)]) <= route.max_loss + SAME


def has_kinds_alike(route: Route) -> bool:
    """Return whether all kinds of requests of a route have the same mean lengths."""
    return len({(kind.in_tokens, kind.out_tokens) for kind in route.kinds}) == 1


def routes_by_server(routes: Iterable[Route]) -> dict[str, Route]:
    """Return the routes by the names of the servers that get their load from them."""
    return {name: route for route in routes for name in (route.small, route.large)}


def served_with(routes: Iterable[Route], servers: Iterable[str]) -> list[str]:
    """Return the servers, plus the other server of each route: routes are served in full or not at all.

    Args:
        servers: names of servers; they come first in the result, in their order.
    """
    routed, names = routes_by_server(routes), list(servers)
    partners = [
        name for server in names if server in routed for name in (routed[server].small, routed[server].large)
    ]
    return list(dict.fromkeys([*names, *partners]))


# --- checks -----------------------------------------------------------------------------------------------


def route_problems(documents: Documents) -> Iterator[Finding]:
    """Yield an error for each contradiction in the routes of documents."""
    index, profiles, names = documents.index, documents.profiles, documents.names["servers"]
    owner: dict[str, str] = {}
    for part, at, route in index.sections["routes"].values():
        for below, text in kind_problems(route):
            yield Finding(part, (*at, *below), text)
        if route.small == route.large:
            yield Finding(part, (*at, "large"), f"{route.large!r} is also the small server; name another")
            continue
        for field in ("small", "large"):
            server = getattr(route, field)
            yield from names.missing(part, (*at, field), server)
            if server in owner:
                text = f"{server!r} is also in route {owner[server]!r}; use a server in one route only"
                yield Finding(part, (*at, field), text)
            owner[server] = route.name
            if server in index.servers:
                entry = index.servers[server]
                yield from _server_problems(entry, route, index, profiles.get(entry.item.model, ()))
        yield from _priority_problems(part, at, route, index)


def kind_problems(route: Document) -> Iterator[tuple[Location, str]]:
    """Yield the location and message of each contradiction within the kinds of a route."""
    if not isinstance(route, Route):
        return
    total = sum(kind.share for kind in route.kinds)
    if abs(total - 1) > SAME:
        yield ("kinds",), f"the shares add up to {precise(total)}, not 1; change them"
    for i, kind in enumerate(route.kinds):
        if kind.wrong > 1 - kind.miss:
            text = (
                f"{precise(kind.wrong)} exceeds 1 - miss, {precise(1 - kind.miss)}: this router is wrong "
                "more often than right; swap its two decisions"
            )
            yield ("kinds", i, "wrong"), text


def _server_problems(
    entry: Entry, route: Route, index: Index, profiles: Sequence[ModelProfile]
) -> Iterator[Finding]:
    part, at, server = entry
    if server.current.load.arrival_rate_rpm:
        text = (
            f"{server.name!r} gets its load from route {route.name!r}; remove it, or add another server "
            "for direct requests"
        )
        yield Finding(part, (*at, "currentAlloc", "load", "arrivalRate"), text)
    if any(kind_of_profile(profile) is not KINDS[0] or is_static(profile) for profile in profiles):
        text = f"{server.model!r} is not batched continuously, which route {route.name!r} needs"
        yield Finding(part, (*at, "model"), text)
    owner = index.classes.get(server.service_class)
    targets = [item for item in owner.item.model_targets if item.model == server.model] if owner else []
    others = {profile.queue_model for profile in profiles} - {REFERENCE}
    if others and not has_kinds_alike(route):
        able = could_use(REFERENCE, profiles, targets, [server.current.load])
        text = (
            f"the kinds of route {route.name!r} have different lengths, but with queueModel {min(others)!r} "
            "longer requests can have a higher maximum rate; give all kinds the same lengths"
        ) + (f", or set queueModel to {REFERENCE!r} in its profiles" if able else "")
        yield Finding(part, (*at, "model"), text)
    target = targets[0] if targets else None
    if target is not None and target.tps:
        text = f"class {server.service_class!r} has slo-tps for {server.model!r}; routes have none, remove it"
        yield Finding(part, (*at, "class"), text)


def _priority_problems(part: Part, at: Location, route: Route, index: Index) -> Iterator[Finding]:
    """Yield an error if the two servers of a route differ in priority, because its requests have only one."""
    servers = [index.servers[name].item for name in (route.small, route.large) if name in index.servers]
    classes = [
        index.classes[server.service_class].item
        for server in servers
        if server.service_class in index.classes
    ]
    if len(classes) > 1 and classes[0].priority != classes[1].priority:
        text = (
            f"{route.large!r} has priority {classes[1].priority}, {route.small!r} {classes[0].priority}; "
            "give both servers of a route the same priority"
        )
        yield Finding(part, (*at, "large"), text)
