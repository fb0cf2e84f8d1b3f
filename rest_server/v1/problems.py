"""Error responses in OpenAPI: every status of a route, as ``application/problem+json``."""

from typing import Any

from rest_server.errors import PROBLEM_JSON

Answers = dict[int | str, dict[str, Any]]
"""OpenAPI descriptions of responses, by status."""
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
        "path": _TEXT | {"description": "The invalid field: `servers[3].model`."},
        "requestId": _TEXT | {"description": "ID of the request in the logs."},
    },
}
PROBLEM_NAMED = {"$ref": "#/components/schemas/Problem"}
"""Reference to the schema of problems by name, so that a generated client has one type for all errors."""
MEANINGS = {
    401: "No API key, or an unknown one.",
    403: "The API key lacks the scope, or a page of another site sent the request.",
    404: "It does not exist.",
    408: "The body was not received in time.",
    412: "The fleet is at another revision than `If-Match` says.",
    413: "The body is over the size limit.",
    421: "The host name in `Host` is not allowed.",
    422: "The body is not JSON, or a value in it, in the path or in the query is wrong; `detail` gives the "
    "location, the value and the limit.",
    500: "The solver failed.",
    503: "The request cannot be served now; `detail` gives the reason; see `Retry-After`.",
    504: "The request exceeded its time limit.",
    507: "The disk is full; the change was not stored.",
}
EVERYWHERE = (401, 403, 413, 421)
"""Error statuses that any route can return."""
_IMPLIED = {408: (503,), 412: (503, 507), 504: (500, 503)}
"""Further error statuses implied by a status: no memory for a body, disk full, or no working solver."""


def problems(*statuses: int) -> Answers:
    """Return the OpenAPI entries of a route's error statuses, including implied and common ones."""
    implied = (status for given in statuses for status in _IMPLIED.get(given, ()))
    return {  # every route of /v1 answers 422 to an unknown query parameter
        status: {"description": MEANINGS[status], "content": {PROBLEM_JSON: {"schema": PROBLEM_NAMED}}}
        for status in sorted({*EVERYWHERE, 422, *statuses, *implied})
    }


def messages() -> Answers:
    """Return the OpenAPI entries of the errors of a route outside /v1."""
    shape = {"type": "object", "required": ["message"], "properties": {"message": _TEXT}}
    return {
        status: {"description": MEANINGS[status], "content": {"application/json": {"schema": shape}}}
        for status in EVERYWHERE
    }
