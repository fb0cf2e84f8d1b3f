"""Draws grid panels: rows by columns, with text in every field and a colour for each group."""

import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.patches import Rectangle

from optimizer.render.plots.style import (
    EDGE_MM,
    GREY,
    LIGHT,
    WIDTH_MM,
    Page,
    fitted_names,
    widest_mm,
    width_mm,
    wrapped,
)
from optimizer.studies.figures.figure_document import GridPanel

FIELD_MM, LINE_MM = 6.0, 3.2
HEADING_MM = (24.0, 46.0)
"""Minimum and maximum width for the headings of the rows [mm]."""
MAX_LINES = 3
"""Maximum number of lines into which one text line of a field is wrapped."""
TINT = 0.28
"""Opacity of a group's colour behind text; the stripe beside the text has the full colour."""
STRIPE_MM = 1.2
COUNTED = re.compile(r"([\d,]+ × )(\S+)")
"""Pattern for a number of replicas followed by the accelerator."""
FIGURES = re.compile(r"[\d,]+ → [\d,]+")
"""Pattern for a change of numbers, such as `2 → 3`, which stays on one line."""
LOW, HIGH = "#4393c3", "#d6604d"
"""Colours of the levels −1 and 1, which are also told apart in print and by colour-blind readers."""
NO_TINT = 0.4
"""Opacity of the grey behind text without a group."""
Shade = tuple[float, float, float]
"""Colour as red, green and blue, each from 0 to 1."""


def grid_height_mm(panel: GridPanel) -> float:
    """Return the height of a grid panel with its headings [mm]."""
    return _field_mm(_lines(panel)) * len(panel.rows) + 6


def draw_grid(page: Page, panel: GridPanel, top: float, colours: Mapping[str, str]) -> None:
    """Draw a grid panel; its upper edge is at `top` [mm]."""
    left, head, width = _heading_mm(panel), 5.0, _column_mm(panel)
    lines = _lines(panel)
    height = _field_mm(lines)
    headings = fitted_names(panel.columns, width - 2)
    names = fitted_names(panel.rows, left - EDGE_MM - 1, bold=True)
    axes = page.axes(0, top, WIDTH_MM, head + height * len(panel.rows) + 0.5)
    axes.axis("off")
    axes.set_xlim(0, WIDTH_MM)
    axes.set_ylim(head + height * len(panel.rows) + 0.5, 0)
    for c, heading in enumerate(panel.columns):
        page.text(left + width * c + 1, top, headings[heading], color=GREY)
    for r, name in enumerate(panel.rows):
        begin = head + height * r
        middle = top + begin + height / 2
        page.text(EDGE_MM, middle, names[name], va="center", fontweight="bold")
        for c, cell in enumerate(panel.cells[r]):
            if not (cell.text or panel.columns[c]):
                continue  # a list of fields can end early
            colour = colours.get(cell.group)
            shade = _tint(LIGHT, NO_TINT) if colour is None else _tint(colour, TINT)
            if cell.level is not None:
                shade = _tint(LOW if cell.level < 0 else HIGH, min(abs(cell.level), 1.0))
            corner = (left + width * c, begin)
            if cell.share < 1:
                grey = _tint(LIGHT, NO_TINT)
                axes.add_patch(Rectangle(corner, width - 0.8, height - 0.8, facecolor=grey, linewidth=0))
            axes.add_patch(
                Rectangle(corner, cell.share * (width - 0.8), height - 0.8, facecolor=shade, linewidth=0)
            )
            if colour is not None:
                axes.add_patch(Rectangle(corner, STRIPE_MM, height - 0.8, facecolor=colour, linewidth=0))
            text = "\n".join(lines[r][c])
            place = left + width * c + STRIPE_MM + 0.8, top + begin + (height - 0.8) / 2
            page.text(*place, text, va="center", linespacing=1.25)


def _field_mm(lines: Sequence[Sequence[Sequence[str]]]) -> float:
    """Return the height of every field, which is that of the field with the most text [mm]."""
    most = max((len(cell) for row in lines for cell in row), default=1)
    return FIELD_MM + LINE_MM * max(most - 1, 0)


def _heading_mm(panel: GridPanel) -> float:
    """Return the width of the row headings [mm], reduced if the numbers in the fields need the space."""
    figures = {part for row in panel.cells for cell in row for part in FIGURES.findall(cell.text)}
    need = max(map(width_mm, figures), default=0.0) + STRIPE_MM + 2
    left = WIDTH_MM - 2 * EDGE_MM - 1 - need * len(panel.columns)
    wished = widest_mm(panel.rows, *HEADING_MM, bold=True)
    return EDGE_MM + max(min(wished, left), min(wished, HEADING_MM[0])) + 1


def _column_mm(panel: GridPanel) -> float:
    return (WIDTH_MM - _heading_mm(panel) - EDGE_MM) / max(len(panel.columns), 1)


def _lines(panel: GridPanel) -> list[list[list[str]]]:
    """Wrap the texts of the fields into lines that fit a column.

    Numbers are never shortened. Names, which follow a number and a multiplication sign, are shortened if
    needed.
    """
    available = _column_mm(panel) - STRIPE_MM - 2
    texts = {cell.text for row in panel.cells for cell in row}
    beside: dict[str, float] = {}
    for count, name in (found for text in texts for found in COUNTED.findall(text)):
        beside[name] = max(beside.get(name, 0.0), width_mm(count))
    long = sorted(name for name, width in beside.items() if width + width_mm(name) > available)
    short = fitted_names(long, available - max((beside[name] for name in long), default=0.0))
    broken = {}
    for text in texts:
        lines = (" ".join(short.get(word, word) for word in line.split(" ")) for line in text.split("\n"))
        broken[text] = [part for line in lines for part in wrapped(line, available, MAX_LINES)]
    return [[broken[cell.text] for cell in row] for row in panel.cells]


def _tint(colour: str, strength: float) -> Shade:
    """Return a lighter shade of a colour, on which black text is readable."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return 1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue)
