"""schemathesis at length; `conftest` leaves this file unread where no slow check is run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from api_clients import Server, serving
from hypothesis import settings
from openapi_checks import LIMITS, described, hold_to_the_document, quick
from patience import until

if TYPE_CHECKING:
    import schemathesis

SCHEMA = described()


@pytest.fixture(scope="module")
def live() -> Iterator[Server]:
    with serving(**LIMITS) as found:
        until(lambda: found.request("GET", "/readyz").status == 200)
        yield found


@pytest.mark.slow
@SCHEMA.parametrize()
@settings(quick, max_examples=300)
def test_every_answer_matches_the_openapi_document_at_length(
    case: "schemathesis.Case[Any]", live: Server
) -> None:
    hold_to_the_document(case, live)
