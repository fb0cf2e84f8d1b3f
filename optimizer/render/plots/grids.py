"""Draws panels of fields: rows by columns, with text in every field and a colour for each group."""

import matplotlib as mpl
from matplotlib.patches import Rectangle

from optimizer.render.plots.style import (
    COLOURS,
    EDGE_MM,
    GREY,
    LIGHT,
    WIDTH_MM,
    Page,
    fitted,
    wrapped,
)
from optimizer.studies.figures.document import GridPanel

FIELD_MM, LINE_MM = 6.0, 3.2
HEADING_MM = 34.0
"""Space for the headings of the rows."""
MOST_LINES = 3
"""Into which one line of a field's text may be broken."""
TINTS = (0.28, 0.5)
"""Strengths of colours behind text, the second for groups that the colours do not suffice for."""
NO_TINT = 0.4
"""Strength of the grey behind text without a group."""
Shade = tuple[float, float, float]
"""Red, green and blue, from 0 to 1."""


def grid_height_mm(panel: GridPanel) -> float:
    """Return the height of the panel with its headings."""
    return _field_mm(panel) * len(panel.rows) + 6


def draw_grid(page: Page, panel: GridPanel, top: float) -> None:
    """Draw a panel of fields whose upper edge is at `top` [mm]."""
    left, head, height, width = HEADING_MM, 5.0, _field_mm(panel), _column_mm(panel)
    shades = _shades(panel)
    axes = page.axes(0, top, WIDTH_MM, head + height * len(panel.rows) + 0.5)
    axes.axis("off")
    axes.set_xlim(0, WIDTH_MM)
    axes.set_ylim(head + height * len(panel.rows) + 0.5, 0)
    for c, heading in enumerate(panel.columns):
        page.text(left + width * c + 1, top, fitted(heading, width - 2), color=GREY)
    for r, name in enumerate(panel.rows):
        begin = head + height * r
        page.text(
            EDGE_MM,
            top + begin + height / 2,
            fitted(name, left - EDGE_MM - 1, bold=True),
            va="center",
            fontweight="bold",
        )
        for c, cell in enumerate(panel.cells[r]):
            colour = shades.get(cell.group, _tint(LIGHT, NO_TINT))
            axes.add_patch(
                Rectangle((left + width * c, begin), width - 0.8, height - 0.8, facecolor=colour, linewidth=0)
            )
            text = "\n".join(_lines(cell.text, panel))
            place = left + width * c + 1, top + begin + (height - 0.8) / 2
            page.text(*place, text, va="center", linespacing=1.25)


def _field_mm(panel: GridPanel) -> float:
    """Return the height of the fields: all fit the text of the fullest."""
    lines = max((len(_lines(cell.text, panel)) for row in panel.cells for cell in row), default=1)
    return FIELD_MM + LINE_MM * max(lines - 1, 0)


def _column_mm(panel: GridPanel) -> float:
    return (WIDTH_MM - HEADING_MM - EDGE_MM) / max(len(panel.columns), 1)


def _lines(text: str, panel: GridPanel) -> list[str]:
    """Break the text of a field into lines that fit its column."""
    return [part for line in text.split("\n") for part in wrapped(line, _column_mm(panel) - 2, MOST_LINES)]


def _shades(panel: GridPanel) -> dict[str, Shade]:
    """Return a shade for each group, as far as there are shades: those of the panel, then in their order."""
    shown = (cell.group for row in panel.cells for cell in row if cell.group)
    shades = [_tint(colour, strength) for strength in TINTS for colour in COLOURS]
    return dict(zip(dict.fromkeys([*panel.groups, *shown]), shades, strict=False))


def _tint(colour: str, strength: float) -> Shade:
    """Return a colour so light that black text can be read on it."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return 1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue)
