"""schemathesis at length; `conftest` leaves this file unread where no slow check is run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from openapi_checks import described, hold_to_the_document, quick, served
from service_runs import Service

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
    hold_to_the_document(case, live)
