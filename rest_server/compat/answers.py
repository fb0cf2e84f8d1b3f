"""Answers on the reference's routes: JSON as it writes it, refusals, and headers for what meant nothing."""

import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from optimizer.errors import AnalysisError, SpecError
from rest_server.compat.changes import WireRefusalError

IGNORED_HEADER = "X-Inferplan-Ignored"
"""Names the keys of a body that meant nothing, separated by commas."""
UNPLANNED_HEADER = "X-Inferplan-Unplanned"
"""Names the servers and profiles that refer to nothing and were left out of the plan."""
UNSERVED_HEADER = "X-Inferplan-Unserved"
"""Names the servers for which there is no plan, whether they keep what they run or not."""
MISSING_HEADER = "X-Inferplan-Missing"
"""Names the servers whose loads count as missing: requests arrive, but their output length is not given."""
LOSS_HEADER = "X-Inferplan-Loss"
"""Names the servers that lose more than 0.1 % of their requests, each with the share."""
MAX_NAMED = 20
"""Maximum number of paths that a header names."""
MAX_UNSERVED = 100
"""Maximum number of servers that the header of unserved servers names."""
MAX_PATH = 100
"""Longest path that a header names."""


class WireRoute(APIRoute):
    """A route whose refusals look as the reference's do."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with refusals turned into answers."""
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
    """Return a value as an answer; half a surrogate pair in it is written as an escape."""
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
    """Return the headers that name what meant nothing, was left out, is not served, lost, or missing."""
    named = (
        (IGNORED_HEADER, list(ignored), MAX_NAMED),
        (UNPLANNED_HEADER, list(unplanned), MAX_NAMED),
        (UNSERVED_HEADER, list(unserved), MAX_UNSERVED),
        (LOSS_HEADER, list(losses), MAX_UNSERVED),
        (MISSING_HEADER, list(missing), MAX_UNSERVED),
    )
    return {header: _listed(paths, most) for header, paths, most in named if paths}


def _listed(paths: list[str], most: int) -> str:
    """Return paths as the value of a header, printable and of bounded length."""
    shown = ", ".join(_printable(path[:MAX_PATH]) for path in paths[:most])
    return f"{shown} and {len(paths) - most} more" if len(paths) > most else shown


def _printable(text: str) -> str:
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
