"""Serves paths with a trailing slash directly; llm-inferno redirects to the path without the slash."""

from starlette.types import ASGIApp, Receive, Scope, Send

from rest_server.errors import is_api


class TrailingSlash:
    """Middleware that removes a trailing slash from paths of llm-inferno's routes.

    llm-inferno responds with 301, or with 307 if there can be a body. A direct response is equivalent for
    clients that follow redirects, and it also serves clients that do not. No body is sent twice or lost.
    """

    def __init__(self, app: ASGIApp, kept: str | None = None) -> None:
        """Wrap an application.

        Args:
            app: the application.
            kept: prefix of the paths that are not changed; None if there are none.
        """
        self._app = app
        self._kept = None if kept is None else f"{kept}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on without the trailing slash; an escaped slash is part of a name and is kept."""
        kept = self._kept is not None and scope.get("path", "").startswith(self._kept)
        if scope["type"] == "http" and not kept and not is_api(scope["path"]) and len(scope["path"]) > 1:
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            if raw.endswith(b"/"):
                scope = {**scope, "path": scope["path"][:-1], "raw_path": raw[:-1]}
        await self._app(scope, receive, send)
