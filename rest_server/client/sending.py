"""What both clients do around a request: how often and after what wait it is sent again, and what fails."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from optimizer.errors import MissingExtraError, SpecError
from rest_server.client.calls import Answer, Call
from rest_server.client.errors import NoAnswerInTimeError, ServiceError, UnreachableError, service_error

FIRST_WAIT_S = 0.5
"""Wait before the second attempt; doubled each time, and varied by half [s]."""
LONGEST_WAIT_S = 30.0
"""Longest wait between attempts, whatever the service asks for [s]."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how a client sends."""

    url: str
    api_key: str | None
    timeout_s: float
    retries: int
    """Further attempts after the first."""

    def __post_init__(self) -> None:
        """Refuse what cannot be sent.

        Raises:
            SpecError: the URL is none of a service, the key cannot be a header, or the time is no time.
        """
        httpx = httpx_module()
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise SpecError(f"url: {self.url!r} is not a URL: {str(error).lower()}") from None
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise SpecError(f"url: {self.url!r} must look like 'http://127.0.0.1:8080'")
        if self.api_key is not None:
            _check_header("api_key", self.api_key, lowest="!")
        if not self.timeout_s > 0:
            raise SpecError(f"timeout_s: must be more than 0, not {self.timeout_s:g}")

    def settings(self) -> dict[str, Any]:
        """Return what httpx is set up with."""
        headers = {"Content-Type": "application/json"}
        if self.api_key is not None:
            headers["X-API-KEY"] = self.api_key
        return {"base_url": self.url.rstrip("/"), "timeout": self.timeout_s, "headers": headers}


def httpx_module() -> ModuleType:
    """Return httpx.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import httpx
    except ImportError:
        raise MissingExtraError("httpx is not installed; pip install 'inferplan[client]'") from None
    return httpx


def _check_header(name: str, value: str, lowest: str = " ") -> None:
    """Refuse a value that an HTTP header cannot carry; the value may be secret and is not shown.

    Raises:
        SpecError: a character is not printable ASCII; the text names the argument and the place.
    """
    for position, character in enumerate(value, 1):
        if not lowest <= character <= "~":
            raise SpecError(
                f"{name}: character {position} is {character!r}; only printable ASCII characters "
                f"{'without spaces ' if lowest > ' ' else ''}can be sent"
            )


def request_of(call: Call[Any]) -> dict[str, Any]:
    """Return the arguments of a request of httpx.

    Raises:
        SpecError: a condition cannot be sent.
    """
    for value in call.headers.values():
        _check_header("if_match", value)
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.params),
        "content": call.body,
        "headers": dict(call.headers),
    }


def refusal(response: Any) -> ServiceError | None:
    """Return the error that an answer is, if it is one; the service itself never redirects."""
    return service_error(response.status_code, response.content) if response.status_code >= 300 else None


def answer_of(call: Call[Answer], response: Any) -> Answer:
    """Return what an answer without an error says.

    Raises:
        ServiceError: it cannot be read.
    """
    try:
        return call.answer(response.content, response.headers)
    except (ValidationError, UnicodeDecodeError, KeyError):
        kind = response.headers.get("content-type", "no content type")
        detail = (
            f"{call.method} {call.path}: the answer ({kind}) is not what this client reads; "
            "check the URL, and that service and client have the same version"
        )
        raise ServiceError(response.status_code, {"detail": detail}) from None


def transport_error(error: Exception, connection: Connection) -> UnreachableError:
    """Return the error that stands for a failed transport."""
    if isinstance(error, httpx_module().TimeoutException):
        return NoAnswerInTimeError(f"{connection.url}: no answer within {connection.timeout_s:g} s")
    return UnreachableError(f"{connection.url}: {str(error).lower() or type(error).__name__}")


def wait_s(
    attempt: int,
    error: ServiceError | UnreachableError,
    headers: Mapping[str, str],
    call: Call[Any],
    connection: Connection,
) -> float | None:
    """Return how long to wait before the next attempt, or nothing if there is none [s].

    A request is sent again if it was not begun (503) and the call waits for that, or if a broken connection
    has lost it and it may be carried out twice. What ran out of time would do so again.
    """
    lost = isinstance(error, UnreachableError) and not isinstance(error, NoAnswerInTimeError)
    refused = call.waits and isinstance(error, ServiceError) and error.status == 503
    if attempt >= connection.retries or not (refused or (lost and call.repeatable)):
        return None
    asked = headers.get("retry-after", "")
    wait = float(asked) if asked.isdigit() else FIRST_WAIT_S * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311  spreads clients
    return min(wait, LONGEST_WAIT_S)
