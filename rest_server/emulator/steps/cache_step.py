"""Result caches in front of replicas: hits at the rate that the document states, drawn with the seed."""

import random
from collections.abc import Sequence

from optimizer.plan import Plan
from rest_server.emulator.backend import Backend
from rest_server.emulator.metrics import family, labels
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal, RouterStep


class Caches(RouterStep):
    """Step that serves the cache hits of each server, at the hit rate of the plan."""

    def __init__(self, plan: Plan, settings: FleetSettings, backends: Sequence[Backend]) -> None:
        self._rates = {use.server: use.hit_rate for use in plan.caches}
        self._draws = {name: random.Random(f"{settings.seed} {name}") for name in self._rates}  # noqa: S311
        self._counts = {name: {"hit": 0, "miss": 0} for name in self._rates}
        self._backends = backends

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Serve a hit as a replica would, or pass a miss on."""
        if call.server not in self._rates or call.path == "/tokenize":
            return await onward(call)
        able = (one for one in self._backends if call.server in one.servers and call.path in one.app.posts)
        app = next((one.app for one in able), None)
        is_hit = self._draws[call.server].random() < self._rates[call.server] and app is not None
        call.notes["cache"] = "hit" if is_hit else "miss"
        self._counts[call.server][call.notes["cache"]] += 1
        if app is None or not is_hit:
            return await onward(call)
        await app.answer_at_once(call.path, call.body, call.answer)
        return None

    def metrics(self) -> list[str]:
        """Return metrics of hits and misses by server, as lines of Prometheus' text format."""
        samples = {
            labels(server=name, result=result): count
            for name, counts in self._counts.items()
            for result, count in counts.items()
        }
        text = "Requests that a cache answered, or passed on."
        return family("inferplan_router_cache_requests_total", "counter", text, samples)
