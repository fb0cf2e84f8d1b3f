"""Plan tab of the web page: key figures, charts, tables and controls; and one server in depth."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from optimizer.money import cost_unit
from rest_server.web.charts import Charts
from rest_server.web.desk import Desk
from rest_server.web.shown import StudyView, in_words
from rest_server.web.what_if import WhatIf
from rest_server.web.widgets import FactBar, Tables, heading, scroll_to, show_static_tables
from rest_server.web.work import limits_view, report_file, study_view, written_document

MAX_WARNINGS = 5
"""Maximum number of warnings that the tab shows."""
Guarded = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class PlanTab:
    """Plan tab: the plan of a page, and controls to change the document."""

    def __init__(self, desk: Desk, guarded: Guarded, changed: Callable[[], Awaitable[None]]) -> None:
        """Create the tab.

        Args:
            desk: state of the page.
            guarded: function that awaits work and shows errors.
            changed: function that is called after a change of the document.
        """
        self._desk, self._guarded, self._changed = desk, guarded, changed
        self._buttons: dict[str, ui.button] = {}
        with ui.element("div") as self._body:
            with ui.element("div").classes("results summary"):
                self._facts = FactBar()
                with ui.column().classes("panel"):
                    self._words = ui.label(" ").classes("tip difference")
                    self._status = ui.label(" ").props("role=status").classes("tip status")
                    self._warnings = ui.column().style("gap: 0")
            with ui.element("div").classes("split plan"):
                with ui.column().style("gap: 12px; min-width: 0; width: 100%"):
                    self._show_actions()
                    self._controls = WhatIf(desk, changed)
                with ui.element("div").classes("results"):
                    self._charts = Charts()
                    self._tables = Tables(self._open_server)
                with ui.element("div").classes("results details"):
                    self._server = ui.element("div").classes("results")
                    self._limits = ui.element("div").classes("results")
        self._body.set_visibility(False)

    def _show_actions(self) -> None:
        with ui.column().classes("panel").style("gap: 0"):
            self._show_buttons(
                ("Undo", partial(self._step, self._desk.undo)),
                ("Reset", partial(self._step, self._desk.reset)),
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
        has_plan = self._desk.plan is not None
        enabled = {
            "Undo": bool(self._desk.steps.before),
            "Reset": bool(self._desk.changes.given),
            "Pin": has_plan and self._desk.plan is not self._desk.pinned,
        }
        for title, button in self._buttons.items():
            button.set_enabled(enabled.get(title, has_plan))

    def open(self) -> None:
        """Show the controls of a newly opened document, without a plan."""
        self._controls.build()
        self._body.set_visibility(False)  # until there is a plan, so that nothing moves when it arrives
        self._facts.show(())
        self._enable()
        self._status.set_text(" ")
        for box in (self._warnings, self._charts, self._tables, self._server, self._limits):
            box.clear()

    def reveal(self) -> None:
        """Show the controls with the current changes, even if there is no plan."""
        self._controls.show()
        self._body.set_visibility(True)

    def show(self) -> None:
        """Show the plan, compared with the pinned one."""
        plan, pinned = self._desk.plan, self._desk.pinned
        if plan is None:
            return
        compared = pinned if pinned is not plan else None
        self._facts.show(plan.facts, compared.facts if compared else ())
        words = "This is the pinned plan; changes are compared with it."
        if compared is not None:
            costs = plan.cost, compared.cost
            words = in_words(plan.service, compared.service, costs, cost_unit(plan.currency))
        self._body.set_visibility(True)
        self._words.set_text(words)
        self._status.set_text(plan.status)
        self._show_warnings(plan.warnings)
        self._enable()
        self._charts.show_types(plan, compared)
        self._tables.show(plan.tables, pinned=compared.tables if compared else (), colours=plan.colours)
        for box in (self._server, self._limits):
            box.clear()  # these tables belong to another plan

    def _show_warnings(self, warnings: Sequence[str]) -> None:
        self._warnings.clear()
        with self._warnings:
            for text in warnings[:MAX_WARNINGS]:
                ui.label(f"warning: {text}").classes("tip finding warning")
            if len(warnings) > MAX_WARNINGS:
                ui.label(f"and {len(warnings) - MAX_WARNINGS:,} more warnings").classes("tip finding warning")

    async def _step(self, step: Callable[[], None]) -> None:
        step()
        self._controls.show()
        await self._changed()

    def _pin(self) -> None:
        self._desk.pin()
        self.show()
        ui.notify("Later plans are shown against this one.")

    async def _open_server(self, name: str) -> None:
        options = json.dumps({"server": name})
        answer = await self._guarded(partial(self._desk.answer, "study", study_view, "explain", options, ""))
        if answer is not None:
            _show_in(self._server, f"{name}: why this accelerator", answer, self._desk.colours)

    async def _compare(self) -> None:
        comparison = await self._guarded(partial(self._desk.answer, "compare", limits_view))
        if comparison is not None:
            _show_in(self._limits, "Limited against unlimited", comparison)

    async def _save(
        self, work: Callable[..., bytes | str], file: str, media_type: str, *arguments: str
    ) -> None:
        """Let the browser save the result of work on the document."""
        content = await self._guarded(partial(self._desk.answer, file, work, *arguments))
        if content is not None:
            ui.download.content(content, file, media_type)

    def _save_plan(self) -> None:
        if self._desk.plan is not None:
            ui.download.content(self._desk.plan.plan, "plan.json", "application/json")


def _show_in(box: ui.element, title: str, found: StudyView, colours: Mapping[str, str] | None = None) -> None:
    """Show the result of a study in a box, under a title."""
    box.clear()
    with box:
        heading(title)
        show_static_tables(found.tables, colours)
    scroll_to(box)
