"""Server process of an emulated fleet that an autoscaler can scale through the Kubernetes API."""

import asyncio
import socket
from collections.abc import Callable

from optimizer.errors import SpecError
from optimizer.plan import Plan
from optimizer.spec.system import System
from rest_server.emulator.asgi import App, Receive, Scope, Send
from rest_server.emulator.elastic import ElasticFleet
from rest_server.emulator.gate import Gate
from rest_server.emulator.kubernetes_api import KubernetesApi
from rest_server.emulator.router import Router
from rest_server.emulator.serve import FleetServer, compile_engines, listening_socket
from rest_server.emulator.settings import FleetSettings, allow_files

MAX_REPLICAS = 1000
"""Maximum number of replicas for which file descriptors are reserved."""


def emulate_scalable(
    system: System,
    plan: Plan,
    settings: FleetSettings,
    announce: Callable[[str], None],
) -> int:
    """Run a fleet until it is stopped, and return the exit status.

    Args:
        system: the planned system.
        plan: its plan, which determines the replicas at the start.
        announce: called with a JSON line for each replica at the start, and one when all are ready.

    Raises:
        SpecError: no server can be emulated, or the port cannot be used.
    """
    fleet = ElasticFleet(system, plan, settings)
    if not fleet.workloads:
        raise SpecError("no server can be emulated; 'inferplan solve' states why servers are unserved")
    allow_files(4 * MAX_REPLICAS)
    with listening_socket(settings.host, settings.port) as listening:
        compile_engines(fleet.pools.values())
        router = Router(system, plan, fleet.backends, settings, fleet.lag)
        api = KubernetesApi(fleet)

        async def front(scope: Scope, receive: Receive, send: Send) -> None:
            await (api if api.serves(scope["path"]) else router)(scope, receive, send)

        apps: dict[int, App] = {listening.getsockname()[1]: Gate(front, settings)}
        _ScalableServer(fleet, api, apps, router, announce).run(sockets=[listening])
    return 0


class _ScalableServer(FleetServer):
    """A server of a fleet that opens and closes ports while it runs."""

    def __init__(
        self,
        fleet: ElasticFleet,
        api: KubernetesApi,
        apps: dict[int, App],
        router: Router,
        announce: Callable[[str], None],
    ) -> None:
        super().__init__(apps, router, announce)
        self._fleet, self._api = fleet, api

    async def begin(self) -> None:
        """Start the replicas of the plan, and then scale them repeatedly."""
        await self._fleet.follow(self, at_once=True)
        self.tasks.append(asyncio.create_task(self._fleet.run(self, self._api.refresh)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End watches, stop scaling, and close all ports when requests in progress are complete."""
        self._api.close()
        await super().shutdown(sockets)
