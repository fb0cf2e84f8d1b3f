"""Mounts the web page into an application; only this module depends on how NiceGUI is mounted.

NiceGUI supports one application per process, so only one service per process can have the page.
"""

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import core, ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from optimizer.errors import SpecError
from optimizer.profiles.catalogue import load_catalogue
from optimizer.starters.use_cases import use_cases
from rest_server.security import given_key
from rest_server.web.access import PageHeaders, add_signing_in, key_in_cookies
from rest_server.web.changes import Changes, read_query
from rest_server.web.kept import KeptResults
from rest_server.web.page import VisitorPage
from rest_server.web.theme import ICON
from rest_server.web.widgets import complain
from rest_server.web.workspace import FILE, Workspace

MESSAGES_KEPT = 1_000
"""Number of messages that are sent again after an interruption of the connection."""
RECONNECT_S = 30.0
"""Time for which a page without connection is kept [s]; a busy browser can be silent for seconds."""


def mount_page(app: FastAPI, prefix: str, path: str | None) -> None:
    """Add the web page for analysts to an application.

    Args:
        app: the application.
        prefix: prefix of its paths, possibly empty.
        path: path of the documents that it opens first.
    """
    add_signing_in(app, prefix)
    load_catalogue(), use_cases()  # read here, so that the first visitor does not wait for it
    if prefix:
        app.add_api_route(prefix, _with_slash, methods=["GET"], include_in_schema=False)
    nicegui_app.state.service, nicegui_app.state.prefix, nicegui_app.state.path = app, prefix, path
    app.state.kept = KeptResults()
    nicegui_app.add_middleware(PageHeaders)
    core.sio.eio.max_http_buffer_size = app.state.settings.max_body_bytes
    ui.run_with(
        app,
        mount_path=prefix or "/",
        title="inferplan",
        favicon=ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        message_history_length=MESSAGES_KEPT,
        reconnect_timeout=RECONNECT_S,
    )


async def _with_slash(request: Request) -> Response:
    return RedirectResponse(f"{request.url.path}/", 308)


@ui.page("/")
async def _show(request: Request) -> None:
    state = nicegui_app.state
    headers = dict(request.headers.raw)
    key = given_key(headers) or key_in_cookies(headers.get(b"cookie", b""))
    workspace = Workspace(state.service, key or None, state.path)
    ui.context.client.on_delete(workspace.close)
    try:
        source, changes = read_query(request.url.query)
    except SpecError as error:
        source, changes = "", Changes()
        complain(str(error))
    source = source or (FILE if state.path is not None else "")
    page = VisitorPage(workspace, state.service, state.prefix, opens=bool(source))
    ui.timer(0.01, lambda: page.begin(source, changes), once=True)
