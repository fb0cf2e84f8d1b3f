"""Error responses: ``application/problem+json`` under /v1, otherwise llm-inferno's ``{"message": …}``."""

import http
import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Header, Path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from optimizer.errors import AnalysisError, IncompletePlanError, InferplanError, SolverError, SpecError
from optimizer.schema.messages import UNKNOWN_KEY, others, path_text, problem_text, unknown_key
from rest_server.journal import StateNotWrittenError
from rest_server.solver_processes import SolverUnavailableError
from rest_server.workers import ClientDisconnectedError, QueueFullError, RequestTimeoutError

API_PREFIX = "/v1"
PROBLEM_JSON = "application/problem+json"
NOT_FOUND_TEXT = "404 page not found"

_TITLES: tuple[tuple[type[Exception], str], ...] = (
    (SpecError, "The document is wrong"),
    (AnalysisError, "The queue cannot be analysed as asked"),
    (IncompletePlanError, "A server is not served in full"),
    (SolverError, "The solver failed"),
    (QueueFullError, "The service is busy"),
    (SolverUnavailableError, "The service cannot solve"),
    (RequestTimeoutError, "The time ran out"),
    (StateNotWrittenError, "The state cannot be written"),
)
"""Titles of problems by class of error; other errors use the text of their HTTP status."""
_PATH = re.compile(r"([A-Za-z_]\w*(?:[.\[].*?)?)(?::\d+:\d+)?")
"""Pattern of a field path before the first colon of a message; after ``body``, line and column are allowed.
"""


class BodyError(SpecError):
    """Raised when a field of a request body is invalid; its path can contain arbitrary text."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        """Path of the invalid field in the body."""
        self.problem = problem
        """Problem at that path."""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def is_api(path: str) -> bool:
    """Return whether a path belongs to the project's own API, under /v1."""
    return path == API_PREFIX or path.startswith(f"{API_PREFIX}/")


def field_path(message: str) -> str | None:
    """Return the path of the invalid field at the start of an error message; None if there is none."""
    place, unknown, _ = message.partition(f": {UNKNOWN_KEY}")
    if unknown:  # an unknown key can contain any text
        return place
    place, colon, _ = message.partition(": ")
    match = _PATH.fullmatch(place) if colon else None
    return match[1] if match else None


def error_response(
    scope: Mapping[str, Any],
    status: int,
    detail: str,
    *,
    title: str | None = None,
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an error response, in the format of the requested path.

    Args:
        scope: ASGI scope of the request.
        status: HTTP status.
        detail: the problem, the value, the limit and the fix.
        title: title of the problem; default: the text of the status.
        path: path of the invalid field.
        headers: headers of the response.
    """
    detail = detail.encode("utf-8", "backslashreplace").decode()  # an unpaired surrogate cannot be sent
    if not is_api(scope["path"]):
        return _json({"message": detail}, status, "application/json", headers)
    slug = re.sub(r"\W+", "-", title.lower()) if title else ""
    problem = {
        "type": f"urn:inferplan:problem:{slug}" if slug else "about:blank",
        "title": title or http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if path is not None:
        problem["path"] = path.encode("utf-8", "backslashreplace").decode()
    request_id = scope.get("state", {}).get("request_id")
    if request_id is not None:
        problem["requestId"] = request_id
    return _json(problem, status, PROBLEM_JSON, headers)


def _json(value: object, status: int, media_type: str, headers: Mapping[str, str] | None) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text, status, headers=dict(headers or {}), media_type=media_type)


def add_error_handlers(app: FastAPI) -> None:
    """Make an application return all errors in the formats of this module."""
    app.add_exception_handler(InferplanError, _of_the_library)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _unexpected)


async def _of_the_library(request: Request, error: Exception) -> Response:
    assert isinstance(error, InferplanError)
    if isinstance(error, ClientDisconnectedError):
        return Response(status_code=error.http_status)
    retry_after_s = getattr(error, "retry_after_s", None)
    headers = None if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    title = next((title for kind, title in _TITLES if isinstance(error, kind)), None)
    message = " ".join(str(error).split())
    path = error.path if isinstance(error, BodyError) else field_path(message)
    return error_response(request.scope, error.http_status, message, title=title, path=path, headers=headers)


async def _of_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    first = problems[0]
    where = [step for step in first["loc"] if isinstance(step, str | int)]
    inside = where[1:] if where[:1] == ["body"] and len(where) > 1 else where
    path = path_text(inside)
    text = "missing; send a JSON object" if path == "body" else problem_text(first)
    if where[:1] == ["query"] and first["type"] == "extra_forbidden":
        text = unknown_key(str(where[-1]), query_names(request))
    title = _TITLES[0][1] if where[:1] == ["body"] else "The request is wrong"
    return error_response(
        request.scope, 422, f"{path}: {text}{others(len(problems) - 1)}", title=title, path=path
    )


def query_names(request: Request) -> list[str]:
    """Return the names of the query parameters that the route of a request accepts."""
    return [
        item.alias
        for item in get_flat_params(request.scope["route"].dependant)
        if not isinstance(item.field_info, Path | Header)
    ]


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    unknown_route = (
        error.status_code in {404, 405} and error.detail == http.HTTPStatus(error.status_code).phrase
    )
    if not is_api(request.scope["path"]) and unknown_route:
        return PlainTextResponse(NOT_FOUND_TEXT, 404)  # like the reference, which never answers 405
    detail = str(error.detail)
    if unknown_route:
        detail = f"{request.method} {request.scope['path']} does not exist; see /openapi.json"
    return error_response(request.scope, error.status_code, detail, headers=error.headers)


async def _unexpected(request: Request, _error: Exception) -> Response:
    return error_response(
        request.scope, 500, "an unexpected error; the log has more under the id of this request"
    )
