"""Drawer at the right of the web page: one server in depth, with repairs that can be tried."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from nicegui import ui

from rest_server.web.shown import Repair, StudyView
from rest_server.web.widgets import heading, show_static_tables
from rest_server.web.work import study_view
from rest_server.web.workspace import Workspace


class Drawer:
    """Drawer that explains a server while the plan stays visible."""

    def __init__(
        self,
        workspace: Workspace,
        guarded: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
        attempt: Callable[[Repair], Awaitable[None]],
    ) -> None:
        """Create the closed drawer.

        Args:
            workspace: state of the page.
            guarded: function that awaits work and shows errors.
            attempt: function that applies a repair, and plans again.
        """
        self._workspace, self._guarded, self._attempt = workspace, guarded, attempt
        self._dialog = ui.dialog().props('position=right seamless aria-label="Why this accelerator"')
        with self._dialog, ui.element("div").classes("drawer"):
            with ui.row().classes("tools"):
                with heading(""):
                    self._title = ui.label("").style("display: inline")
                ui.space()
                close = ui.button(icon="close", on_click=self.close, color=None)
                close.props('flat dense round aria-label="Close"')
            self._box = ui.element("div").classes("results")

    def close(self) -> None:
        """Close the drawer."""
        self._dialog.close()

    async def open_server(self, name: str) -> None:
        """Explain a server."""
        self._title.set_text(f"{name}: why this accelerator")
        self._box.clear()
        with self._box:
            ui.label("Working out the alternatives …").classes("soft")
        self._dialog.open()
        options = json.dumps({"server": name})
        answer = await self._guarded(partial(self._workspace.answer, "study", study_view, "explain", options))
        if answer is None:
            self.close()
            return
        self._show(answer)

    def _show(self, study: StudyView) -> None:
        self._box.clear()
        with self._box:
            if study.repairs:
                with ui.column().classes("panel"):
                    heading("Repairs")
                    for repair in study.repairs:
                        with ui.row().classes("repair"):
                            ui.label(repair.text).classes("tip")
                            button = ui.button("Try it", on_click=partial(self._attempt, repair))
                            button.props(
                                f'unelevated dense no-caps aria-label="Try it: {_plain(repair.text)}"'
                            )
            show_static_tables(study.tables, self._workspace.colours)


def _plain(text: str) -> str:
    """Escape text for a property that is parsed as markup."""
    return "".join(c if c.isalnum() or c in " ,.-()+" else " " for c in text)
