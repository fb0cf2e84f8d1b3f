"""Sending of requests for both clients: settings, retries and errors."""

import random
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from optimizer.errors import SpecError
from rest_server.client.calls import Answer, Call
from rest_server.client.errors import ResponseTimeoutError, ServiceError, UnreachableError, service_error
from rest_server.header_values import unsendable_at
from rest_server.http_client import http_module, transport_reason

EXTRA = "client"
"""Extra of the package that installs httpx2 for the clients."""
FIRST_WAIT_S = 0.5
"""Mean wait before the second attempt [s]; it doubles for each further attempt, and varies by half at random.
"""
MAX_WAIT_S = 30.0
"""Maximum wait between attempts, even if the service requests a longer one [s]."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client: address of the service, API key, time limit and retries."""

    url: str
    api_key: str | None
    timeout_s: float
    retries: int
    """Number of further attempts after the first."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            SpecError: the URL, the key or the time limit is invalid.
        """
        httpx = http_module(EXTRA)
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise SpecError(f"url: {self.url!r} is not a URL: {str(error).lower()}") from None
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise SpecError(f"url: {self.url!r} must look like 'http://127.0.0.1:8080'")
        if self.api_key is not None:
            _check_header("api_key", self.api_key)
        if not self.timeout_s > 0:
            raise SpecError(f"timeout_s: must be more than 0, not {self.timeout_s:g}")

    def for_httpx(self) -> dict[str, Any]:
        """Return the settings as arguments of httpx2's client."""
        headers = {"Content-Type": "application/json"}
        if self.api_key is not None:
            headers["X-API-KEY"] = self.api_key
        return {"base_url": self.url.rstrip("/"), "timeout": self.timeout_s, "headers": headers}


def _check_header(name: str, value: str, *, spaces: bool = False) -> None:
    """Check that an HTTP header can carry a value; the value can be secret, so it is never shown.

    Raises:
        SpecError: a character is not printable ASCII; the message names the argument and the position.
    """
    position = unsendable_at(value, spaces=spaces)
    if position is not None:
        raise SpecError(
            f"{name}: character {position} is {value[position - 1]!r}; only printable ASCII characters "
            f"{'' if spaces else 'without spaces '}can be sent"
        )


def httpx_request(call: Call[Any]) -> dict[str, Any]:
    """Return a request as arguments of httpx2.

    Raises:
        SpecError: a condition contains characters that a header cannot carry.
    """
    for value in call.headers.values():
        _check_header("if_match", value, spaces=True)
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.params),
        "content": call.body,
        "headers": dict(call.headers),
    }


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """Time to wait before a request is sent again [s]."""

    s: float


def outcome(call: Call[Answer], result: Any, attempt: int, settings: ClientSettings) -> Answer | RetryDelay:
    """Return the value of a response, or the wait before the next attempt.

    A request is sent again if the service did not start it (503) and the call allows waiting, or if a broken
    connection lost it and it can safely be repeated. Requests that timed out are not repeated, because they
    would time out again.

    Args:
        call: the request.
        result: the response of httpx2, or its exception.
        attempt: number of earlier attempts.

    Raises:
        ServiceError: the answer is an error, or cannot be read.
        UnreachableError: there is no answer.
    """
    if isinstance(result, Exception):
        error: ServiceError | UnreachableError = _transport_error(result, settings)
        again, requested = call.repeatable and not isinstance(error, ResponseTimeoutError), ""
    elif result.status_code < 300:
        return _value(call, result)
    else:  # the service never redirects
        error = service_error(result.status_code, result.content)
        again, requested = call.waits and error.status == 503, result.headers.get("retry-after", "")
    if attempt >= settings.retries or not again:
        raise error
    wait_s = FIRST_WAIT_S * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311  spreads the retries of clients
    return RetryDelay(min(float(requested) if requested.isdigit() else wait_s, MAX_WAIT_S))


def _value(call: Call[Answer], response: Any) -> Answer:
    """Return the value of a response that is not an error.

    Raises:
        ServiceError: the response cannot be read.
    """
    try:
        return call.answer(response.content, response.headers)
    except (ValidationError, UnicodeDecodeError, KeyError):
        content_type = response.headers.get("content-type", "no content type")
        detail = (
            f"{call.method} {call.path}: this client cannot read the answer ({content_type}); "
            "check the URL, and that service and client have the same version"
        )
        raise ServiceError(response.status_code, {"detail": detail}) from None


def _transport_error(error: Exception, settings: ClientSettings) -> UnreachableError:
    """Return the error to raise if no response was received."""
    if isinstance(error, http_module(EXTRA).TimeoutException):
        return ResponseTimeoutError(f"{settings.url}: no answer within {settings.timeout_s:g} s")
    return UnreachableError(f"{settings.url}: {transport_reason(error)}")
