"""The live fleet of a stateful service: desired and current replicas, what is held and why, its history."""

from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from optimizer.errors import SpecError
from optimizer.money import in_cost_unit
from optimizer.section import Column, Section, name, table, words
from rest_server.security import KeyScope
from rest_server.state import Snapshot
from rest_server.v1.targets import readings, settled, unavailable_reason
from rest_server.web.charts import show_line
from rest_server.web.desk import Desk
from rest_server.web.shown import tables_of
from rest_server.web.widgets import show_tables

REFRESH_S = 2.0
"""Interval of the look at the fleet [s]."""
MOST_EVENTS = 100


class FleetTab:
    """The live fleet."""

    def __init__(self, desk: Desk, service: Any) -> None:
        """Show the tab, and keep it as the fleet is."""
        self._desk, self._service = desk, service
        self._shown: tuple[int, str | None] | None = None
        self._box = ui.element("div").classes("results")
        ui.timer(REFRESH_S, self._refresh)

    async def _refresh(self) -> None:
        try:
            self._desk.check_scope(KeyScope.read)
        except SpecError as error:
            self._box.clear()
            with self._box:
                ui.label(str(error))
            return
        now = await settled(self._service.state.held)
        unknown = unavailable_reason(now, self._service.state.settings.stale_after_s)
        number = (now.history.number, None if unknown is None else unknown[:12])
        if number != self._shown:
            self._shown = number
            self._box.clear()
            with self._box:
                self._show(now, unknown)

    def _show(self, now: Snapshot, unknown: str | None) -> None:
        if unknown is not None:
            with ui.column().classes("panel"):
                ui.label(unknown).classes("error tip")
        plans = [event for event in now.history.events if event.plan]
        currency = None if now.plan is None else now.plan.plan.currency
        if len(plans) > 1:
            points = [
                (event.made_at * 1000, in_cost_unit(event.plan["totalCost"], currency)) for event in plans
            ]
            show_line("Cost of the plans over time", points)
        show_tables(tables_of([_targets(now), *_unserved(now), _events(now)]))


def _targets(now: Snapshot) -> Section:
    columns = (
        name("server", "server"),
        name("accelerator", "accelerator"),
        Column("desired", "target.replicas", form=",d"),
        Column("current", "current", form=",d"),
        words("held", lambda item: "held" if item.target.held else ""),
        words("reason", lambda item: item.target.detail or str(item.target.reason.value)),
    )
    found = [item for item in readings(now) if item.target.replicas or item.current]
    return table("Replicas", columns, found, "replicas")


def _unserved(now: Snapshot) -> list[Section]:
    if now.plan is None or not now.plan.plan.unserved:
        return []
    columns = (
        name("server", "server"),
        Column("served", "served_fraction", form=".1%"),
        words("reason", "reason"),
        words("detail", "detail"),
    )
    return [table("Unserved load", columns, now.plan.plan.unserved, "unserved", alert=True)]


def _events(now: Snapshot) -> Section:
    columns = (
        words(
            "time", lambda event: datetime.fromtimestamp(event.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        ),
        words("event", "cause"),
        words("items", lambda event: ", ".join(event.names) or _what(event.plan)),
    )
    return table("History", columns, list(reversed(now.history.events))[:MOST_EVENTS], "history")


def _what(plan: Any) -> str:
    if not plan:
        return ""
    return f"{plan['status']}, {plan['changes']} changed, {plan['unserved']} not served in full"
