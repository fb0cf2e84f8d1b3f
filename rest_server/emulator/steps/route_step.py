"""Routes: a classifier sends requests to a small or a large model, with the error rates of the document."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from optimizer.features.routes.streams import KindFlow, flows_of
from optimizer.features.routes.uses import RoutedKind
from optimizer.plan import Plan
from optimizer.spec.system import System
from rest_server.emulator.asgi import BadRequest
from rest_server.emulator.metrics import family, labels
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal, RouterStep

KIND_HEADER = b"x-inferplan-kind"
"""Header with the actual kind of a request, which the classifier has to guess; without it, a kind is drawn.
"""


class Routes(RouterStep):
    """Step that divides the requests of each route between its models, as the plan does."""

    def __init__(self, system: System, plan: Plan, settings: FleetSettings) -> None:
        self._servers = {name: (use.small, use.large) for name, use in plan.routes.items() if use.served}
        self._kinds = {
            name: list(zip(plan.routes[name].kinds, flows_of(system.routes[name]), strict=True))
            for name in self._servers
        }
        """Kinds of requests of each route, with their division in the plan and their flows."""
        self._rng = random.Random(f"{settings.seed} routes")  # noqa: S311
        self._counts = {
            (name, kind.name, to): 0
            for name, kinds in self._kinds.items()
            for kind, _ in kinds
            for to in ("small", "large", "both")
        }

    @property
    def names(self) -> Iterable[str]:
        """Names of the routes, which requests can state as their server."""
        return self._servers

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Send a request to one of the models; if it should be rerun, also send it to the large model."""
        route = call.server
        if route not in self._servers:
            return await onward(call)
        small, large = self._servers[route]
        kind, flow = self._kind(route, call.header(KIND_HEADER))
        to = "small" if self._rng.random() < kind.small_share else "large"
        if to == "small" and self._rng.random() < flow.rerun_share(kind.small_share):
            to = "both"
        self._counts[route, kind.name, to] += 1
        call.notes |= {"route": route, "kind": kind.name, "to": to}
        if to == "both":
            await onward(replace(call, server=small, send=_discard, notes={}))
        call.server = small if to == "small" else large
        return await onward(call)

    def metrics(self) -> list[str]:
        """Return metrics of requests by route, kind and model."""
        samples = {
            labels(route=route, kind=kind, to=to): count for (route, kind, to), count in self._counts.items()
        }
        text = "Requests that a route sent to the small model, the large one, or one after the other."
        return family("inferplan_router_route_requests_total", "counter", text, samples)

    def _kind(self, route: str, name: str) -> tuple[RoutedKind, KindFlow]:
        """Return the kind that the client states, or else a random one, with its flow."""
        kinds = self._kinds[route]
        if not name:
            return self._rng.choices(kinds, [flow.rate_rpm for _, flow in kinds])[0]
        routed_kinds = next((pair for pair in kinds if pair[0].name == name), None)
        if routed_kinds is None:
            known = ", ".join(kind.name for kind, _ in kinds)
            raise BadRequest(f"{KIND_HEADER.decode()}: {name!r} is no kind of route {route!r}; use {known}")
        return routed_kinds


async def _discard(message: Any) -> None:
    """Discard a part of a response that no client gets."""
