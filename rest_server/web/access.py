"""Sign-in to the web page: the API key is in a session cookie, hidden from scripts and other sites."""

import base64
import binascii
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rest_server.errors import error_response
from rest_server.security import KeyFiles, KeyScope

COOKIE = "inferplan_key"
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
_PAGE = Template(Path(__file__).with_name("sign_in.html").read_text("utf-8"))
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
}

_PAGE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'; object-src 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


def add_signing_in(app: FastAPI, prefix: str) -> None:
    """Add the routes to sign in and to sign out."""

    async def show(request: Request) -> Response:
        return _form(request, "This service needs an API key. It is kept until the browser closes.")

    async def sign_in(request: Request) -> Response:
        given = parse_qs((await request.body()).decode("utf-8", "replace"))
        key = given.get("key", [""])[0].strip().encode()
        if not key or request.app.state.keys.find(key) is None:
            return _form(request, "This is not a known API key.", 401)
        query = f"?{request.url.query}" if request.url.query else ""
        answer = RedirectResponse(f"{prefix}/{query}", 303)
        text = base64.urlsafe_b64encode(key).decode()
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, text, path=f"{prefix}/", httponly=True, samesite="strict", secure=secure)
        return answer

    async def sign_out(_request: Request) -> Response:
        answer = RedirectResponse(f"{prefix}{SIGN_IN}", 303)
        answer.delete_cookie(COOKIE, path=f"{prefix}/")
        return answer

    app.add_api_route(f"{prefix}{SIGN_IN}", show, methods=["GET"], include_in_schema=False)
    app.add_api_route(f"{prefix}{SIGN_IN}", sign_in, methods=["POST"], include_in_schema=False)
    app.add_api_route(f"{prefix}{SIGN_OUT}", sign_out, methods=["POST"], include_in_schema=False)


def _form(request: Request, text: str, status: int = 200) -> Response:
    query = f"?{request.url.query}" if request.url.query else ""
    page = _PAGE.substitute(text=text, action=escape(f"{request.url.path}{query}", quote=True))
    return HTMLResponse(page, status, headers=_HEADERS)


class PageHeaders:
    """Middleware that adds headers so that other sites can neither frame the page nor learn its address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to the response."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_PAGE_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class CookieAccess:
    """Access of browsers to the web page with the API key in their cookie."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def contains(self, path: str) -> bool:
        """Return whether a path belongs to the web page."""
        return path == self._prefix or path.startswith(f"{self._prefix}/")

    def is_followed(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request opens the web page through a link from another site."""
        return (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and scope["path"] in {f"{self._prefix}/", f"{self._prefix}{SIGN_IN}"}
            and headers.get(b"sec-fetch-mode") == b"navigate"
            and headers.get(b"sec-fetch-dest") == b"document"
        )

    def locked_out(
        self, scope: Scope, headers: Mapping[bytes, bytes], keys: KeyFiles, given: bytes
    ) -> Response | None:
        """Return the rejection of a request without a key that has the read scope; None if it is accepted.

        Browsers are redirected to the sign-in page.
        """
        if scope["path"] in {f"{self._prefix}{SIGN_IN}", f"{self._prefix}{SIGN_OUT}"}:
            return None
        given = given or key_in_cookies(headers.get(b"cookie", b""))
        key = keys.find(given) if given else None
        if key is not None and KeyScope.read in key.scopes:
            scope.setdefault("state", {})["api_key"] = key.label
            return None
        if scope["path"] in {self._prefix, f"{self._prefix}/"}:
            query = scope.get("query_string", b"").decode("latin-1")
            return RedirectResponse(f"{self._prefix}{SIGN_IN}" + (f"?{query}" if query else ""), 303)
        return error_response(scope, 401, "an API key with the scope read is needed; sign in")


def key_in_cookies(header: bytes) -> bytes:
    """Return the API key in a Cookie header; empty if there is none."""
    for part in header.split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE.encode():
            try:
                return base64.urlsafe_b64decode(value.strip(b'"'))
            except (binascii.Error, ValueError):
                return b""
    return b""
