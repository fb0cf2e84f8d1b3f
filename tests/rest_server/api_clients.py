"""Clients of the service for tests, inside this process."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient
from patience import PATIENT

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
