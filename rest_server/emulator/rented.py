"""Emulated external services: constant times, any number of requests at once, and a price per token."""

import heapq
import itertools
from collections.abc import Callable, Iterator

from optimizer.features.external.fields import External
from optimizer.kinds.simulated import open_load
from optimizer.plan import Plan
from optimizer.plan.placements import services_of
from optimizer.simulation.live.replica import LiveReplica, Rows, Step
from optimizer.spec.system import System
from rest_server.emulator.backend import Backend
from rest_server.emulator.engine import Engine
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.replica import LONGEST_TOKENS, Model, TokenReplicaApp
from rest_server.emulator.settings import FleetSettings

EXTERNAL = "external"
"""Name used as the accelerator of replicas that are external services."""
TOKENS_PER_PRICE = 1e6


class LiveService(LiveReplica):
    """External service that makes the tokens of each request at the mean times that its document states."""

    def __init__(self, service: External) -> None:
        self._service = service
        self._rows = Rows()
        self._due: list[tuple[float, int, int, int]] = []
        """Next token of each request: time [ms], order of arrival, request number, and number of tokens left.
        """
        self._order = itertools.count()

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int:  # noqa: ARG002
        """Add an arriving request; none is rejected."""
        row = self._rows.take()
        heapq.heappush(self._due, (now_ms + self._service.ttft_ms, next(self._order), row, out_tokens))
        return row

    def cancel(self, row: int, now_ms: float) -> None:  # noqa: ARG002
        """Remove a request."""
        self._due = [due for due in self._due if due[2] != row]
        heapq.heapify(self._due)
        self._rows.release(row)

    def next_ms(self) -> float:
        """Return the time of the next token [ms]; inf if there is no request."""
        return self._due[0][0] if self._due else float("inf")

    def step(self) -> Step:
        """Advance to the next token, and return it."""
        at_ms, order, row, left = self._due[0]
        if left == 1:
            heapq.heappop(self._due)
            self._rows.release(row)
            return Step(at_ms, [row], [row])
        heapq.heapreplace(self._due, (at_ms + self._service.itl_ms, order, row, left - 1))
        return Step(at_ms, [row], [])

    @property
    def waiting(self) -> int:
        """Number of waiting requests, which is always 0."""
        return 0

    @property
    def running(self) -> int:
        """Number of requests in the service."""
        return len(self._due)


def rented_backends(
    system: System, plan: Plan, settings: FleetSettings, lag: Histogram, url: Callable[[int], str], first: int
) -> Iterator[Backend]:
    """Yield the external services of a plan as replicas, numbered from `first` on."""
    for number, name in enumerate(services_of(plan), first):
        server = system.in_plans[name]
        assert server.external is not None
        service = server.external
        engine = Engine(lambda service=service: LiveService(service), settings.speed, lag)  # type: ignore[misc]
        lengths = open_load(server.current.load, 1.0).out_lengths
        model = Model(server.model, {server.name: 0}, LONGEST_TOKENS, None, lengths)
        app = TokenReplicaApp(model, engine, Life(engine), settings.seed)
        yield Backend(
            f"{server.name}-{number}", (server.name,), server.name, server.model, EXTERNAL, url(number), app,
            price=(service.in_per_million, service.out_per_million),
        )  # fmt: skip


def cost_cents(prices: tuple[float, float], prompt_tokens: float, output_tokens: float) -> float:
    """Return the price of tokens [cents], given the prices of a million prompt and output tokens [cents]."""
    return (prices[0] * prompt_tokens + prices[1] * output_tokens) / TOKENS_PER_PRICE
