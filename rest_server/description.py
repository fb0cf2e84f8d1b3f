"""What the service says of itself: OpenAPI, made once, and the pages that show it."""

import json
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

OPENAPI_PATH = "/openapi.json"

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def add_description(app: FastAPI) -> None:
    """Add the routes that describe an application which has all its others."""
    app.add_route(OPENAPI_PATH, _Description(app).answer, include_in_schema=False)
    for path, page in (("/docs", get_swagger_ui_html), ("/redoc", get_redoc_html)):
        app.add_route(path, _shown(app, page), include_in_schema=False)


class _Description:
    """The bytes of the description: making them takes a second, and they do not change."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._made: bytes | None = None

    def _once(self) -> bytes:
        with self._lock:
            if self._made is None:
                self._made = json.dumps(self._app.openapi(), separators=(",", ":")).encode()
            return self._made

    async def answer(self, _: Request) -> Response:
        """Answer with the description; the first time it is made in a thread."""
        made = self._made or await run_in_threadpool(self._once)
        return Response(made, media_type="application/json")


def _shown(app: FastAPI, page: Callable[..., Response]) -> Handler:
    async def answer(request: Request) -> Response:
        url = request.scope.get("root_path", "").rstrip("/") + OPENAPI_PATH
        return page(openapi_url=url, title=app.title)

    return answer
