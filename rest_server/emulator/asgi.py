"""Helpers for plain ASGI: request bodies, JSON responses, and broken connections."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_NUMBER = 1e6
"""Maximum value of most numbers in request bodies."""
JSON = b"application/json"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
"""Media type of metrics in Prometheus' text format."""
EVENTS = b"text/event-stream; charset=utf-8"


class Dropped(Exception):  # noqa: N818  it is an event of the emulated replica, not an error of the program
    """Raised when an emulated replica breaks a connection, or its client has hung up."""


class BadRequest(Exception):  # noqa: N818
    """Raised when a request is invalid for an emulated replica; it is answered with an error status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


async def body_of(receive: Receive) -> bytes:
    """Read the body of a request.

    Raises:
        BadRequest: it is too long.
        Dropped: the client has hung up.
    """
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Dropped
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise BadRequest(f"the body exceeds {MAX_BODY_BYTES:,} bytes", 413)
        more = message.get("more_body", False)
    return b"".join(parts)


def json_of(body: bytes) -> dict[str, Any]:
    """Parse a request body as a JSON object.

    Raises:
        BadRequest: the body is not a JSON object.
    """
    try:
        loads = json.loads(body or b"{}")
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(loads, dict):
        raise BadRequest("the body must be a JSON object")
    return loads


def encoded(value: object) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def error_of(message: str, status: int) -> dict[str, Any]:
    """Return an error body in the format of vLLM."""
    error_type = (
        "BadRequestError"
        if status < 500
        else "ServiceUnavailableError"
        if status == 503
        else "InternalServerError"
    )
    return {"error": {"message": message, "type": error_type, "param": None, "code": status}}


def number_of(
    body: Mapping[str, Any], key: str, default: float, least: float, most: float = MAX_NUMBER
) -> float:
    """Return a number in a request body.

    Args:
        key: key of the number.
        default: value if the key is absent.
        least: minimum value.
        most: maximum value.

    Raises:
        BadRequest: the value is not a number, or is out of range.
    """
    value = body.get(key, default)
    if type(value) not in {int, float} or not least <= value <= most:
        bounds = f"from {least:g} to {most:g}".replace("e+0", "e")
        raise BadRequest(f"{key}: must be a number {bounds}, not {value!r}")
    return float(value)


async def hung_up(receive: Receive) -> None:
    """Wait until the client hangs up; its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def begin(
    send: Send, status: int, media_type: bytes, length: int | None = None, more: Headers = ()
) -> None:
    """Send the status and headers of a response; without a length, the body is sent in chunks."""
    headers = [(b"content-type", media_type)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    headers += more
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def reply(
    send: Send, status: int, body: bytes, media_type: bytes = JSON, headers: Headers = ()
) -> None:
    """Send a complete response."""
    await begin(send, status, media_type, len(body), headers)
    await send({"type": "http.response.body", "body": body})


async def reply_json(send: Send, value: Mapping[str, Any], status: int = 200, headers: Headers = ()) -> None:
    """Send a complete response with a JSON body."""
    await reply(send, status, encoded(value), headers=headers)


async def reply_error(send: Send, message: str, status: int, headers: Headers = ()) -> None:
    """Send an error response in the format of vLLM."""
    await reply_json(send, error_of(message, status), status, headers)
