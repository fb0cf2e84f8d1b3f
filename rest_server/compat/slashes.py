"""Trailing slashes: answered at once where the reference's router sends a client to the path without one."""

from starlette.types import ASGIApp, Receive, Scope, Send

from rest_server.errors import is_api


class TrailingSlash:
    """Takes one slash off the end of a path of the wire, before anything looks at it.

    The reference answers 301, and 307 where there may be a body. An answer in place of a redirect is the same
    for clients that follow and serves those that do not; no body is sent twice or lost.
    """

    def __init__(self, app: ASGIApp, kept: str | None = None) -> None:
        """Wrap an application.

        Args:
            app: the application.
            kept: prefix of paths that stay as they are; None: there are none.
        """
        self._app = app
        self._kept = None if kept is None else f"{kept}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; an escaped slash is part of a name and stays."""
        kept = self._kept is not None and scope.get("path", "").startswith(self._kept)
        if scope["type"] == "http" and not kept and not is_api(scope["path"]) and len(scope["path"]) > 1:
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            if raw.endswith(b"/"):
                scope = {**scope, "path": scope["path"][:-1], "raw_path": raw[:-1]}
        await self._app(scope, receive, send)
