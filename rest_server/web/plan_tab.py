"""The plan tab: key figures, charts and tables, next to the controls; and one server in depth."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from rest_server.web.charts import TypeCharts
from rest_server.web.desk import Desk
from rest_server.web.what_if import WhatIf
from rest_server.web.widgets import FactBar, Tables, heading, scroll_to, show_tables

Guarded = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class PlanTab:
    """The plan of a page."""

    def __init__(self, desk: Desk, guarded: Guarded, changed: Callable[[], Awaitable[None]]) -> None:
        """Show the tab.

        Args:
            desk: the state of the page.
            guarded: function that awaits work and shows errors.
            changed: called after a change of the document.
        """
        self._desk, self._guarded, self._changed = desk, guarded, changed
        with ui.element("div").classes("results summary"):
            self._facts = FactBar()
            with ui.column().classes("panel"):
                self._status = ui.label(" ").props("role=status").classes("tip status")
        with ui.element("div").classes("split"):
            with ui.column().style("gap: 12px; min-width: 0; width: 100%"):
                self._show_actions()
                self._controls = WhatIf(desk, changed)
            with ui.element("div").classes("results"):
                self._charts = TypeCharts()
                self._tables = Tables(self._open_server)
                self._server = ui.element("div").classes("results")
                self._limits = ui.element("div").classes("results")

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
        with ui.row().style("gap: 4px; margin-left: -8px"):
            for title, action in actions:
                ui.button(title, on_click=action, color=None).props("flat dense no-caps")

    def open(self) -> None:
        """Show the controls of a newly opened document, without a plan."""
        self._controls.build()
        self._facts.show(())
        self._status.set_text(" ")
        for box in (self._charts, self._tables, self._server, self._limits):
            box.clear()

    def show(self) -> None:
        """Show the plan compared with the pinned one."""
        plan, pinned = self._desk.plan, self._desk.pinned
        if plan is None:
            return
        compared = pinned if pinned is not plan else None
        self._facts.show(plan.facts, compared.facts if compared else ())
        self._status.set_text(plan.status)
        self._charts.show(plan.types, compared.types if compared else (), plan.cost_unit)
        self._tables.show(plan.tables, pinned=compared.tables if compared else (), colours=plan.colours)
        for box in (self._server, self._limits):
            box.clear()  # they belong to another plan

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
            show_tables(found.tables, colours=self._desk.plan.colours if self._desk.plan else None)
        scroll_to(self._server)

    async def _compare(self) -> None:
        found = await self._guarded(self._desk.compare)
        if found is None:
            return
        self._limits.clear()
        with self._limits:
            heading("Limited against unlimited")
            show_tables(found.tables)
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
