"""Services to test: in a process of its own, or in a thread with a route that takes its time."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI, Request
from forked import Forked, forked
from patience import PATIENCE_S, PATIENT, until

from rest_server.app import create_app
from rest_server.connections import Connection
from rest_server.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Service(NamedTuple):
    port: int
    app: FastAPI
    events: dict[str, threading.Event]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return ask(self.port, method, path, body, **headers)

    def connect(self, path: str) -> socket.socket:
        """Send a request on a connection that the caller closes."""
        return connected(self.port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def until(self, running: int, waiting: int) -> None:
        """Wait until so many workers are busy and so many requests wait."""
        workers = self.app.state.workers
        until(lambda: (workers.running, workers.waiting) == (running, waiting), 0.005)


def connected(port: int, sent: bytes = b"", patience_s: float = PATIENCE_S) -> socket.socket:
    """Return a connection that the caller closes, on which something was sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=patience_s)
    connection.sendall(sent)
    return connection


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> Reply:
    """Make one request on a connection of its own; objects and lists are sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = json.dumps(body).encode() if isinstance(body, dict | list) else body
        connection.request(method, path, data, named)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read().decode())
    finally:
        connection.close()


@contextmanager
def in_a_thread(events: dict[str, threading.Event] | None = None, **given: Any) -> Iterator[Service]:
    """Serve with real connections; ``/wait/NAME`` takes a worker until the event of that name is set."""
    app = create_app(Settings(**PATIENT | {"solver_processes": 0, "max_solves": 1} | given))
    known = events or {}

    async def wait(request: Request, name: str) -> str:
        await app.state.workers.run(request, partial(known[name].wait, PATIENCE_S))
        return name

    app.add_api_route("/wait/{name}", wait, include_in_schema=False)
    app.add_api_route("/v1/wait/{name}", wait, include_in_schema=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = partial(Connection, settings=app.state.settings)
        config = uvicorn.Config(
            app,
            http=http,  # type: ignore[arg-type]
            loop="asyncio",
            log_config=None,
            timeout_graceful_shutdown=int(PATIENCE_S),
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Service(listening.getsockname()[1], app, known)
        finally:
            server.should_exit = True
            for event in known.values():
                event.set()
            thread.join()


class Watched(NamedTuple):
    """A service in a process of its own, whose log is a file."""

    port: int
    process: "subprocess.Popen[bytes] | Forked"
    log: Path

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return ask(self.port, method, path, body, **headers)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, list[dict[str, Any]]]:
        """Send a signal; return the exit status and the lines of the log."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        lines = self.log.read_text("utf-8").splitlines()  # killed, Python adds a line of its own
        return status, [json.loads(line) for line in lines if line.startswith("{")]

    def accepts(self) -> bool:
        """Return whether new connections are accepted; one in the queue of a closed socket is reset."""
        try:
            connected(self.port).close()
        except (ConnectionRefusedError, ConnectionResetError):
            return False
        return True

    def until_ready(self) -> None:
        until(lambda: self.ask("GET", "/readyz").status == 200)

    def memory_mb(self) -> float:
        """Return the resident memory of the process that answers."""
        return status_of(self.process.pid, "VmRSS") / 1024

    def descendants(self) -> list[int]:
        """Return all processes that came of this one, the first generation first."""
        return descendants(self.process.pid)

    def solvers(self) -> list[int]:
        """Return the processes that solve: the children of the server process that forks them."""
        pids = self.descendants()
        return [pid for pid in pids if status_of(pid, "PPid") in pids]


def descendants(pid: int) -> list[int]:
    """Return all processes that came of one, the first generation first."""
    parents = {each: status_of(each, "PPid") for each in _pids()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def status_of(pid: int, field: str) -> int:
    """Return a number of a process's status; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def alive(pid: int) -> bool:
    """Say whether a process runs; one that has ended and was not asked for its status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


ENVIRONMENT = {f"INFERPLAN_{name.upper()}": str(value) for name, value in PATIENT.items()}


@contextmanager
def watched(
    log: Path, *options: str, files: int = 1024, prefix: Sequence[str] = (), **environment: str
) -> Iterator[Watched]:
    """Run ``inferplan serve`` on a free port; `files` and `prefix` are those of `forked`."""
    given = ENVIRONMENT | environment
    with (
        log.open("wb") as errors,
        forked(
            "serve", "--port", "0", *options, environment=given, errors=errors, files=files, prefix=prefix
        ) as process,
    ):
        yield _listening(process, log)


def _listening(process: "subprocess.Popen[bytes] | Forked", log: Path) -> Watched:
    until(lambda: b"listening on" in log.read_bytes() or process.poll() is not None)
    found = re.search(r"listening on http://[^ ]*:(\d+)", log.read_text("utf-8"))
    assert found, log.read_text("utf-8")
    return Watched(int(found[1]), process, log)


@contextmanager
def as_a_program(*options: str, **environment: str) -> Iterator[Watched]:
    """Run ``inferplan serve`` from its start on, with threads that solve unless told otherwise."""
    given = ENVIRONMENT | {"PYTHONPATH": str(ROOT), "INFERPLAN_SOLVER_PROCESSES": "0"} | environment
    command = [sys.executable, "-m", "optimizer", "serve", "--port", "0", *options]
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "log").open("wb") as errors,
        subprocess.Popen(command, stderr=errors, env=os.environ | given) as process,
    ):
        try:
            yield _listening(process, Path(folder) / "log")
        finally:
            process.kill()
