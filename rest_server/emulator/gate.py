"""API keys and rate limits in front of the emulated router, with the keys of the REST service."""

import math
import time

from rest_server.emulator.asgi import App, Receive, Scope, Send, reply_error
from rest_server.emulator.settings import FleetSettings
from rest_server.security import KeyFiles, KeyScope, given_key

OPEN_PATHS = frozenset({"/health", "/health_check", "/ping"})
"""Paths that need no key, because health checks send none."""
CHALLENGE = (b"www-authenticate", b'Bearer realm="inferplan"')
BURST_S = 1.0
"""Time of which all requests can arrive in one burst [s of model time]."""


class Gate:
    """ASGI application that passes on requests with a known key, at a limited rate for each key."""

    def __init__(self, app: App, settings: FleetSettings) -> None:
        """Read the API keys.

        Raises:
            SpecError: a file of keys cannot be read.
        """
        self._app = app
        self._keys = KeyFiles([] if settings.keys_file is None else [settings.keys_file])
        self._rate_rps = settings.rate_limit
        self._speed = settings.speed
        self._full_s: dict[str, float] = {}
        """Time at which the token bucket of each client is full [s, monotonic clock]."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or respond with 401, 403 or 429."""
        path, headers = scope["path"], dict(reversed(scope["headers"]))
        client = (scope.get("client") or ("",))[0]
        is_request = scope["method"] == "POST" and not path.startswith("/emulator/")
        if self._keys.required and path not in OPEN_PATHS:
            given = given_key(headers)
            key = self._keys.find(given) if given else None
            if key is None:
                problem = "this is not a known API key" if given else "an API key is needed"
                text = f"{problem}; send one as a bearer token, or in X-API-KEY"
                await reply_error(send, text, 401, [CHALLENGE])
                return
            needed = KeyScope.read if scope["method"] == "GET" else KeyScope.write
            needed = KeyScope.solve if is_request else needed
            if needed not in key.scopes:
                await reply_error(send, f"the API key lacks the scope {needed.value!r}", 403)
                return
            client = key.label
        wait_s = self._wait_s(client) if is_request else 0.0
        if wait_s:
            seconds = math.ceil(wait_s)
            text = f"over the limit of {self._rate_rps:g} requests/s; retry in {seconds} s"
            await reply_error(send, text, 429, [(b"retry-after", b"%d" % seconds)])
            return
        await self._app(scope, receive, send)

    def _wait_s(self, client: str) -> float:
        """Return the time until a client can send [s of real time]; 0 if it can send now.

        Each request takes a token from the bucket of its client, to which tokens are added at the rate limit.
        """
        if self._rate_rps is None:
            return 0.0
        each_s, now_s = 1 / (self._rate_rps * self._speed), time.monotonic()
        missing_s = max(self._full_s.get(client, 0.0) - now_s, 0.0) + each_s
        wait_s = missing_s - max(BURST_S, each_s)
        if wait_s > 0:
            return wait_s
        self._full_s[client] = now_s + missing_s
        return 0.0
