"""Limits on the size of request bodies and systems, and the log of requests."""

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import NoReturn

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from optimizer.errors import SpecError
from optimizer.features.fields import SystemFeatureFields
from optimizer.schema import SystemSpec
from rest_server.errors import error_response
from rest_server.logs import ACCESS, FIELDS
from rest_server.settings import Settings, variable_of
from rest_server.workers import ClientDisconnectedError

DRAIN_FACTOR = 8
"""Multiple of the size limit up to which a body that is too large is read and discarded before it is
rejected, so that clients that finish writing before they read see the response.
"""
SMALL_BYTES = 64 * 2**10
"""Part of each body that does not count towards the total [bytes], so that small requests are always served.
The sum of these parts is bounded by the number of connections.
"""
BUSY_S = 5
"""Time after which clients should try again if bodies fill the available memory [s]."""
MAX_LOGGED_PATH = 200
"""Maximum length of a path in a log line [characters]."""

_CLOSING = {"Connection": "close"}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")

# --- the document --------------------------------------------------------------------------------------


def check_size(document: SystemSpec, settings: Settings) -> None:
    """Check that a system does not exceed the size limits.

    Args:
        document: the system, valid by its schema, which limits individual names and numbers.
        settings: the limits.

    Raises:
        SpecError: a limit is exceeded; the message has the path, the number, the limit and the setting to
            raise.
    """
    models = {profile.name for profile in document.models}
    for path, number, setting in (
        ("servers", sum(len(server.split or (server,)) for server in document.servers), "max_servers"),
        *((name, len(getattr(document, name)), "max_servers") for name in SystemFeatureFields.model_fields),
        ("accelerators", len(document.accelerators), "max_accelerators"),
        ("count", len(document.count), "max_accelerators"),
        ("models", len(document.models), "max_profiles"),
        ("models", len(models), "max_models"),
        ("serviceClasses", len(document.service_classes), "max_models"),
    ):
        limit = getattr(settings, setting)
        if number > limit:
            what = "different models" if setting == "max_models" and path == "models" else "items"
            raise SpecError(
                f"{path}: {number:,} {what} exceed the limit of {limit:,} of this service; "
                f"split the system, or raise {variable_of(setting)}"
            )
    batches = [("models", i, item.max_batch_size) for i, item in enumerate(document.models)]
    batches += [("servers", i, item.max_batch_size) for i, item in enumerate(document.servers)]
    for section, i, batch in batches:
        if batch > settings.max_batch:
            raise SpecError(
                f"{section}[{i}].maxBatchSize: {batch:,} requests exceed the limit of "
                f"{settings.max_batch:,} of this service; lower it, or raise {variable_of('max_batch')}"
            )


# --- the body ------------------------------------------------------------------------------------------


class BodyLimit:
    """Middleware that rejects bodies that are too large, stall, or exceed the memory for all bodies."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._budget = _Budget(settings.max_bodies_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; reading its body fails with 413 if it is too large, 408 if it stalls, or 503."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = _Body(receive, self._settings, self._budget)
        stated = headers.get(b"content-length", b"")
        try:
            if not (stated.isdigit() and int(stated) > self._settings.max_body_bytes):
                await self._app(scope, body.receive, send)
                return
            if b"expect" not in headers:
                await body.drain()
            answer = error_response(scope, 413, body.too_large, headers=_CLOSING)
            await answer(scope, receive, send)
        finally:
            body.release()


class _Budget:
    """Memory limit for the bodies of all requests together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.taken_bytes = 0


class _Body:
    """Body of a request, counted and timed while it arrives."""

    def __init__(self, receive: Receive, settings: Settings, budget: _Budget) -> None:
        self._receive = receive
        self._max_bytes = settings.max_body_bytes
        self._end = time.monotonic() + min(settings.body_timeout_s, settings.request_timeout_s)
        self._budget = budget
        self._taken_bytes = 0
        self._seen = 0
        self._more = True
        self.too_large = f"the body is over the limit of {self._max_bytes:,} bytes"

    async def receive(self) -> Message:
        """Return the next message of the request, with a part of the body.

        Raises:
            HTTPException: 413, the body is too large; 408, it did not arrive in time; 503, the bodies of all
                requests together are too large.
            ClientDisconnectedError: the client disconnected before the end.
        """
        if not self._more:
            return await self._receive()
        message = await self._next()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError("the client has closed its connection")
        if self._seen > self._max_bytes:
            await self._refuse(413, self.too_large)
        if not self._take():
            most = self._budget.most_bytes
            await self._refuse(
                503,
                f"the bodies of all requests have reached the limit of {most:,} bytes; "
                f"try again in {BUSY_S} s, or raise {variable_of('max_bodies_bytes')}",
            )
        return message

    def _take(self) -> bool:
        """Count received bytes towards the total if they fit, and return whether they do.

        Small bodies always do.
        """
        more = max(0, self._seen - SMALL_BYTES) - self._taken_bytes
        fits = self._budget.taken_bytes + more <= self._budget.most_bytes
        if fits:
            self._taken_bytes += more
            self._budget.taken_bytes += more
        return fits

    def release(self) -> None:
        """Subtract the size of this body from the total size of all bodies in progress."""
        self._budget.taken_bytes -= self._taken_bytes
        self._taken_bytes = 0

    async def _refuse(self, status: int, detail: str) -> NoReturn:
        self.release()
        await self.drain()
        headers = _CLOSING | ({"Retry-After": str(BUSY_S)} if status == 503 else {})
        raise HTTPException(status, detail, headers=headers)

    async def drain(self) -> None:
        """Read and discard the rest of the body, up to a limit."""
        with contextlib.suppress(HTTPException):  # a stalled body is already rejected
            while self._more and self._seen < DRAIN_FACTOR * self._max_bytes:
                await self._next()

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(self._end - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time", headers=_CLOSING) from None
        self._seen += len(message.get("body", b""))
        self._more = message.get("more_body", False)
        return message


# --- what is noted -------------------------------------------------------------------------------------


class RequestLog:
    """Middleware that assigns an id to every request, measures its time, and logs it in one line."""

    def __init__(self, app: ASGIApp, observe: Callable[[Scope, int, float], None] | None = None) -> None:
        """Set up the log.

        Args:
            app: the application.
            observe: function that is also called with every request's scope, status and time [s].
        """
        self._app = app
        self._observe = observe
        self._logger = logging.getLogger(ACCESS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with its id in the state of the request and in the response headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id(scope)
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = state["request_id"]
                spent = state.get("stages_s", {}) | {"total": time.perf_counter() - began}
                timing = ", ".join(f"{stage};dur={1e3 * stage_s:.1f}" for stage, stage_s in spent.items())
                headers.append("Server-Timing", timing)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            spent_s = time.perf_counter() - began
            self._write(scope, status, spent_s)
            if self._observe is not None:
                self._observe(scope, status, spent_s)

    def _write(self, scope: Scope, status: int, spent_s: float) -> None:
        state = scope["state"]
        fields = {
            "method": scope["method"],
            "path": scope["path"][:MAX_LOGGED_PATH],
            "status": status,
            "ms": round(1e3 * spent_s, 1),
            "requestId": state["request_id"],
            "client": (scope.get("client") or ("", 0))[0],
        }
        fields |= {f"{stage}Ms": round(1e3 * s, 1) for stage, s in state.get("stages_s", {}).items()}
        if "api_key" in state:
            fields["key"] = state["api_key"]
        self._logger.info("request", extra={FIELDS: fields})


def request_id(scope: Scope) -> str:
    """Return the id in the header of a request if it is valid, else a new id."""
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
