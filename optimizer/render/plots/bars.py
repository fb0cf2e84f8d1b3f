"""Draws bar panels: a row for each name, several quantities side by side, and each number next to its bar."""

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from optimizer.queueing.targets import target_percent
from optimizer.render.plots.style import (
    EDGE_MM,
    GREY,
    INK,
    LIGHT,
    PLAIN,
    SMALL_PT,
    WIDTH_MM,
    Page,
    fitted_names,
    widest_mm,
    width_mm,
)
from optimizer.studies.figures.figure_document import Bar, BarPanel

ROW_MM = 3.7
GROUP_MM, NAME_MM = (25.0, 34.0), (17.0, 21.0)
"""Minimum and maximum width for the names of groups, and for the names of rows within groups [mm]."""
NAME_ALONE_MM = (21.0, 62.0)
"""Minimum and maximum width for the names of rows without groups [mm]."""
NUMBER_PT = SMALL_PT - 0.5
MIN_SHOWN_VALUE = 0.01
"""Values below this are shown as "< 0.01"."""
LONG_NUMBER = 10_000_000
"""Value from which a number has too many digits to be written in full."""
MIN_SCALE = 0.1
"""Smallest maximum of a column's scale. Smaller values get short bars, because full bars would exaggerate
them.
"""
COST = "cost"
"""Start of the heading of a column with money, whose numbers have the same decimals."""
SPACIOUS_COLUMNS = 3
"""Maximum number of columns at which the number of a mark fits next to the number of its bar."""


def bars_height_mm(panel: BarPanel) -> float:
    """Return the height of a bar panel with its headings [mm]."""
    return ROW_MM * (len(panel.bars) + _gaps(panel.bars)) + 8


def draw_bars(page: Page, panel: BarPanel, top: float, colours: Mapping[str, str]) -> None:
    """Draw a bar panel; its upper edge is at `top` [mm]."""
    if not panel.bars:
        return
    rows, grouped = _rows(panel.bars), any(bar.group for bar in panel.bars)
    group_names, row_names = ([getattr(bar, part) for bar in panel.bars] for part in ("group", "name"))
    group_mm = widest_mm(group_names, *GROUP_MM, bold=True) + 1 if grouped else 0.0
    name_mm = widest_mm(row_names, *(NAME_MM if grouped else NAME_ALONE_MM))
    groups, names = fitted_names(group_names, group_mm - 1, bold=True), fitted_names(row_names, name_mm)
    begin_name = EDGE_MM + group_mm
    left = begin_name + name_mm + 1
    spacious = len(panel.columns) <= SPACIOUS_COLUMNS
    width = (WIDTH_MM - left - EDGE_MM) / len(panel.columns)
    head = 6.5
    for i, (bar, row) in enumerate(zip(panel.bars, rows, strict=True)):
        middle = top + head + ROW_MM * (row + 0.5)
        if grouped and (i == 0 or panel.bars[i - 1].group != bar.group):
            page.text(EDGE_MM, middle, groups[bar.group], va="center", fontweight="bold")
        page.text(begin_name, middle, names[bar.name], va="center")
    for c, heading in enumerate(panel.columns):
        begin = left + width * c
        page.text(begin, top + head, heading, va="bottom", color=GREY, linespacing=1.1)
        axes = page.axes(begin, top + head, width - 2, ROW_MM * (rows[-1] + 1))
        _draw_column(axes, panel, rows, c, colours, spacious=spacious)
    signs = [f"line: {panel.line_name}"] if panel.line is not None and panel.line_name else []
    if panel.mark:
        signs.append(f"{'tick and (number)' if spacious else 'tick'}: {panel.mark}")
    page.text(WIDTH_MM - EDGE_MM, top - 5, "; ".join(signs), ha="right", color=GREY)


def _gaps(bars: Sequence[Bar]) -> float:
    """Return the total space between the groups of bars, in row heights."""
    return 0.6 * sum(a.group != b.group for a, b in itertools.pairwise(bars))


def _rows(bars: Sequence[Bar]) -> list[float]:
    """Return the distance of each bar from the top, in row heights."""
    return [i + _gaps(bars[: i + 1]) for i in range(len(bars))]


def _draw_column(
    axes: Axes, panel: BarPanel, rows: Sequence[float], c: int, colours: Mapping[str, str], *, spacious: bool
) -> None:
    bars = panel.bars
    axes.axis("off")
    axes.set_ylim(rows[-1] + 0.5, -0.5)
    values = [bar.values[c] for bar in bars]
    marks = [bar.marks[c] if bar.marks else None for bar in bars]
    decimals = None
    if panel.columns[c].startswith(COST) and any(value and value % 1 for value in values):
        decimals = 2
    labels = [
        _label(value, mark if spacious else None, decimals, panel.line)
        for value, mark in zip(values, marks, strict=True)
    ]
    shown = (value for value in (*values, *marks, panel.line) if value is not None)
    most = max([MIN_SCALE, *shown])
    space_mm = max(width_mm(label, NUMBER_PT) for label in labels) + 1
    axes_mm = axes.get_position().width * WIDTH_MM
    axes.set_xlim(0, most / max(1 - space_mm / axes_mm, 0.2))
    axes.plot([0, 0], [-0.5, rows[-1] + 0.5], color=LIGHT, linewidth=0.6, clip_on=False)
    if panel.line is not None:
        axes.plot([panel.line, panel.line], [-0.5, rows[-1] + 0.5], color=INK, linewidth=0.9, zorder=3)
    for bar, row, value, mark, label in zip(bars, rows, values, marks, labels, strict=True):
        colour = colours.get(bar.type, PLAIN)
        if value:
            axes.barh(row, value, height=0.72, color=colour, linewidth=0)
        if mark is not None:
            axes.plot([mark, mark], [row - 0.45, row + 0.45], color=INK, linewidth=1.1)
        end = value or 0.0
        label_end = end + (width_mm(label, NUMBER_PT) + 2) / axes_mm * axes.get_xlim()[1]
        if mark is not None and end <= mark <= label_end:
            end = mark  # beyond the tick, which would otherwise cross the number
        if panel.line is not None and end <= panel.line:
            end = panel.line  # beyond the line, which would otherwise cross the number
        axes.annotate(label, (end, row), (2, 0), textcoords="offset points", va="center", fontsize=NUMBER_PT)


def _label(value: float | None, mark: float | None, decimals: int | None, line: float | None) -> str:
    shown = "–" if value is None else _number(value, decimals, line)
    return shown if mark is None else f"{shown} ({_number(mark, decimals, line)})"


def _number(value: float, decimals: int | None, line: float | None) -> str:
    if line is not None:
        return f"{target_percent(value / line):,d}"
    if decimals is not None:
        return f"{value:,.{decimals}f}"
    if 0 < value < MIN_SHOWN_VALUE:
        return f"<{MIN_SHOWN_VALUE:g}"
    return f"{value:,.0f}" if 100 <= value < LONG_NUMBER else f"{value:.3g}"
