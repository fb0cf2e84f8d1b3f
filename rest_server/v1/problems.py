"""What OpenAPI says of errors: every 4xx of a route, as ``application/problem+json``."""

from typing import Any

from rest_server.errors import PROBLEM_JSON

_TEXT: dict[str, Any] = {"type": "string"}
PROBLEM: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "What went wrong (RFC 9457).",
    "required": ["title", "status"],
    "properties": {
        "type": _TEXT,
        "title": _TEXT,
        "status": {"type": "integer"},
        "detail": _TEXT,
        "path": _TEXT | {"description": "The field that is at fault: `servers[3].model`."},
        "requestId": _TEXT | {"description": "The request, as the logs name it."},
    },
}
MEANINGS = {
    401: "No API key, or an unknown one.",
    403: "The API key lacks the scope.",
    404: "It does not exist.",
    408: "The body did not arrive in time.",
    412: "The fleet is at another revision than `If-Match` says.",
    413: "The body, or what it describes, is larger than the service takes.",
    422: "The document is wrong; `detail` says where, what and which limit.",
    503: "All solver workers are busy and their queue is full, or the service stops; see `Retry-After`.",
    504: "The time for a request ran out.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of the errors that a route may answer, with those that every route may."""
    return {
        status: {"description": MEANINGS[status], "content": {PROBLEM_JSON: {"schema": PROBLEM}}}
        for status in (401, 403, *sorted({413, *statuses}))
    }
