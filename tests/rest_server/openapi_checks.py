"""What holds an answer of a live service to the OpenAPI document, by schemathesis."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import schemathesis
from hypothesis import HealthCheck, settings
from patience import PATIENCE_S, until
from schemathesis.config import NotAServerErrorConfig
from schemathesis.specs.openapi import checks
from service_runs import Service, in_a_thread

from rest_server.app import create_app
from rest_server.settings import Settings

LIMITS: dict[str, Any] = {
    "stateful": True,
    "request_timeout_s": 10,
    "max_batch": 512,
    "solver_processes": 1,  # work that runs out of time ends, and the next has its place
}
ANSWERS: list[str | int] = ["2xx", "3xx", "4xx", 503, 504, 507]
"""Statuses of a service in order. 503, 504 and 507 say that it is short of workers, time or disk, as a busy
machine may be; that they are in the document is checked as of all others."""
NOT_ASKED: list[Any] = [
    checks.positive_data_acceptance,  # a document can be well-formed and contradict itself
    checks.negative_data_rejection,  # keys are matched in any case, null is absent, the path gives the name
]
CONTROL = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
"""Characters that HTTP does not allow in a header (RFC 9110, section 5.5): the server refuses such a request
before the service sees it."""
MAX_URL = 60_000
"""Length of a request's path and query up to which the server reads it."""
quick = settings(max_examples=1, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def described() -> schemathesis.BaseSchema:
    """Return the operations that the service describes."""
    schema = schemathesis.openapi.from_dict(create_app(Settings(**LIMITS)).openapi())
    schema.config.checks.not_a_server_error = NotAServerErrorConfig(expected_statuses=ANSWERS)
    return schema


def sendable(case: "schemathesis.Case[Any]") -> bool:
    """Return whether HTTP allows a request's headers, and its path and query fit in 64 KiB."""
    if len(quote(f"{case.path_parameters} {case.query}", errors="surrogatepass")) > MAX_URL:
        return False
    return not any(CONTROL.search(str(value)) for value in (case.headers or {}).values())


def hold_to_the_document(case: "schemathesis.Case[Any]", live: Service) -> None:
    unasked = list(NOT_ASKED)
    if not case.path.startswith("/v1/"):
        unasked.append(checks.unsupported_method)  # 404, as the reference
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{live.port}", excluded_checks=unasked, timeout=PATIENCE_S
    )


@contextmanager
def served() -> Iterator[Service]:
    """Serve with the limits, and wait until work can begin."""
    with in_a_thread(**LIMITS) as found:
        until(lambda: found.ask("GET", "/readyz").status == 200)
        yield found
