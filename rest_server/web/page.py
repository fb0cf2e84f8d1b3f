"""One open web page: its header, its tabs, and planning after changes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui
from starlette.exceptions import HTTPException

from optimizer.errors import InferplanError
from rest_server.web.changes import Changes
from rest_server.web.document_tab import DocumentTab
from rest_server.web.fleet_tab import FleetTab
from rest_server.web.plan_tab import PlanTab
from rest_server.web.study_tab import StudyTab
from rest_server.web.theme import PRIMARY, STYLE
from rest_server.web.widgets import complain
from rest_server.web.workspace import Workspace, message_of

DEBOUNCE_S = 0.05
"""Time without further changes after which a plan is made [s]."""


class VisitorPage:
    """The web page of one visitor."""

    def __init__(self, workspace: Workspace, service: Any, prefix: str, *, opens: bool) -> None:
        """Create the page.

        Args:
            workspace: state of the page.
            service: the application.
            prefix: prefix of the page's paths.
            opens: whether the page opens a document immediately.
        """
        self._workspace, self._prefix = workspace, prefix
        self._turn = 0
        self._waiting = 0
        settings = service.state.settings
        ui.add_css(STYLE)
        ui.colors(primary=PRIMARY)
        self._dark = ui.dark_mode(None)
        self._show_head(settings)
        with ui.element("div").classes("page"):
            self._show_tabs(service, opens=opens)

    def _show_head(self, settings: Any) -> None:
        with ui.header().classes("bar"):
            with ui.element("h1"):
                ui.label("inferplan").style("display: inline")
            with ui.tabs().props("dense no-caps inline-label") as self._tabs:
                self._document = ui.tab("Document")
                self._plan = ui.tab("Plan")
                self._studies = ui.tab("Studies")
                self._fleet = ui.tab("Live fleet") if settings.stateful else None
            ui.space()
            self._name = ui.label("").classes("soft name")
            theme = ui.button(icon="contrast", on_click=self._toggle, color=None)
            theme.props('flat dense round aria-label="Light or dark theme"')
            if settings.api_key_files:
                with ui.element("form").props(f'method="post" action="{self._prefix}/sign-out"'):
                    ui.button("Sign out", color=None).props("flat dense no-caps type=submit")
            self._bar = ui.linear_progress(show_value=False, size="4px").classes("waiting")
            self._bar.props('aria-label="Waiting for the answer"')
            self._wait_for(0)

    def _show_tabs(self, service: Any, *, opens: bool) -> None:
        settings = service.state.settings
        with ui.tab_panels(
            self._tabs, value=self._plan if opens else self._document, animated=False, keep_alive=True
        ).style("background: transparent"):
            with ui.tab_panel(self._document).style("padding: 0"):
                self._document_tab = DocumentTab(self._workspace, self.open, settings.max_body_bytes)
            with ui.tab_panel(self._plan).style("padding: 0"):
                self._plan_tab = PlanTab(self._workspace, self.guarded, self.changed)
            with ui.tab_panel(self._studies).style("padding: 0"):
                self._study_tab = StudyTab(self._workspace, self.guarded)
            if self._fleet is not None:
                with ui.tab_panel(self._fleet).style("padding: 0"):
                    FleetTab(self._workspace, service)

    async def _toggle(self) -> None:
        """Switch between the light and the dark theme; initially, the browser's settings decide."""
        self._dark.set_value(not await ui.run_javascript("Quasar.Dark.isActive"))

    async def guarded(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Await work while the page shows that it is busy; if it fails, show the error and return None."""
        self._wait_for(1)
        try:
            return await work()
        except (InferplanError, HTTPException) as error:
            if not self._workspace.is_closed:
                complain(message_of(error))
            return None
        finally:
            if not self._workspace.is_closed:
                self._wait_for(-1)

    def _wait_for(self, more: int) -> None:
        """Change the number of running tasks by `more`, and show whether the page is busy."""
        self._waiting += more
        busy = self._waiting > 0
        self._bar.props("indeterminate" if busy else "", remove="" if busy else "indeterminate")
        self._bar.style(f"visibility: {'visible' if busy else 'hidden'}")

    async def begin(self, source: str, changes: Changes) -> None:
        """Open the document that a URL names, with the changes in the URL."""
        if source:
            self._plan_tab.open()  # empty, so that the page shows what it waits for
            await self.open(lambda: self._workspace.open(source, changes))

    async def open(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Await work that opens a document, show the document in all tabs, and plan it."""
        if not await self.guarded(work):
            if not self._workspace.is_closed:
                self._plan_tab.show(is_new=False)
            return
        opened = self._workspace.opened
        self._document_tab.show()
        errors = self._workspace.draft.errors
        if errors and opened.base:
            self._plan_tab.show_invalid(len(errors))
            self._tabs.set_value(self._document)
            return
        self._plan_tab.open()
        self._study_tab.open()
        self._name.set_text(self._workspace.name)
        if opened.base:
            self._tabs.set_value(self._plan)
            if self._workspace.changes.given:
                await self.guarded(self._workspace.pin_document)
            await self._solve()
        else:
            self._tabs.set_value(self._document)

    async def changed(self) -> None:
        """Plan the document again after a short time without further changes."""
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(DEBOUNCE_S)
        if turn == self._turn:
            await self._solve()

    async def _solve(self) -> None:
        ui.navigate.history.replace(
            f"{self._prefix}/" + (f"?{self._workspace.query}" if self._workspace.query else "")
        )
        with self._plan_tab.planning():
            solved = await self.guarded(self._workspace.solve)
        if not self._workspace.is_closed:
            self._plan_tab.show(is_new=solved is not None)
        if solved is not None and (outlook := await self.guarded(self._workspace.outlook)) is not None:
            self._plan_tab.show_outlook(outlook)
