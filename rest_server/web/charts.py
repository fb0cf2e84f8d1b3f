"""Charts of the web page: cards and cost by accelerator type, and values over time.

Cards and cost are compared with those of the pinned plan.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from rest_server.web.shown import CardUse

FAINT = "#7a828c55"
GREY = "#7a828c"
"""Colour of text and of the pinned plan; it is readable on white and on black."""
_LOOK: dict[str, Any] = {
    "animation": False,
    "useUTC": True,
    "textStyle": {"color": GREY},
    "grid": {"left": 8, "right": 24, "top": 40, "bottom": 8, "containLabel": True},
    "tooltip": {"trigger": "axis", "renderMode": "richText"},
}


class TypeCharts:
    """Chart with the used cards and the cost of every accelerator type."""

    def __init__(self) -> None:
        """Create the chart without bars."""
        self._box = ui.element("div").classes("split even")
        self._charts: list[ui.echart] = []
        self._shape: tuple[object, ...] = ()

    def clear(self) -> None:
        """Remove all bars from the chart."""
        self._box.clear()
        self._shape = ()

    def show(self, types: Sequence[CardUse], pinned: Sequence[CardUse], cost_unit: str) -> None:
        """Show a bar for each type, and a grey bar for the pinned plan if any of its values differ.

        Args:
            types: cards and cost by type.
            pinned: cards and cost of the pinned plan.
            cost_unit: unit of costs.
        """
        used = [item for item in types if item.used or item.limit]
        before = {item.type: item for item in pinned}
        earlier = [before.get(item.type, CardUse(item.type, 0, None, 0.0, item.colour)) for item in used]
        cards = _bars("Cards used", used, [item.used for item in used], [item.used for item in earlier])
        costs, old_costs = ([round(item.cost, 4) for item in items] for items in (used, earlier))
        both = (cards, _bars(f"Cost [{cost_unit}]", used, costs, old_costs))
        shape = (cost_unit, *(item.type for item in used))
        if shape != self._shape:
            self.clear()
            self._shape = shape
            with self._box:
                self._charts = [_bar_chart(options, len(used)) for options in both]
        for chart, options in zip(self._charts, both, strict=True):
            if chart.options["series"] != options["series"]:
                chart.options["series"] = options["series"]
                chart.update()


def _bars(
    title: str, types: Sequence[CardUse], now: Sequence[float], pinned: Sequence[float]
) -> dict[str, Any]:
    plan = [
        {"value": value, "itemStyle": {"color": item.colour}} for item, value in zip(types, now, strict=True)
    ]
    series: list[dict[str, Any]] = [{"type": "bar", "name": "plan", "data": plan}]
    if list(now) != list(pinned) and any(pinned):
        faded = {"color": "#b8bec6"}
        series.append({"type": "bar", "name": "pinned plan", "data": list(pinned), "itemStyle": faded})
    return _LOOK | {
        "title": {"text": title, "left": 4, "textStyle": {"fontSize": 13, "color": GREY}},
        "xAxis": {
            "type": "value",
            "splitNumber": 3,
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": FAINT}},
        },
        "yAxis": {
            "type": "category",
            "inverse": True,
            "data": [item.type for item in types],
            "axisLabel": {"color": GREY, "width": 110, "overflow": "truncate"},
        },
        "series": series,
    }


def _bar_chart(options: dict[str, Any], types: int) -> ui.echart:
    title = options["title"]["text"]
    with ui.column().classes("panel"):
        chart = ui.echart(options).style(f"height: {68 + 26 * types}px; width: 100%")
    chart.props(f'role=img aria-label="{title}, by accelerator type; the table below has the numbers"')
    return chart


class TimeLines:
    """Charts of values over time, each constant until the next; there is one chart per title."""

    def __init__(self) -> None:
        """Create the object without charts."""
        self._box = ui.element("div").classes("split even")
        self._charts: dict[str, ui.echart] = {}

    def clear(self) -> None:
        """Remove all charts."""
        self._box.clear()
        self._charts.clear()

    def show(self, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Show values over time in one chart per title.

        Args:
            lines: times [ms since the epoch] and values, by title of the chart.
        """
        if list(lines) != list(self._charts):
            self.clear()
            with self._box:
                self._charts = {title: _line_chart(title) for title in lines}
        for title, points in lines.items():
            chart = self._charts[title]
            chart.options["series"][0]["data"] = [list(point) for point in points]
            chart.update()


def _line_chart(title: str) -> ui.echart:
    options = _LOOK | {
        "title": {"text": title, "left": 4, "textStyle": {"fontSize": 13, "color": GREY}},
        "xAxis": {"type": "time", "axisLabel": {"color": GREY, "hideOverlap": True}},
        "yAxis": {
            "type": "value",
            "minInterval": 1,
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": FAINT}},
        },
        "series": [{"type": "line", "step": "end", "data": []}],
    }
    with ui.column().classes("panel"):
        chart = ui.echart(options).style("height: 220px; width: 100%")
    chart.props(f'role=img aria-label="{title}, over time; the table below has the numbers"')
    return chart
