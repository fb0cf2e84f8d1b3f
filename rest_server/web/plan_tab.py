"""Plan tab of the web page: key figures, charts, tables and controls; and one server in depth."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from rest_server.web.charts import TypeCharts
from rest_server.web.desk import Desk
from rest_server.web.shown import in_words
from rest_server.web.what_if import WhatIf
from rest_server.web.widgets import FactBar, Tables, heading, scroll_to, show_static_tables

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
            with ui.element("div").classes("split plan"):
                with ui.column().style("gap: 12px; min-width: 0; width: 100%"):
                    self._show_actions()
                    self._controls = WhatIf(desk, changed)
                with ui.element("div").classes("results"):
                    self._charts = TypeCharts()
                    self._tables = Tables(self._open_server)
                with ui.element("div").classes("results details"):
                    self._server = ui.element("div").classes("results")
                    self._limits = ui.element("div").classes("results")
        self._body.set_visibility(False)

    def _show_actions(self) -> None:
        with ui.column().classes("panel").style("gap: 0"):
            self._show_buttons(
                ("Undo", self._undo),
                ("Reset", self._reset),
                ("Pin", self._pin),
                ("Limited against unlimited", self._compare),
            )
            heading("Save")
            self._show_buttons(
                ("YAML", self._save_yaml), ("Plan JSON", self._save_plan), ("Report", self._save_report)
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
        for box in (self._charts, self._tables, self._server, self._limits):
            box.clear()

    def reveal(self) -> None:
        """Show the controls, even if there is no plan."""
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
            words = in_words(plan.service, compared.service, (plan.cost, compared.cost), plan.cost_unit)
        self.reveal()
        self._words.set_text(words)
        self._status.set_text(plan.status)
        self._enable()
        self._charts.show(plan.types, compared.types if compared else (), plan.cost_unit)
        self._tables.show(plan.tables, pinned=compared.tables if compared else (), colours=plan.colours)
        for box in (self._server, self._limits):
            box.clear()  # these tables belong to another plan

    async def _undo(self) -> None:
        self._desk.undo()
        self._controls.show()
        await self._changed()

    async def _reset(self) -> None:
        self._desk.reset()
        self._controls.show()
        await self._changed()

    def _pin(self) -> None:
        self._desk.pin()
        self.show()
        ui.notify("Later plans are shown against this one.")

    async def _open_server(self, name: str) -> None:
        options = json.dumps({"server": name})
        found = await self._guarded(lambda: self._desk.study("explain", options))
        if found is None:
            return
        self._server.clear()
        with self._server:
            heading(f"{name}: why this accelerator")
            show_static_tables(found.tables, colours=self._desk.plan.colours if self._desk.plan else None)
        scroll_to(self._server)

    async def _compare(self) -> None:
        found = await self._guarded(self._desk.compare)
        if found is None:
            return
        self._limits.clear()
        with self._limits:
            heading("Limited against unlimited")
            show_static_tables(found.tables)
        scroll_to(self._limits)

    async def _save_yaml(self) -> None:
        text = await self._guarded(self._desk.yaml)
        if text is not None:
            ui.download.content(text, "system.yaml", "application/yaml")

    def _save_plan(self) -> None:
        if self._desk.plan is not None:
            ui.download.content(self._desk.plan.plan, "plan.json", "application/json")

    async def _save_report(self) -> None:
        page = await self._guarded(self._desk.report)
        if page is not None:
            ui.download.content(page, "report.html", "text/html")
