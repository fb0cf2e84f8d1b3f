"""Plan tab of the web page: key figures, servers with their targets, charts, tables and controls."""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from nicegui import ui

from optimizer.money import cost_unit
from rest_server.web.changes import UNCHANGED
from rest_server.web.charts import Charts
from rest_server.web.drawer import Drawer
from rest_server.web.server_table import ServerTable
from rest_server.web.shown import Outlook, Repair, in_words
from rest_server.web.what_if import WhatIf
from rest_server.web.widgets import Tables, TileBar, heading, scroll_to, show_static_tables
from rest_server.web.work import limits_view, report_file, written_document
from rest_server.web.workspace import Workspace

MAX_WARNINGS = 20
"""Maximum number of warnings that the tab shows."""
CLOCK_S = 0.5
"""Interval at which the time of a running solve is shown [s]."""
Guarded = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class PlanTab:
    """Plan tab: the plan of a page, and controls to change the document."""

    def __init__(
        self, workspace: Workspace, guarded: Guarded, changed: Callable[[], Awaitable[None]]
    ) -> None:
        """Create the tab.

        Args:
            workspace: state of the page.
            guarded: function that awaits work and shows errors.
            changed: function that is called after a change of the document.
        """
        self._workspace, self._guarded, self._changed = workspace, guarded, changed
        self._buttons: dict[str, ui.button] = {}
        self._remedy: Repair | None = None
        """Changes that would serve everything."""
        self._made = UNCHANGED, ""
        """Changes after the last tried repair, and its text."""
        self._solves: list[float] = []
        """Starting times of the running solves."""
        self._drawer = Drawer(workspace, guarded, self._try)
        with ui.element("div").classes("whole").style("width: 100%") as self._body:
            self._wait = ui.label("").classes("panel wait")
            with ui.element("div").classes("strip"):
                self._tiles = TileBar()
            with ui.column().classes("panel summary"):
                self._show_summary()
            with ui.element("div").classes("split plan"):
                with ui.element("div").classes("controls").props("id=controls"):
                    self._show_actions()
                    self._controls = WhatIf(workspace, changed)
                with ui.element("div").classes("results") as self._results:
                    self._servers = ServerTable(self._drawer.open_server)
                    self._charts = Charts()
                    self._tables = Tables(self._drawer.open_server)
                    self._limits = ui.element("div").classes("results")
        self._clock = ui.timer(CLOCK_S, self._tell, active=False)
        self._body.set_visibility(False)

    def _show_summary(self) -> None:
        self._invalid = ui.label("").classes("tip error")
        self._invalid.set_visibility(False)
        with ui.row().classes("unserved") as self._unserved:
            self._unserved_text = ui.label("").classes("tip error")
            self._attempt = ui.button("Try it", on_click=self._try_remedy).props("unelevated dense no-caps")
            self._undo = ui.button("Undo", on_click=self._undo_step).props("outline dense no-caps")
        self._answer = ui.label(" ").classes("tip answer")
        self._words = ui.label(" ").classes("tip")
        self._status = ui.label(" ").props("role=status").classes("tip status soft")
        self._warnings = ui.column().style("gap: 0; width: 100%")
        ui.link("Change loads, cards and targets", "#controls").classes("to-controls")

    def _show_actions(self) -> None:
        with ui.column().classes("panel").style("gap: 0"):
            self._show_buttons(
                ("Undo", self._undo_step),
                ("Reset", partial(self._step, self._workspace.reset)),
                ("Pin", self._pin),
                ("Limited against unlimited", self._compare),
            )
            heading("Save")
            self._show_buttons(
                ("YAML", partial(self._save, written_document, "system.yaml", "application/yaml")),
                ("Plan JSON", self._save_plan),
                ("Plan CSV", partial(self._save, report_file, "plan.csv", "text/csv", "csv")),
                ("Report", partial(self._save, report_file, "report.html", "text/html", "html")),
            )

    def _show_buttons(self, *actions: tuple[str, Callable[[], Any]]) -> None:
        with ui.row().style("gap: 4px; margin-left: -4px"):
            for title, action in actions:
                button = ui.button(title, on_click=action, color=None)
                self._buttons[title] = button.props("flat dense no-caps")

    def _enable(self) -> None:
        """Enable only the buttons that would do something."""
        has_plan = self._workspace.plan is not None
        enabled = {
            "Undo": bool(self._workspace.steps.before),
            "Reset": bool(self._workspace.changes.given),
            "Pin": has_plan and self._workspace.plan is not self._workspace.pinned,
        }
        for title, button in self._buttons.items():
            button.set_enabled(enabled.get(title, has_plan))

    def open(self) -> None:
        """Show the controls of a newly opened document, without a plan."""
        self._controls.build()
        self._invalid.set_visibility(False)
        self._unserved.set_visibility(False)
        self._body.set_visibility(True)
        self._body.classes(add="unplanned")
        self._tiles.show(())
        self._enable()
        self._answer.set_text(" ")
        self._words.set_visibility(False)
        self._status.set_text("Opening the document")
        self._wait.set_text(self._status.text)
        self._drawer.close()
        self._servers.clear()
        for box in (self._warnings, self._charts, self._tables, self._limits):
            box.clear()

    def show_invalid(self, errors: int) -> None:
        """State that the plan is that of the last valid document, not of the one in the editor."""
        noun = "an error" if errors == 1 else f"{errors:,} errors"
        self._invalid.set_text(
            f"The document in the editor has {noun}; this is the plan of the last valid document."
        )
        self._invalid.set_visibility(True)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Context in which the tab shows how long the plan has been solved, and the last plan greyed."""
        began = time.monotonic()
        self._solves.append(began)
        self._results.classes(add="stale")
        self._controls.show()
        self._tell()
        self._clock.activate()
        try:
            yield
        finally:
            self._solves.remove(began)
            if not self._solves and not self._workspace.is_closed:
                self._clock.deactivate()
                self._results.classes(remove="stale")

    def _tell(self) -> None:
        controls = self._workspace.opened.controls
        if self._solves and controls is not None:
            count, passed_s = len(controls.servers), time.monotonic() - self._solves[-1]
            noun = "server" if count == 1 else "servers"
            self._status.set_text(f"Planning {count:,} {noun}, {passed_s:.0f} s")
            self._wait.set_text(self._status.text)

    def show(self, *, is_new: bool = True) -> None:
        """Show the plan, compared with the pinned one.

        Args:
            is_new: whether the plan has changed; if not, only the controls and the status are updated.
        """
        self._controls.show()
        self._body.classes(remove="unplanned")
        plan, pinned = self._workspace.plan, self._workspace.pinned
        if plan is None or self._solves:
            self._status.set_text(self._status.text if self._solves else "There is no plan.")
            return
        self._status.set_text(plan.status)
        if not is_new:
            return
        compared = pinned if pinned is not plan else None
        self._answer.set_text(plan.answer)
        self._answer.set_visibility(bool(plan.answer))
        self._show_shortage(plan.shortage, None)
        self._words.set_visibility(compared is not None)
        if compared is not None:
            costs = plan.cost, compared.cost
            self._words.set_text(in_words(plan.service, compared.service, costs, cost_unit(plan.currency)))
        self._tiles.show(plan.tiles, compared.tiles if compared else ())
        self._show_warnings(plan.warnings)
        self._enable()
        self._servers.show(plan, compared)
        self._charts.show_types(plan, compared)
        self._tables.show(plan.tables, pinned=compared.tables if compared else (), colours=plan.colours)
        self._limits.clear()  # it belongs to another plan
        self._drawer.close()

    def show_outlook(self, outlook: Outlook) -> None:
        """Show the typical cost of the plan, and what would serve everything."""
        plan, pinned = self._workspace.plan, self._workspace.pinned
        if plan is None:
            return
        compared = pinned if pinned is not plan else None
        tiles = (plan.tiles[0]._replace(note=outlook.cost_note), *plan.tiles[1:])
        self._tiles.show(tiles, compared.tiles if compared else ())
        self._answer.set_text(outlook.answer)
        self._answer.set_visibility(bool(outlook.answer))
        self._show_shortage(outlook.shortage, outlook.remedy)

    def _show_shortage(self, text: str, remedy: Repair | None) -> None:
        """Show the unserved load; once there was any, the place stays and says that it is served.

        So the page below does not move when a repair is tried.
        """
        self._remedy = remedy
        if text:
            self._unserved.set_visibility(True)
        made = f": {self._made[1]}" if self._made[0] is self._workspace.changes else ""
        self._unserved_text.set_text(text or f"Now every server is served in full{made}.")
        self._unserved_text.classes(add="error" if text else "", remove="" if text else "error")
        self._attempt.set_visibility(remedy is not None)
        self._undo.set_visibility(not text and bool(self._workspace.steps.before))

    def _show_warnings(self, warnings: Sequence[str]) -> None:
        self._warnings.clear()
        if not warnings:
            return
        with self._warnings, ui.expansion(f"Warnings: {len(warnings):,}").props("dense").classes("warnings"):
            for text in warnings[:MAX_WARNINGS]:
                ui.label(text).classes("tip finding warning")
            if len(warnings) > MAX_WARNINGS:
                ui.label(f"and {len(warnings) - MAX_WARNINGS:,} more").classes("tip finding warning")

    async def _step(self, step: Callable[[], None]) -> None:
        step()
        self._controls.show()
        await self._changed()

    async def _undo_step(self) -> None:
        await self._step(self._workspace.undo)

    async def _try(self, repair: Repair) -> None:
        self._drawer.close()
        scroll_to(self._body)
        self._workspace.change_all(repair.changes)
        self._made = self._workspace.changes, repair.text
        self._controls.show()
        await self._changed()

    async def _try_remedy(self) -> None:
        if self._remedy is not None:
            await self._try(self._remedy)

    def _pin(self) -> None:
        self._workspace.pin()
        self.show()
        ui.notify("Later plans are shown against this one.")

    async def _compare(self) -> None:
        comparison = await self._guarded(partial(self._workspace.answer, "compare", limits_view))
        if comparison is not None:
            self._limits.clear()
            with self._limits:
                heading("Limited against unlimited")
                show_static_tables(comparison.tables)
            scroll_to(self._limits)

    async def _save(
        self, work: Callable[..., bytes | str], file: str, media_type: str, *arguments: str
    ) -> None:
        """Let the browser save the result of work on the document."""
        content = await self._guarded(partial(self._workspace.answer, file, work, *arguments))
        if content is not None:
            ui.download.content(content, file, media_type)

    def _save_plan(self) -> None:
        if self._workspace.plan is not None:
            ui.download.content(self._workspace.plan.plan, "plan.json", "application/json")
