"""Charts of a plan: cards and cost by accelerator type, beside those of the pinned plan."""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from rest_server.web.shown import CardUse

FAINT = "#7a828c55"
GREY = "#7a828c"
"""Colour of text and of the pinned plan; it can be read on white and on black."""


def show_types(types: Sequence[CardUse], pinned: Sequence[CardUse], cost_unit: str) -> None:
    """Show the cards used and left, and the cost, of every accelerator type."""
    used = [item for item in types if item.used or item.limit]
    before = {item.type: item for item in pinned}
    with ui.element("div").classes("split even"):
        _show("Cards used", used, [item.used for item in used], [_of(before, item).used for item in used])
        costs = [round(item.cost, 4) for item in used]
        _show(f"Cost [{cost_unit}]", used, costs, [round(_of(before, item).cost, 4) for item in used])


def _of(before: dict[str, CardUse], item: CardUse) -> CardUse:
    return before.get(item.type, CardUse(item.type, 0, None, 0.0, item.colour))


def _show(title: str, types: Sequence[CardUse], now: Sequence[float], pinned: Sequence[float]) -> None:
    """Show bars, one for each type, with a grey bar for the pinned plan where it differs."""
    series = [
        {
            "type": "bar",
            "name": "plan",
            "data": [
                {"value": value, "itemStyle": {"color": item.colour}}
                for item, value in zip(types, now, strict=True)
            ],
        }
    ]
    if list(now) != list(pinned) and any(pinned):
        grey: dict[str, Any] = {"type": "bar", "name": "pinned plan", "data": list(pinned)}
        series.append(grey | {"itemStyle": {"color": "#b8bec6"}})
    options = {
        "animation": False,
        "title": {"text": title, "textStyle": {"fontSize": 13, "color": GREY}},
        "textStyle": {"color": GREY},
        "grid": {"left": 8, "right": 24, "top": 32, "bottom": 8, "containLabel": True},
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
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "series": series,
    }
    with ui.column().classes("panel"):
        height = 60 + 26 * len(types)
        chart = ui.echart(options).style(f"height: {height}px; width: 100%")
        chart.props(f'role=img aria-label="{title}, by accelerator type; the table below has the numbers"')


def show_line(title: str, points: Sequence[tuple[float, float]]) -> None:
    """Show values over time, each until the next.

    Args:
        title: the title.
        points: times [ms since the epoch] and values.
    """
    options = {
        "animation": False,
        "title": {"text": title, "textStyle": {"fontSize": 13, "color": GREY}},
        "textStyle": {"color": GREY},
        "grid": {"left": 8, "right": 24, "top": 32, "bottom": 8, "containLabel": True},
        "xAxis": {"type": "time", "axisLabel": {"color": GREY}},
        "yAxis": {
            "type": "value",
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"color": FAINT}},
        },
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "series": [{"type": "line", "step": "end", "data": [list(point) for point in points]}],
    }
    with ui.column().classes("panel"):
        chart = ui.echart(options).style("height: 220px; width: 100%")
        chart.props(f'role=img aria-label="{title}"')
