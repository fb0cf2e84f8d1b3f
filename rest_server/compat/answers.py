"""Responses on llm-inferno's routes: JSON in its format, errors, and headers with notices."""

import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from optimizer.errors import AnalysisError, SpecError
from rest_server.compat.changes import WireRefusalError

IGNORED_HEADER = "X-Inferplan-Ignored"
"""Response header that lists the ignored keys of a body, separated by commas."""
UNPLANNED_HEADER = "X-Inferplan-Unplanned"
"""Response header that lists the servers and profiles that are not planned because they have undefined names.
"""
UNSERVED_HEADER = "X-Inferplan-Unserved"
"""Response header that lists unserved servers, whether they keep their replicas or not."""
MISSING_HEADER = "X-Inferplan-Missing"
"""Response header that lists servers whose loads count as missing because a token length is not stated."""
LOSS_HEADER = "X-Inferplan-Loss"
"""Response header that lists servers that reject more than 0.1 % of their requests, with the fraction."""
MAX_NAMED = 20
"""Maximum number of items in a header."""
MAX_UNSERVED = 100
"""Maximum number of servers in the header that lists unserved servers."""
MAX_PATH = 100
"""Maximum length of an item in a header [characters]."""


class WireRoute(APIRoute):
    """A route whose error responses have llm-inferno's format."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, which converts errors to responses."""
        handler = super().get_route_handler()

        async def refusing(request: Request) -> Response:
            try:
                return await handler(request)
            except WireRefusalError as error:
                return json_response(error.body, error.http_status)
            except (SpecError, AnalysisError) as error:
                return json_response({"message": str(error)}, 400)

        return refusing


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as a JSON response; unpaired surrogates are written as escapes."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = body.encode("utf-8", "backslashreplace")
    return Response(text, status, headers, media_type="application/json")


def notice_headers(
    ignored: Iterable[str],
    unplanned: Iterable[str] = (),
    unserved: Iterable[str] = (),
    losses: Iterable[str] = (),
    missing: Iterable[str] = (),
) -> dict[str, str]:
    """Return the headers that list ignored, unplanned, unserved and lossy items, and missing loads."""
    named = (
        (IGNORED_HEADER, list(ignored), MAX_NAMED),
        (UNPLANNED_HEADER, list(unplanned), MAX_NAMED),
        (UNSERVED_HEADER, list(unserved), MAX_UNSERVED),
        (LOSS_HEADER, list(losses), MAX_UNSERVED),
        (MISSING_HEADER, list(missing), MAX_UNSERVED),
    )
    return {header: _listed(paths, most) for header, paths, most in named if paths}


def _listed(paths: list[str], most: int) -> str:
    """Join items to a printable header value of limited length.

    Args:
        paths: the items.
        most: maximum number of items.
    """
    shown = ", ".join(_printable(path[:MAX_PATH]) for path in paths[:most])
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
