"""schemathesis at length; `conftest` leaves this file unread where no slow check is run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, settings
from openapi_checks import LIMITS, described, hold_to_the_document, quick, sendable, served
from schemathesis.core.failures import FailureGroup
from service_runs import Service, in_a_thread

from rest_server.v1 import examples as api_examples

if TYPE_CHECKING:
    import schemathesis

SCHEMA = described()


@pytest.fixture(scope="module")
def live() -> Iterator[Service]:
    with served() as found:
        yield found


@pytest.mark.slow
@SCHEMA.parametrize()
@settings(quick, max_examples=300)
def test_every_answer_matches_the_openapi_document_at_length(
    case: "schemathesis.Case[Any]", live: Service
) -> None:
    assume(sendable(case))
    hold_to_the_document(case, live)


@pytest.mark.slow
def test_a_documented_504_passes_and_an_unexpected_error_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = SCHEMA["/v1/fleet/report"]["POST"].Case(query={"simulate": True, "requests": 9_330_694})
    with in_a_thread(**LIMITS | {"request_timeout_s": 0.2}) as found:
        assert found.ask("PUT", "/v1/fleet", api_examples.SYSTEM).status == 200
        assert found.ask("POST", "/v1/fleet/report?simulate=true&requests=9330694").status == 504
        hold_to_the_document(long, found)
    plan = SCHEMA["/v1/plan"]["POST"].Case(body=api_examples.SYSTEM, media_type="application/json")
    with in_a_thread(**LIMITS | {"solver_processes": 0}) as found:
        hold_to_the_document(plan, found)
        monkeypatch.setattr("rest_server.v1.work.solve", lambda *_, **__: 1 // 0)
        with pytest.raises(FailureGroup):
            hold_to_the_document(plan, found)
