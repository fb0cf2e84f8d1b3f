"""Serves paths with a trailing slash directly; the reference redirects to the path without one."""

from starlette.types import ASGIApp, Receive, Scope, Send

from rest_server.errors import is_api


class TrailingSlash:
    """Removes a trailing slash from a path of the reference's routes, before routing.

    The reference answers 301, or 307 if there can be a body. A direct answer is equivalent for clients that
    follow redirects, and also serves those that do not; no body is sent twice or lost.
    """

    def __init__(self, app: ASGIApp, kept: str | None = None) -> None:
        """Wrap an application.

        Args:
            app: the application.
            kept: prefix of paths that are not changed; None if there are none.
        """
        self._app = app
        self._kept = None if kept is None else f"{kept}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; an escaped slash is part of a name and is kept."""
        kept = self._kept is not None and scope.get("path", "").startswith(self._kept)
        if scope["type"] == "http" and not kept and not is_api(scope["path"]) and len(scope["path"]) > 1:
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            if raw.endswith(b"/"):
                scope = {**scope, "path": scope["path"][:-1], "raw_path": raw[:-1]}
        await self._app(scope, receive, send)
