"""What holds an answer of a live service to the OpenAPI document, by schemathesis."""

from typing import Any

import schemathesis
from api_clients import Server
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks

from rest_server.app import create_app
from rest_server.settings import Settings

TIMEOUT_S = 20
LIMITS: dict[str, Any] = {"stateful": True, "request_timeout_s": TIMEOUT_S - 5, "max_batch": 512}
NOT_ASKED = [
    checks.positive_data_acceptance,  # a document can be well-formed and contradict itself
    checks.negative_data_rejection,  # keys are matched in any case, null is absent, the path gives the name
]
quick = settings(max_examples=3, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def described() -> schemathesis.BaseSchema:
    """Return the operations that the service describes."""
    return schemathesis.openapi.from_dict(create_app(Settings(**LIMITS)).openapi())


def hold_to_the_document(case: "schemathesis.Case[Any]", live: Server) -> None:
    foreign = [] if case.path.startswith("/v1/") else [checks.unsupported_method]  # 404, as the reference
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{live.port}", excluded_checks=NOT_ASKED + foreign, timeout=TIMEOUT_S
    )
