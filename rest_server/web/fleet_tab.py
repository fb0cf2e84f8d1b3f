"""Fleet tab of the web page: desired and current replicas with reasons, and the history."""

from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from optimizer.errors import SpecError
from optimizer.money import cost_unit, in_cost_unit
from optimizer.quantities import counted, counted_of
from optimizer.render.colours import type_colours
from optimizer.render.money import Money
from optimizer.section import Column, Section, name, table, words
from optimizer.text import capitalised
from rest_server.history import Event
from rest_server.security import KeyScope
from rest_server.state import Snapshot
from rest_server.v1.targets import current_snapshot, readings, unavailable_reason
from rest_server.web.charts import Charts
from rest_server.web.shown import tables_of
from rest_server.web.widgets import Tables
from rest_server.web.workspace import Workspace

REFRESH_S = 2.0
"""Interval at which the fleet tab is refreshed [s]."""
MAX_EVENTS = 100
MAX_NAMES = 3
"""Maximum number of changed items that are named; if there are more, only their number is shown."""


class FleetTab:
    """Fleet tab: the live fleet of a stateful service."""

    def __init__(self, workspace: Workspace, service: Any) -> None:
        """Create the tab, and refresh it regularly."""
        self._workspace, self._service = workspace, service
        self._shown: Snapshot | None = None
        with ui.element("div").classes("results"):
            with ui.column().classes("panel"):
                self._status = ui.label(" ").props("role=status").classes("tip")
            self._charts = Charts()
            self._tables = Tables()
        ui.timer(REFRESH_S, self._refresh)

    async def _refresh(self) -> None:
        try:
            self._workspace.check_scope(KeyScope.read)
        except SpecError as error:
            self._status.set_text(str(error))
            self._charts.clear()
            self._tables.clear()
            self._shown = None
            return
        now = await current_snapshot(self._service.state.held)
        unknown = unavailable_reason(now, self._service.state.settings.stale_after_s)
        self._status.set_text(_status(now) if unknown is None else capitalised(unknown))
        self._status.classes(add="error" if unknown else "", remove="" if unknown else "error")
        if now is not self._shown:
            self._shown = now
            self._show(now)

    def _show(self, now: Snapshot) -> None:
        plans = [event for event in now.history.events if event.plan]
        currency = None if now.plan is None else now.plan.plan.currency
        times = [event.made_at * 1000 for event in plans]
        costs = [in_cost_unit(event.plan["totalCostCentsPerH"], currency) for event in plans]
        unserved = [float(event.plan["unserved"]) for event in plans]
        lacking = [float(event.plan.get("lacksReserve", 0)) for event in plans]
        self._charts.show_over_time(
            {
                f"Cost of the plans [{cost_unit(currency)}]": list(zip(times, costs, strict=True)),
                "Servers not served in full": list(zip(times, unserved, strict=True)),
                "Servers that lack their reserve": list(zip(times, lacking, strict=True)),
            }
        )
        types = {item.name: item.type for item in now.entities.accelerators.values()}
        by_type = type_colours(sorted(set(types.values())))
        colours = {name: by_type[type_name] for name, type_name in types.items()}
        self._tables.show(tables_of([_targets(now), _unserved(now), _events(now)]), colours=colours)


def _time(made_at: float) -> str:
    return datetime.fromtimestamp(made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _status(now: Snapshot) -> str:
    """Summarise the last plan in one line."""
    assert now.plan is not None
    plan = now.plan.plan
    held = sum(item.target.held for item in readings(now))
    served = len(now.entities.planned) - len(plan.unserved)
    missing = f"{plan.reserve_text}, " if plan.requires_reserve else ""
    return (
        f"Plan of {_time(now.plan.made_at)}: {Money.of(plan).text(plan.total_cost_cents_per_h)}, "
        f"{counted_of(served, len(now.entities.planned), 'server')} served in full, "
        f"{missing}{counted(held, 'target')} held."
    )


def _targets(now: Snapshot) -> Section:
    columns = (
        name("server", "server"),
        name("accelerator", "accelerator"),
        Column("desired", "target.replicas", form=",d"),
        Column("current", "current", form=",d"),
        words("held", lambda item: "held" if item.target.held else "no"),
        words("reason", lambda item: item.target.detail or str(item.target.reason.value)),
    )
    targets = [item for item in readings(now) if item.target.replicas or item.current]
    return table("Replicas", columns, targets, "replicas")


def _unserved(now: Snapshot) -> Section:
    unserved = () if now.plan is None else now.plan.plan.unserved
    notes = ["Every server of the last plan is served in full."] if now.plan and not unserved else []
    columns = (
        name("server", "server"),
        Column("served", "served_fraction", form=".1%"),
        words("reason", "reason"),
        words("detail", "detail"),
    )
    return table("Unserved load", columns, unserved, "unserved", alert=bool(unserved), notes=notes)


def _events(now: Snapshot) -> Section:
    columns = (
        words("time", lambda event: _time(event.made_at)),
        words("event", "cause"),
        words("what", _what),
    )
    return table("History", columns, list(reversed(now.history.events))[:MAX_EVENTS], "history")


def _what(event: Event) -> str:
    """Describe an event: the outcome of a plan, or the items that changed."""
    plan = event.plan
    if plan:
        lacking = plan.get("lacksReserve", 0)
        missing = (
            f", {lacking:,} without {'its reserve' if lacking == 1 else 'their reserves'}" if lacking else ""
        )
        served = f"{plan['unserved']:,} not served in full"
        return f"{plan['status']}, {plan['changes']:,} changed, {served}{missing}"
    if 0 < sum(event.changed.values()) <= MAX_NAMES:
        return ", ".join(event.names)
    return ", ".join(f"{number:,} {section}" for section, number in event.changed.items())
