"""The application of the REST service, with routes, middleware, start-up and shutdown; and its server.

uvicorn loads `create_app` (``uvicorn --factory rest_server.app:create_app``); ``inferplan serve`` calls
`serve`.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response
from uvicorn.supervisors.multiprocess import Multiprocess, Process

import optimizer
from optimizer.errors import MissingExtraError, SpecError, reason_of
from optimizer.schema.files import document_files
from optimizer.schema.samples import sample_or_path
from optimizer.stabilisation.rules import RECOMMENDED, Rules, read_rules
from rest_server.compat.compat_routes import wire_router
from rest_server.compat.queue import queue_router
from rest_server.compat.slashes import TrailingSlash
from rest_server.connections import Connection
from rest_server.description import DESCRIPTION, add_description
from rest_server.errors import API_PREFIX, add_error_handlers
from rest_server.limits import BodyLimit, RequestLog
from rest_server.logs import SERVICE, log_configuration
from rest_server.memory import return_large_memory
from rest_server.metrics import ServiceMetrics
from rest_server.security import OPEN_PATHS, AuthMiddleware, KeyFiles
from rest_server.settings import Settings, load_settings
from rest_server.state import FleetStore
from rest_server.state_file import open_state
from rest_server.stopping import ctrl_c_blocked, end_on_signals, ended_by_signals, silence_resource_tracker
from rest_server.v1.problems import messages
from rest_server.v1.v1_routes import api_router
from rest_server.web.access import CookieAccess
from rest_server.workers import SolverWorkers

PAGE_PREFIX = "/web"
BACKLOG = 512
"""Maximum number of connections that the operating system queues before they are accepted."""
KEEP_ALIVE_S = 75
"""Time for which an idle connection is kept open; longer than the 60 s of most proxies [s]."""
WORKER_START_S = 30.0
"""Maximum time for which a worker process can be unresponsive, such as during imports [s]."""
ANSWER_S = 5
"""Maximum time until the next sign of life of a worker process that has just answered [s]."""
STEP_S = 0.1
"""Interval at which the supervisor of workers checks for signals [s]."""
EXIT_S = 10.0
"""Maximum time that a worker process can take to end after its last request [s]."""


_health_router = APIRouter(tags=["health"])
"""Routes by which monitoring checks the health of the service."""
_Readiness = dict[str, str | int]


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the application with all routes.

    Args:
        settings: settings of the service; None reads them from the environment.

    Raises:
        SpecError: a setting is out of range, or a file of API keys cannot be read.
    """
    settings = settings or load_settings()
    app = bare_app(settings, PAGE_PREFIX if settings.web else None)
    app.include_router(api_router(stateful=settings.stateful), prefix=API_PREFIX)
    app.include_router(wire_router(stateful=settings.stateful))
    app.include_router(queue_router(), prefix="/queue")
    if settings.queue_at_root:
        app.include_router(queue_router())
    keyless = OPEN_PATHS if settings.api_key_files else None
    add_description(app, keyless=keyless, stateful=settings.stateful)
    if settings.web:
        add_page(app, PAGE_PREFIX)
    return app


def bare_app(settings: Settings, page: str | None = None) -> FastAPI:
    """Return an application with its state and middleware, and only the health routes.

    Args:
        settings: settings of the service.
        page: prefix of the page for analysts; None without the page.

    Raises:
        SpecError: a file of API keys or the state cannot be read, or the extra `web` is missing.
    """
    app = FastAPI(
        title="inferplan",
        version=optimizer.__version__,
        summary="Capacity planner for LLM inference fleets.",
        description=DESCRIPTION,
        lifespan=_lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # operation names in generated clients
        openapi_url=None,
    )
    app.state.settings = settings
    app.state.keys = KeyFiles(settings.api_key_files)
    app.state.workers, app.state.study_workers = _workers(settings)
    rules = _rules(settings)
    app.state.held = FleetStore(rules=rules) if settings.state is None else open_state(settings.state, rules)
    app.state.metrics = ServiceMetrics(settings, app.state)
    app.state.ready = False
    app.include_router(_health_router)
    add_error_handlers(app)
    _add_middleware(app, settings, page)
    return app


def create_page(settings: Settings, path: str | None = None) -> FastAPI:
    """Return an application with only the web page for analysts, at the root path.

    Raises:
        SpecError: the document does not exist.
        MissingExtraError: the extra `web` is not installed.
    """
    if path is not None:
        document_files(sample_or_path(path))
    app = bare_app(settings, "")
    add_page(app, "", path)
    return app


def add_page(app: FastAPI, prefix: str, path: str | None = None) -> None:
    """Add the web page for analysts to an application.

    Args:
        app: the application.
        prefix: prefix of its paths, possibly empty.
        path: path of the documents that it opens first.

    Raises:
        MissingExtraError: the extra `web` is not installed.
    """
    try:
        from rest_server.web.mount import mount_page
    except ModuleNotFoundError as error:
        if error.name != "nicegui":
            raise
        raise MissingExtraError("NiceGUI, which the page needs,", "web") from None
    mount_page(app, prefix, path)


def _add_middleware(app: FastAPI, settings: Settings, page: str | None) -> None:
    """Add the middleware to an application, innermost first."""
    app.add_middleware(BodyLimit, settings=settings)
    writing = {"/optimize", *(() if settings.protect_state else ("/optimizeOne",))}
    app.add_middleware(
        AuthMiddleware,
        keys=app.state.keys,
        writing=writing if settings.stateful else (),
        accepts_host=settings.accepts_host,
        page=None if page is None else CookieAccess(page),
    )
    app.add_middleware(TrailingSlash, kept=page)
    app.add_middleware(RequestLog, observe=app.state.metrics.observe)


def _rules(settings: Settings) -> Rules:
    """Return the stabilisation rules that the settings select.

    Raises:
        SpecError: the file of rules cannot be read, or a rule is invalid.
    """
    if settings.stabilise is None:
        return Rules()
    return RECOMMENDED if settings.stabilise == "recommended" else read_rules(Path(settings.stabilise))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    return_large_memory()
    state = app.state
    for workers in (state.workers, state.study_workers):
        workers.start()
    state.ready = True
    yield
    state.ready = False
    await asyncio.gather(state.workers.close(), state.study_workers.close())
    await run_in_threadpool(state.held.close)
    # Reset, so that the same application can start again.
    state.workers, state.study_workers = _workers(state.settings)


def _workers(settings: Settings) -> tuple[SolverWorkers, SolverWorkers]:
    return SolverWorkers(settings), SolverWorkers(settings, studies=True)


@_health_router.get(
    "/healthz", name="health", summary="Check that the service is alive", response_model=dict[str, str]
)
async def _health() -> Response:
    """Report that the service is alive; this never waits for a solve."""
    return JSONResponse({"status": "ok"})


@_health_router.get(
    "/readyz",
    name="readiness",
    summary="Check that the service accepts requests",
    response_model=_Readiness,
    responses={503: {"model": _Readiness, "description": "No process can solve."}},
)
async def _readiness(request: Request) -> Response:
    """Report whether the service can solve, and the number of requests in progress."""
    state = request.app.state
    ready = state.ready and state.workers.available
    pools = (state.workers, state.study_workers)
    body = {
        "status": "ready" if ready else "not ready",
        "running": sum(workers.running for workers in pools),
        "waiting": sum(workers.waiting for workers in pools),
    }
    return JSONResponse(body, 200 if ready else 503)


@_health_router.get(
    "/metrics",
    name="metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses=messages()
    | {200: {"content": {"application/openmetrics-text": {"schema": {"type": "string"}}}}},
)
def _scraped(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    metrics: ServiceMetrics = request.app.state.metrics
    text, media_type = metrics.exposition(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": media_type})


# --- the server ----------------------------------------------------------------------------------------


def serve(
    settings: Settings,
    create: Callable[[Settings], FastAPI] = create_app,
    announce: Callable[[str], None] | None = None,
    *,
    log_level: str = "INFO",
) -> int:
    """Serve an application until it is stopped, finish running requests, and return the exit status.

    Args:
        settings: settings of the service.
        create: function that returns the application.
        announce: called with the address once connections are accepted.
        log_level: minimum level of logged messages.

    Raises:
        SpecError: the settings contradict each other or are unsafe, or the address cannot be used.
    """
    settings.check()
    KeyFiles(settings.api_key_files)  # report an invalid file once, before workers start
    with _listening(settings) as listening:
        end_on_signals()
        silence_resource_tracker()
        config = _configuration(settings, create, log_level)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        logging.getLogger(SERVICE).info("listening on http://%s:%d", shown, port)
        if announce is not None:
            announce(f"http://{shown}:{port}/")
        if settings.workers > 1:
            os.environ.update(settings.environment())
            _WorkerSupervisor(config, sockets=[listening]).run()
        else:
            _Server(config).run(sockets=[listening])
    return 0


class _Server(uvicorn.Server):
    """A server that a second Ctrl-C stops immediately, even if requests are running."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a stop signal; on the second one from the keyboard, stop immediately."""
        if self.should_exit and sig == signal.SIGINT:
            logging.getLogger(SERVICE).warning("stopped at once; requests in progress were abandoned")
            for process in multiprocessing.active_children():
                process.kill()
            os._exit(128 + sig)
        super().handle_exit(sig, frame)


class _WorkerConfig(uvicorn.Config):
    """Configuration of worker processes that a stop signal ends while they load the application."""

    def load(self) -> None:
        """Load the application; a stop signal during this time ends the process immediately."""
        with ended_by_signals():
            super().load()


class _WorkerSupervisor(Multiprocess):
    """Supervisor of worker processes that share a socket.

    It closes the socket when the service is told to stop.
    """

    def init_processes(self) -> None:
        """Start the worker processes, shielded from Ctrl-C, which only the supervisor handles."""
        with ctrl_c_blocked():
            super().init_processes()

    @property
    def _signalled(self) -> bool:
        """Return whether a signal has arrived, after which no worker is waited for."""
        return bool(self.signal_queue) or self.should_exit.is_set()

    def keep_subprocess_alive(self) -> None:
        """Replace worker processes that have ended or hang, unless the service is being stopped."""
        end_s = time.monotonic() + WORKER_START_S
        for worker in self.processes:
            self._wait_for_answer(worker, end_s)
        if not self._signalled:
            with ctrl_c_blocked():  # also for workers that replace others
                super().keep_subprocess_alive()

    def _wait_for_answer(self, worker: Process, end_s: float) -> None:
        """Wait until a worker answers or ends, the service is stopped, or a time is reached."""
        with suppress(OSError):
            worker.parent_conn.send(b"ping")
            while worker.process.is_alive() and not self._signalled and time.monotonic() < end_s:
                if worker.parent_conn.poll(STEP_S):
                    worker.parent_conn.recv()
                    return

    def terminate_all(self) -> None:
        """Close the socket, then tell the workers to close their copies and to finish running requests."""
        for listening in self.sockets:
            listening.close()
        super().terminate_all()

    def join_all(self) -> None:
        """Wait for the workers to end; kill them on a second Ctrl-C, or if one does not end in time."""
        end_s = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + EXIT_S
        while running := [worker.process for worker in self.processes if worker.process.is_alive()]:
            wait([process.sentinel for process in running], STEP_S)
            if signal.SIGINT in self.signal_queue or time.monotonic() > end_s:
                for process in running:
                    process.kill()


def _configuration(
    settings: Settings, create: Callable[[Settings], FastAPI], log_level: str
) -> uvicorn.Config:
    config_type = _WorkerConfig if settings.workers > 1 else uvicorn.Config
    return config_type(
        "rest_server.app:create_app" if settings.workers > 1 else create(settings),
        factory=settings.workers > 1,
        workers=settings.workers,
        loop="asyncio",  # another event loop, if installed, would buffer responses differently
        http=partial(Connection, settings=settings),  # type: ignore[arg-type]  # called as the type is
        log_config=log_configuration(log_level),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_worker_healthcheck=ANSWER_S,
        timeout_graceful_shutdown=int(settings.request_timeout_s) + 5,
    )


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens on the address of the settings."""
    where = f"--host {settings.host} --port {settings.port}"
    try:
        addresses = socket.getaddrinfo(settings.host.strip("[]"), settings.port, type=socket.SOCK_STREAM)
        family, socket_type, protocol, _, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
        listening = socket.socket(family, socket_type, protocol)
    except (OSError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not a host name"
        raise SpecError(f"{where}: {(problem or str(error)).lower()}") from None
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise SpecError(f"{where}: {reason_of(error)}; choose another") from None
    listening.set_inheritable(True)
    return listening
