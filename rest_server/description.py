"""Description of the service: front page, OpenAPI (generated once), and the pages that show it.

The pages work without a network: Swagger UI and Redoc come from the package ``fastapi_offline``.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rest_server.v1.problems import PROBLEM

OPENAPI_PATH = "/openapi.json"
ASSETS_PATH = "/docs/assets"
START_SCRIPT = "start.js"
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "redoc.standalone.js": "text/javascript",
    "favicon.png": "image/png",
    START_SCRIPT: "text/javascript",
}
"""Static files of the pages, with their media types."""
OPEN_PAGES = frozenset({"/", "/docs", "/redoc", OPENAPI_PATH, *(f"{ASSETS_PATH}/{name}" for name in ASSETS)})
"""Paths of pages that are the same for all installations and contain no fleet data, so they need no API key.
"""
SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-KEY", "description": "An API key."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "The same key as a bearer token."},
}

_LOGO = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
"""URL of an image that Redoc would otherwise load from the network."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
_PLACES = {
    "/docs": "every route, to read and to try",
    "/redoc": "the same, to read",
    OPENAPI_PATH: "the same for programs (OpenAPI)",
    "/healthz": "is the service alive?",
    "/readyz": "does it take requests?",
}
_PAGE = Template(Path(__file__).with_name("description.html").read_text("utf-8"))
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:2rem auto;padding:0 1rem}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#e4e6ea}a{color:#8ab4f8}}"
)
_START = Path(__file__).with_name("description.js")
ANSWERS = Path(__file__).with_name("answers.json")
"""An answer of each route, by method and path."""


TAGS = {
    "planning": "Plan a system, and size its parts; nothing is stored.",
    "studies": "Compare, explain, simulate and vary the plan of a system.",
    "fleet": "The fleet that the service keeps, part by part, and studies of it.",
    "control loop": "Loads in, plans and desired replicas out.",
    "health": "For monitoring.",
}
"""Groups of routes in the order of the description, with their descriptions."""
DESCRIPTION = """
Plans fleets for LLM inference: replicas and accelerators of every server at minimum cost, within latency
targets, cards and budgets.

A stateful service keeps a fleet: PUT `/v1/fleet`, POST `/v1/loads` with every snapshot of loads, and GET
`/v1/targets` for the desired replicas.

**Units.** Numbers in documents are in requests/min, ms, tokens and hundredths of the currency per hour,
unless they are written with a unit (`10/s`, `2.10 USD/h`). Keys of answers end in their unit: `CentsPerH`,
`Rpm` (requests/min), `Rps` (requests/s), `Ms`, `S`, `H`, `W`, `Gb`. A cent is a hundredth of `currency`, so
that 12920 `CentsPerH` with USD are 129.20 USD/h. Counts and shares (0 to 1) have no unit.

**Keys.** If the service has API keys, send one as `X-API-KEY` or as a bearer token. A key can be limited to
reading, to computing, or to the fleet.

**Errors** are `application/problem+json` (RFC 9457) with `title`, `detail` (place, value, limit and what
to do) and the `requestId` that the log has, too: 422 for faults of the request, 401 and 403 for keys, 404 and
412 for another state of the fleet, 503 when busy, 504 out of time. Unserved servers are no error: the plan
lists them in `unserved` with the reason.

The service also has the routes of llm-inferno's optimizer at the root, such as `/optimizeOne`. They are not
described here: their bodies are those of llm-inferno, in which amounts are plain numbers; docs/rest.md
lists them.
""".strip()
"""Description of the service in its OpenAPI document."""


def add_description(app: FastAPI, *, keyless: Collection[str] | None, stateful: bool) -> None:
    """Add the routes that describe an application; call this after adding all its other routes.

    Args:
        app: the application.
        keyless: the paths that need no API key; None if no path needs one.
        stateful: whether the service is stateful.
    """
    _complete(app, keyless)
    app.add_route(OPENAPI_PATH, _described(app), include_in_schema=False)
    app.add_route("/", _front_page(app, stateful=stateful), include_in_schema=False)
    app.add_route("/docs", _shown(app, _swagger, _SWAGGER_POLICY), include_in_schema=False)
    app.add_route("/redoc", _shown(app, _redoc, _REDOC_POLICY), include_in_schema=False)
    app.add_route(f"{ASSETS_PATH}/{{name}}", _asset, include_in_schema=False)


def _complete(app: FastAPI, keyless: Collection[str] | None) -> None:
    """Add to the description the schema of error responses, to which all routes refer by its name, and keys.

    If there are API keys, the paths in `keyless` are exempted from them.
    """
    described = app.openapi

    def openapi() -> dict[str, Any]:
        document = described()
        document["tags"] = [{"name": tag, "description": text} for tag, text in TAGS.items()]
        document["paths"] = dict(sorted(document["paths"].items(), key=_group))
        _add_answers(document["paths"])
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = PROBLEM
        if keyless is not None:
            components["securitySchemes"] = SECURITY_SCHEMES
            document["security"] = [{name: []} for name in SECURITY_SCHEMES]
            for path in document["paths"].keys() & keyless:
                for operation in document["paths"][path].values():
                    operation["security"] = []
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI has it done


def _add_answers(paths: dict[str, dict[str, Any]]) -> None:
    """Add an example to the answers of all operations; a study of the fleet has that of the study."""
    answers = json.loads(ANSWERS.read_text("utf-8"))
    for path, operations in paths.items():
        for method, operation in operations.items():
            example = answers.get(f"{method} {path.replace('/fleet/', '/')}")
            for status, answer in operation["responses"].items():
                if example is not None and status.startswith("2"):
                    answer["content"]["application/json"]["example"] = example


def _group(path: tuple[str, dict[str, Any]]) -> int:
    """Return the position of the group of a path's first operation."""
    first: dict[str, Any] = next(iter(path[1].values()))
    (tag,) = first["tags"]
    return [*TAGS].index(tag)


def _described(app: FastAPI) -> Handler:
    """Return the handler for the description, which is generated once, because that takes a second."""
    text = cache(lambda: json.dumps(app.openapi(), separators=(",", ":")).encode())
    lock = threading.Lock()  # FastAPI cannot generate it in two threads at the same time

    def once() -> bytes:
        with lock:
            return text()

    async def answer(_: Request) -> Response:
        return Response(await run_in_threadpool(once), media_type="application/json")

    return answer


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _front_page(app: FastAPI, *, stateful: bool) -> Handler:
    async def answer(request: Request) -> Response:
        """Return the front page: HTML for browsers, JSON for programs."""
        own = "the project's own routes" + (", with those of the fleet" if stateful else "")
        places = {_root(request) + path: text for path, text in (_PLACES | {"/v1": own}).items()}
        headers = {"Vary": "Accept"}
        if "text/html" not in request.headers.get("accept", ""):
            links = {path.rpartition("/")[2].removesuffix(".json"): path for path in places}
            answer = {"name": app.title, "version": app.version, "summary": app.summary, "stateful": stateful}
            return JSONResponse(answer | {"links": links}, headers=headers)
        pages = "".join(
            f'<li><a href="{escape(path)}">{escape(path)}</a>: {escape(text)}</li>\n'
            if not path.endswith("/v1")
            else f"<li>{escape(path)}: {escape(text)}</li>\n"
            for path, text in places.items()
        )
        mode = "It stores a fleet." if stateful else "It is stateless: every request brings its system."
        body = (
            f"<h1>{escape(app.title)} {escape(app.version)}</h1>\n<p>{escape(app.summary or '')} {mode}</p>\n"
            f"<ul>\n{pages}</ul>"
        )
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return _html(app.title, f"<style>{_STYLE}</style>", body, policy, headers)

    return answer


def _html(title: str, head: str, body: str, policy: str, headers: Mapping[str, str]) -> Response:
    text = _PAGE.substitute(title=escape(title), head=head, body=body)
    every = {**_ALWAYS, "Content-Security-Policy": policy, **headers}
    return Response(text, headers=every, media_type="text/html")


_SWAGGER_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'"
)
_REDOC_POLICY = _SWAGGER_POLICY + "; worker-src blob:"


def _swagger(assets: Callable[[str], str], openapi: str) -> tuple[str, str]:
    head = f'<link rel="stylesheet" href="{assets("swagger-ui.css")}">'
    body = (
        f'<div id="swagger-ui"></div>\n<script src="{assets("swagger-ui-bundle.js")}"></script>\n'
        f'<script src="{assets(START_SCRIPT)}" data-openapi="{openapi}"></script>'
    )
    return head, body


def _redoc(assets: Callable[[str], str], openapi: str) -> tuple[str, str]:
    script = f'<script src="{assets("redoc.standalone.js")}"></script>'
    return "", f'<redoc spec-url="{openapi}"></redoc>\n{script}'


def _shown(
    app: FastAPI, page: Callable[[Callable[[str], str], str], tuple[str, str]], policy: str
) -> Handler:
    async def answer(request: Request) -> Response:
        root = escape(_root(request))

        def assets(name: str) -> str:
            return f"{root}{ASSETS_PATH}/{name}?{_edition(name)}"

        head, body = page(assets, root + OPENAPI_PATH)
        icon = f'<link rel="icon" href="{assets("favicon.png")}">'
        return _html(app.title, f"{icon}\n{head}", body, policy, {})

    return answer


async def _asset(request: Request) -> Response:
    """Return a static file; its URL contains a digest, so it can be cached for a year."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    content = await run_in_threadpool(_content, name)
    headers = _ALWAYS | {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, headers=headers, media_type=ASSETS[name])


def _content(name: str) -> bytes:
    """Return the content of a static file, without references to other hosts."""
    if name == START_SCRIPT:
        return _START.read_bytes()
    packaged = resources.files("fastapi_offline").joinpath("static", name).read_bytes()
    return packaged.replace(_LOGO, b"data:,")  # no image, so Redoc omits it


@cache
def _edition(name: str) -> str:
    return hashlib.sha256(_content(name)).hexdigest()[:12]
