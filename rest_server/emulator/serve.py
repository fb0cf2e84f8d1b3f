"""Server process of an emulated fleet: one port for each replica and one for the router."""

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack

import numpy as np
import uvicorn

from optimizer.errors import SpecError
from optimizer.features.length_pools.streams import check_without_lengths
from optimizer.plan import Plan
from optimizer.plan.placements import services_of
from optimizer.spec.system import System
from rest_server.emulator.asgi import App, BadRequest, Dropped, Receive, Scope, Send, reply_error
from rest_server.emulator.backend import Backend
from rest_server.emulator.engine import LAG_S
from rest_server.emulator.fleet import EmulatedPool, backends, placements
from rest_server.emulator.gate import Gate
from rest_server.emulator.metrics import Histogram
from rest_server.emulator.rented import rented_backends
from rest_server.emulator.router import Router
from rest_server.emulator.settings import FleetSettings, allow_files
from rest_server.stopping import end_on_signals

BACKLOG = 1024
STOP_PERIOD_S = 0.05
"""Interval at which a stop signal is checked for while replicas start [s]."""
DRAIN_S = 30
"""Maximum time for which requests in progress are completed after a stop signal [s]."""


def emulate(system: System, plan: Plan, settings: FleetSettings, announce: Callable[[str], None]) -> int:
    """Run the replicas of a plan until they are stopped, and return the exit status.

    Args:
        system: the planned system.
        announce: called with a JSON line for each replica, and one when all are ready.

    Raises:
        SpecError: the plan has no replica, or a port cannot be used.
        AnalysisError: a replica cannot be emulated.
    """
    check_without_lengths(system.servers.values(), "emulate")
    placed = placements(system, plan, settings.share)
    if not placed and not services_of(plan):
        raise SpecError(
            "the plan has no replica to emulate; 'inferplan solve' states why servers are unserved"
        )
    count = sum(one.replicas * (len(one.runs) if one.runs[0].card else 1) for one in placed)
    count += len(services_of(plan))
    allow_files(4 * count)
    with ExitStack() as opened:
        ports = [settings.port and settings.port + k for k in range(1 + count)]
        listening = [opened.enter_context(listening_socket(settings.host, port)) for port in ports]
        lag = Histogram(LAG_S)
        urls = [url_of(one) for one in listening[1:]]
        replicas = backends(plan.planned_in(system), placed, settings, lag, urls.__getitem__)
        replicas += rented_backends(system, plan, settings, lag, urls.__getitem__, len(replicas))
        compile_engines(placed)
        router = Router(system, plan, replicas, settings, lag)
        apps: list[App] = [Gate(router, settings), *(one.app for one in replicas)]
        ports = [one.getsockname()[1] for one in listening]
        FleetServer(dict(zip(ports, apps, strict=True)), router, announce).run(sockets=listening)
    return 0


class FleetServer(uvicorn.Server):
    """A uvicorn server that announces a fleet when its replicas are ready."""

    def __init__(self, apps: dict[int, App], router: Router, announce: Callable[[str], None]) -> None:
        """Configure the server.

        Args:
            apps: applications by port, first the router's, to which others can be added.
            announce: called with a JSON line for each replica, and one for the router.
        """
        # Otherwise uvloop sleeps after each connection, because other processes might accept some, too.
        os.environ.setdefault("UV_TCP_SINGLE_ACCEPT", "0")
        config = uvicorn.Config(
            _ByPort(apps), log_config=None, access_log=False, lifespan="off", backlog=BACKLOG,
            timeout_keep_alive=75, timeout_graceful_shutdown=DRAIN_S, server_header=False,
        )  # fmt: skip
        super().__init__(config)
        end_on_signals()
        self._apps, self._router, self._announce = apps, router, announce
        self._opened: dict[int, asyncio.Server] = {}
        self.tasks: list[asyncio.Task[None]] = []
        """Tasks that run until the server stops."""

    async def begin(self) -> None:
        """Start the replicas, and wait until they are ready, or the server should stop."""
        lives = {id(one.app.life): one.app.life for one in self._router.backends}.values()
        starting = asyncio.gather(*(life.started() for life in lives if life.startup_s))
        while not self.should_exit and not (await asyncio.wait([starting], timeout=STOP_PERIOD_S))[0]:
            pass

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the ports, start the replicas, then announce them and the router."""
        await super().startup(sockets)
        await self.begin()
        if self.should_exit:
            return
        self.tasks.append(asyncio.create_task(self._router.watch()))
        for one in self._router.backends:
            self._announce(_line_of(one))
        assert sockets is not None
        ready = {"ready": True, "url": url_of(sockets[0]), "replicas": len(self._router.backends)}
        self._announce(json.dumps(ready))

    async def open_port(self, app: App) -> tuple[str, int]:
        """Listen on a free port for an application, and return the host and the port."""

        def protocol() -> asyncio.Protocol:
            protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return protocol

        listening = socket.create_server((self.config.host, 0), backlog=BACKLOG)
        host, port = listening.getsockname()[:2]
        self._apps[port] = app
        loop = asyncio.get_running_loop()
        self._opened[port] = await loop.create_server(protocol, sock=listening, backlog=BACKLOG)
        return host, port

    def close_port(self, port: int) -> None:
        """Stop listening on a port that was opened later."""
        self._opened.pop(port).close()
        del self._apps[port]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the ports when requests in progress are complete."""
        for task in self.tasks:
            task.cancel()
        await super().shutdown(sockets)


class _ByPort:
    """ASGI application that chooses a replica or the router by the port of the connection."""

    def __init__(self, apps: dict[int, App]) -> None:
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an ASGI request to the application of its port."""
        try:
            await self._apps[scope["server"][1]](scope, receive, send)
        except BadRequest as error:
            await reply_error(send, str(error), error.status)
        except Dropped:
            getattr(send, "__self__").transport.abort()  # noqa: B009  ASGI has no message that breaks a connection
            await asyncio.sleep(0)  # until uvicorn has noticed


def _line_of(replica: Backend) -> str:
    """Return the JSON line that announces a replica."""
    servers = ", ".join(replica.servers)
    return json.dumps(
        {"id": replica.id, "server": servers, "accelerator": replica.accelerator, "url": replica.url},
        ensure_ascii=False,
    )


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host and port.

    Raises:
        SpecError: the port cannot be used.
    """
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise SpecError(
            f"--port: {host}:{port} cannot be used: {error}; the router and its replicas need ports in a row"
        ) from None


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}"


def compile_engines(placed: Iterable[EmulatedPool]) -> None:
    """Compile the code of the engines, so that the first request need not wait for it."""
    for replica in {type(one.replica): one.replica for one in placed}.values():
        live = replica.live(1, np.random.default_rng(1))
        row = live.add(0.0, 8, 2)
        list(live.run_until(1e9))
        if row is not None and (row := live.add(1e9, 8, 2)) is not None:
            live.cancel(row, 1e9)
