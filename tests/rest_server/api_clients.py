"""Clients of the service for tests: in this process, or over real connections from many threads."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import uvicorn
from fastapi.testclient import TestClient
from patience import PATIENCE_S, PATIENT, until

from rest_server.app import create_app
from rest_server.settings import Settings
from rest_server.state import FleetStore

Json = dict[str, Any]
PROBLEM = "application/problem+json"
ORIGIN = "http://localhost"
"""Where clients inside this process find the service."""


@contextlib.contextmanager
def client(**settings: Any) -> Iterator[TestClient]:
    """Serve inside this process; work runs in threads unless told otherwise, and tags begin with ``run``."""
    app = create_app(Settings(**PATIENT | {"solver_processes": 0} | settings))
    app.state.held = FleetStore(instance="run")
    with TestClient(app, ORIGIN, raise_server_exceptions=False) as found:
        yield found


def refused(answer: Any, status: int, place: str = "") -> Json:
    """Check that an answer is a problem document with the status and the place; return it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].partition(";")[0] == PROBLEM
    problem: Json = answer.json()
    assert problem["status"] == status
    assert place in json.dumps(problem, ensure_ascii=False)
    asked_for = answer.request.headers.get("if-match", "")  # an answer quotes it whole
    assert len(answer.content) < 2_000 + len(asked_for)
    for word in ("Traceback", "pydantic", "ValidationError", "NoneType"):
        assert word not in answer.text
    return problem


def state_of(service: TestClient) -> Any:
    """Return what the application of a service holds."""
    app: Any = service.app
    return app.state


class Answer(NamedTuple):
    """What came back over a connection."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        """Return the parsed body."""
        return json.loads(self.body)

    @property
    def etag(self) -> str:
        """The revision that the answer stands for."""
        return self.headers["etag"]


class Server(NamedTuple):
    """A service that listens on a port of this machine."""

    port: int

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Make one request over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {"Content-Type": "application/json"} | dict(headers or {}))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, response.read(), found)
        finally:
            connection.close()


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    """Serve on a free port of this machine, in a thread."""
    app = create_app(Settings(**PATIENT | {"solver_processes": 0} | settings))
    app.state.held = FleetStore(instance="run")
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            yield Server(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()
