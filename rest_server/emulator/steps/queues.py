"""Shared queues: requests of several service classes wait in front of their replicas, by priority."""

import asyncio
import heapq
import itertools
from collections.abc import Sequence

from optimizer.plan import Plan
from optimizer.spec.system import System
from rest_server.emulator.asgi import Dropped, hung_up
from rest_server.emulator.backend import Backend
from rest_server.emulator.metrics import family, labels
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal, RouterStep


class _Queue:
    """Requests that wait for a slot of a group of replicas, the highest priority first."""

    def __init__(self, servers: frozenset[str], backends: Sequence[Backend]) -> None:
        self._servers = servers
        self._backends = backends
        self._inside = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticks = itertools.count()

    @property
    def model(self) -> str:
        """Model of the replicas; empty if there are none."""
        return next((one.model for one in self._backends if self._servers.intersection(one.servers)), "")

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return sum(not turn.done() for _, _, turn in self._waiting)

    def _has_slot(self) -> bool:
        mine = [one for one in self._backends if self._servers.intersection(one.servers)]
        healthy = [one for one in mine if one.is_healthy] or mine
        return not healthy or self._inside < sum(one.slots for one in healthy)

    async def enter(self, priority: int) -> None:
        """Wait until a slot is free, and take it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._ticks), turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Free a slot, and wake the first waiting request."""
        self._inside -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and (self._waiting[0][2].done() or self._has_slot()):
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._inside += 1
                turn.set_result(None)


class SharedQueues(RouterStep):
    """Step in which requests of shared queues wait while their replicas have no free slot."""

    def __init__(
        self, system: System, plan: Plan, settings: FleetSettings, backends: Sequence[Backend]
    ) -> None:
        # With random routing, each replica has its own queue, as simulated.
        uses = {} if settings.route == "random" else plan.shared_queues
        self._queues = {name: _Queue(frozenset(use.members), backends) for name, use in uses.items()}
        streams = system.streams
        self._places = {
            server: (self._queues[name], streams[server].priority)
            for name, use in uses.items()
            for server in use.members
        }

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Pass a request on as soon as it has a slot.

        Raises:
            Dropped: the client of the request has hung up.
        """
        if call.server not in self._places:
            return await onward(call)
        queue, priority = self._places[call.server]
        turn = asyncio.create_task(queue.enter(priority))
        await asyncio.sleep(0)
        if not turn.done():
            leaving = asyncio.create_task(hung_up(call.receive))
            await asyncio.wait({turn, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
        if not turn.done():
            turn.cancel()
            raise Dropped
        try:
            return await onward(call)
        finally:
            queue.leave()

    def waiting(self, model: str) -> int:
        """Return the number of requests that wait for replicas of a model."""
        return sum(queue.waiting for queue in self._queues.values() if queue.model == model)

    def metrics(self) -> list[str]:
        """Return the number of waiting requests of each queue, as lines of Prometheus' text format."""
        samples = {labels(queue=name): queue.waiting for name, queue in self._queues.items()}
        text = "Requests that wait for a slot of shared replicas."
        return family("inferplan_router_queue_waiting", "gauge", text, samples)
