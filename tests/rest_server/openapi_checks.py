"""What holds an answer of a live service to the OpenAPI document, by schemathesis."""

from typing import Any

import schemathesis
from api_clients import Server
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
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
    unasked: list[Any] = list(NOT_ASKED)
    if not case.path.startswith("/v1/"):
        unasked.append(checks.unsupported_method)  # 404, as the reference
    if case.path.startswith("/v1/targets"):
        unasked.append(not_a_server_error)  # 503 until there is a plan; any other is not in the document
    case.call_and_validate(
        base_url=f"http://127.0.0.1:{live.port}", excluded_checks=unasked, timeout=TIMEOUT_S
    )
