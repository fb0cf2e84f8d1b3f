"""Errors that the clients raise: failed connections, and the service's problems (RFC 9457) by status."""

import json
from collections.abc import Mapping
from typing import Any

from optimizer.errors import InferplanError, SpecError


class UnreachableError(InferplanError):
    """Raised when every attempt fails to connect to the service, or loses the connection."""


class ResponseTimeoutError(UnreachableError):
    """Raised when the service does not answer within the client's time limit."""


class ServiceError(InferplanError):
    """Raised when the service responds with an error; the message is the `detail` of the problem."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(status, problem)
        self.status = status
        """HTTP status of the response."""
        self.title = str(problem.get("title") or f"HTTP status {status}")
        """Title of the problem: the kind of error."""
        self.detail = str(problem.get("detail") or problem.get("message") or self.title)
        """Explanation of the problem, with the limit and the fix."""
        self.path = problem.get("path")
        """Path of the invalid field, such as ``servers[3].model``; None if there is none."""
        self.request_id = problem.get("requestId")
        """Identifier of the request in the service's logs; None if unknown."""

    def __str__(self) -> str:
        return self.detail


class InvalidRequestError(ServiceError, SpecError):
    """Raised when the request, or the document in it, is invalid."""


class AuthError(ServiceError):
    """Raised when the API key is missing or unknown, or lacks the required scope."""


class NotFoundError(ServiceError):
    """Raised when the requested item does not exist."""


class ConflictError(ServiceError):
    """Raised when the fleet is not at the revision that a write requires."""


class UnavailableError(ServiceError):
    """Raised when, at every attempt, the service has no free worker or runs out of time."""


_BY_STATUS: dict[int, type[ServiceError]] = {
    400: InvalidRequestError, 401: AuthError, 403: AuthError, 404: NotFoundError,
    409: ConflictError, 412: ConflictError, 413: InvalidRequestError, 422: InvalidRequestError,
    503: UnavailableError, 504: UnavailableError,
}  # fmt: skip


def service_error(status: int, body: bytes) -> ServiceError:
    """Return the error for an error response, whose body can be anything because proxies also send errors."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    return _BY_STATUS.get(status, ServiceError)(status, problem if isinstance(problem, dict) else {})
