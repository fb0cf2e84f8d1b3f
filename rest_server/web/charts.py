"""Charts of the web page: cards and cost by accelerator type, and values over time.

Cards and cost are compared with those of the pinned plan.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from optimizer.money import cost_unit, in_cost_unit
from optimizer.studies.overview import TypeUsage
from rest_server.web.shown import PlanView

FAINT = "#7a828c55"
GREY = "#7a828c"
"""Colour of text, which the style sheet replaces by that of the theme."""
_LOOK: dict[str, Any] = {
    "animation": False,
    "useUTC": True,
    "textStyle": {"color": GREY},
    "grid": {"left": 8, "right": 72, "top": 40, "bottom": 8, "containLabel": True},
    "tooltip": {"trigger": "axis", "renderMode": "richText"},
}
_VALUES = {"type": "value", "axisLabel": {"color": GREY}, "splitLine": {"lineStyle": {"color": FAINT}}}
_LABEL = {"show": True, "position": "right", "color": GREY}
_OVER_TIME = {
    "xAxis": {"type": "time", "axisLabel": {"color": GREY, "hideOverlap": True}},
    "yAxis": _VALUES | {"minInterval": 1},
}


class Charts:
    """Charts side by side, one per title."""

    def __init__(self) -> None:
        """Create the object without charts."""
        self._box = ui.element("div").classes("split even")
        self._charts: dict[str, ui.echart] = {}
        self._axes: Mapping[str, Any] = {}

    def clear(self) -> None:
        """Remove all charts."""
        self._box.clear()
        self._charts.clear()

    def show_types(self, plan: PlanView, pinned: PlanView | None) -> None:
        """Show the used cards and the cost of every accelerator type.

        There is a grey bar for the pinned plan if any of its values differ.
        """
        shown_types = [item for item in plan.types if item.used or item.limit]
        used = [item.type for item in shown_types]
        shown = {
            "Cards used": [_values(view, used, "used") for view in (plan, pinned)],
            f"Cost [{cost_unit(plan.currency)}]": [_costs(view, used) for view in (plan, pinned)],
        }
        names = {"type": "category", "inverse": True, "data": used}
        names["axisLabel"] = {"color": GREY, "width": 110, "overflow": "break"}
        axes = {"xAxis": _VALUES | {"splitNumber": 3}, "yAxis": names}
        colours = [plan.colours[name] for name in used]
        series = {title: _bars(now, before, colours) for title, (now, before) in shown.items()}
        texts = [_of_cards(item) for item in shown_types], [f"{cost:,.2f}" for cost in _costs(plan, used)]
        for (bars, *_), mine in zip(series.values(), texts, strict=True):
            for bar, text in zip(bars["data"], mine, strict=True):
                bar["label"] = {"formatter": text}
        self._show(series, axes, 68 + 26 * len(used), "by accelerator type")

    def show_over_time(self, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Show values over time, each constant until the next.

        Args:
            lines: times [ms since the epoch] and values, by title of the chart.
        """
        series = {
            title: [{"type": "line", "step": "end", "data": list(map(list, points))}]
            for title, points in lines.items()
        }
        self._show(series, _OVER_TIME, 220, "over time")

    def _show(
        self, series: Mapping[str, list[dict[str, Any]]], axes: Mapping[str, Any], height: int, about: str
    ) -> None:
        """Show series by title; new titles or axes create the charts again."""
        if (list(series), axes) != (list(self._charts), self._axes):
            self.clear()
            self._axes = axes
            with self._box:
                self._charts = {title: _chart(title, axes, height, about) for title in series}
        for title, values in series.items():
            chart = self._charts[title]
            if chart.options["series"] != values:
                chart.options["series"] = values
                chart.update()


def _of_cards(item: TypeUsage) -> str:
    return f"{item.used:,}" if item.limit is None else f"{item.used:,} of {item.limit:,}"


def _values(view: PlanView | None, types: Sequence[str], field: str) -> list[float]:
    """Return a field of each accelerator type in a plan; 0 for types that the plan does not have."""
    by_type = {} if view is None else {item.type: getattr(item, field) for item in view.types}
    return [by_type.get(name, 0) for name in types]


def _costs(view: PlanView | None, types: Sequence[str]) -> list[float]:
    currency = None if view is None else view.currency
    return [round(in_cost_unit(cost, currency), 4) for cost in _values(view, types, "cost_cents_per_h")]


def _bars(now: Sequence[float], pinned: Sequence[float], colours: Sequence[str]) -> list[dict[str, Any]]:
    plan = [
        {"value": value, "itemStyle": {"color": colour}} for value, colour in zip(now, colours, strict=True)
    ]
    series: list[dict[str, Any]] = [{"type": "bar", "name": "plan", "data": plan, "label": _LABEL}]
    if now != pinned and any(pinned):
        faded = {"color": "#b8bec6"}
        series.append({"type": "bar", "name": "pinned plan", "data": pinned, "itemStyle": faded})
    return series


def _chart(title: str, axes: Mapping[str, Any], height: int, about: str) -> ui.echart:
    heading = {"text": title, "left": 4, "textStyle": {"fontSize": 13, "color": GREY}}
    with ui.column().classes("panel"):
        chart = ui.echart(_LOOK | {"title": heading, **axes, "series": []}, renderer="svg")
    chart.style(f"height: {height}px; width: 100%")
    chart.props(f'role=img aria-label="{title}, {about}; the table below has the numbers"')
    return chart
