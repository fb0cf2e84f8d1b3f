"""Errors of the clients: of the connection, and the service's problems (RFC 9457) by status."""

import json
from collections.abc import Mapping
from typing import Any

from optimizer.errors import InferplanError, SpecError


class UnreachableError(InferplanError):
    """Raised when there is no connection to the service, or it breaks, at every attempt."""


class ResponseTimeoutError(UnreachableError):
    """Raised when the service does not answer within the client's time limit."""


class ServiceError(InferplanError):
    """Raised when the service answers with an error; the message is its `detail`."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(status, problem)
        self.status = status
        """HTTP status."""
        self.title = str(problem.get("title") or f"HTTP status {status}")
        """Kind of problem."""
        self.detail = str(problem.get("detail") or problem.get("message") or self.title)
        """Problem, limit and remedy."""
        self.path = problem.get("path")
        """Path of the invalid field, ``servers[3].model``, if there is one."""
        self.request_id = problem.get("requestId")
        """Identifier of the request in the service's logs."""

    def __str__(self) -> str:
        return self.detail


class InvalidRequestError(ServiceError, SpecError):
    """Raised when the request, or the document in it, is invalid."""


class AuthError(ServiceError):
    """Raised when the API key is missing or unknown, or lacks the scope."""


class NotFoundError(ServiceError):
    """Raised when the requested item does not exist."""


class ConflictError(ServiceError):
    """Raised when the fleet is not at the revision that a write requires."""


class UnavailableError(ServiceError):
    """Raised when the service has no worker free, or runs out of time, at every attempt."""


_BY_STATUS: dict[int, type[ServiceError]] = {
    400: InvalidRequestError, 401: AuthError, 403: AuthError, 404: NotFoundError,
    409: ConflictError, 412: ConflictError, 413: InvalidRequestError, 422: InvalidRequestError,
    503: UnavailableError, 504: UnavailableError,
}  # fmt: skip


def service_error(status: int, body: bytes) -> ServiceError:
    """Return the error for a response; a proxy can send any body."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    return _BY_STATUS.get(status, ServiceError)(status, problem if isinstance(problem, dict) else {})
