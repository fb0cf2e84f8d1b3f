"""Services to test: in a process of its own, or in a thread with a route that takes its time."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from fastapi import FastAPI, Request

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

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        return ask(self.port, method, path, body, **headers)

    def connect(self, path: str) -> socket.socket:
        """Send a request on a connection that the caller closes."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return connection

    def until(self, running: int, waiting: int) -> None:
        """Wait until so many workers are busy and so many requests wait."""
        workers, end = self.app.state.workers, time.monotonic() + 10
        while (workers.running, workers.waiting) != (running, waiting):
            assert time.monotonic() < end, (workers.running, workers.waiting)
            time.sleep(0.005)


def ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read().decode())
    finally:
        connection.close()


@contextmanager
def in_a_thread(events: dict[str, threading.Event] | None = None, **given: Any) -> Iterator[Service]:
    """Serve with real connections; ``/wait/NAME`` takes a worker until the event of that name is set."""
    app = create_app(Settings(**{"solver_processes": 0, "max_solves": 1} | given))
    known = events or {}

    async def wait(request: Request, name: str) -> str:
        await app.state.workers.run(request, partial(known[name].wait, 20))
        return name

    app.add_api_route("/wait/{name}", wait)
    app.add_api_route("/v1/wait/{name}", wait)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = partial(Connection, settings=app.state.settings)
        config = uvicorn.Config(app, http=http, log_config=None, timeout_graceful_shutdown=10)  # type: ignore[arg-type]
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


class Program(NamedTuple):
    port: int
    process: "subprocess.Popen[str]"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        return ask(self.port, method, path, body, **headers)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit status and the lines of the log, but for the first ones."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        lines = errors.splitlines()  # where it was killed, Python says so in a line of its own
        return self.process.returncode, [json.loads(line) for line in lines if line.startswith("{")]


class Watched(NamedTuple):
    """A service in a process of its own, whose log is a file."""

    port: int
    process: "subprocess.Popen[bytes]"
    log: Path

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        return ask(self.port, method, path, body, **headers)

    def until_ready(self) -> None:
        self.until(lambda: self.ask("GET", "/readyz").status == 200)

    @staticmethod
    def until(reached: Callable[[], bool], limit_s: float = 30.0) -> None:
        end = time.monotonic() + limit_s
        while not reached():
            assert time.monotonic() < end
            time.sleep(0.02)

    def memory_mb(self) -> float:
        """Return the resident memory of the process that answers."""
        return _status(self.process.pid, "VmRSS") / 1024

    def descendants(self) -> list[int]:
        """Return all processes that came of this one, the first generation first."""
        parents = {pid: _status(pid, "PPid") for pid in _pids()}
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found[1:]

    def solvers(self) -> list[int]:
        """Return the processes that solve: the children of the server process that forks them."""
        pids = self.descendants()
        return [pid for pid in pids if _status(pid, "PPid") in pids]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _status(pid: int, field: str) -> int:
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


@contextmanager
def watched(log: Path, *options: str, files: int = 1024, **environment: str) -> Iterator[Watched]:
    """Run ``inferplan serve`` with so many files that it may open, on a free port."""
    command = [sys.executable, "-m", "optimizer", "serve", "--port", "0", *options]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command],
            stderr=errors,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        ) as process,
    ):
        try:
            Watched.until(lambda: b"listening on" in log.read_bytes())
            found = re.search(r"listening on http://[^ ]*:(\d+)", log.read_text("utf-8"))
            assert found
            yield Watched(int(found[1]), process, log)
        finally:
            process.kill()


@contextmanager
def as_a_program(*options: str, **environment: str) -> Iterator[Program]:
    """Run ``inferplan serve``."""
    with subprocess.Popen(
        [sys.executable, "-m", "optimizer", "serve", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "INFERPLAN_SOLVER_PROCESSES": "0"} | environment,
    ) as process:
        try:
            assert process.stderr is not None
            line = json.loads(process.stderr.readline())
            found = re.search(r":(\d+)$", line["message"])
            assert found, line
            yield Program(int(found[1]), process)
        finally:
            if process.poll() is None:
                process.kill()
