"""Draws figures in one style and in one width for print and screen.

A `Figure` becomes the bytes of an SVG, PNG or PDF file; equal figures give equal bytes. Names are drawn
literally, never as formulas; unprintable characters become question marks.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from matplotlib.figure import Figure as Canvas

from optimizer.errors import SpecError
from optimizer.render.colours import type_colours
from optimizer.render.plots.bars import bars_height_mm, draw_bars
from optimizer.render.plots.curves import curves_height_mm, draw_curves
from optimizer.render.plots.grids import draw_grid, grid_height_mm
from optimizer.render.plots.style import (
    EDGE_MM,
    GREY,
    TEXT_PT,
    WIDTH_MM,
    Page,
    drawing,
    fitted,
    fitted_names,
    width_mm,
    wrapped,
)
from optimizer.studies.figures.figure_document import BarPanel, CurvePanel, Figure, GridPanel

Format = Literal["svg", "png", "pdf"]

PNG_DPI = 200
HEAD_MM, TITLE_MM, NOTE_MM, PANEL_GAP_MM = 7.0, 4.8, 3.8, 7.0
MAX_TITLE_LINES, MAX_NOTE_LINES = 3, 6
LEGEND_MM, LEGEND_NAME_MM, LEGEND_GAP_MM, LEGEND_FOOT_MM = 4.0, 52.0, 7.0, 1.5
TITLE_PT = TEXT_PT + 1.5
METADATA = {
    "svg": {"Date": None, "Creator": "inferplan"},
    "png": {"Software": "inferplan"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "inferplan", "Producer": "inferplan"},
}


def draw(figure: Figure, file_format: Format) -> bytes:
    """Draw a figure and return the bytes of the file; `file_format` is svg, png or pdf.

    Raises:
        SpecError: the format is another one.
    """
    if file_format not in METADATA:
        raise SpecError(f"draw: file_format must be {', '.join(METADATA)}, not {file_format!r}")
    with drawing():
        canvas = _drawn(figure)
        target = io.BytesIO()
        canvas.savefig(target, format=file_format, dpi=PNG_DPI, metadata=METADATA[file_format])
    return target.getvalue()


def _drawn(figure: Figure) -> Canvas:
    width = WIDTH_MM - 2 * EDGE_MM
    title = wrapped(figure.title, width, MAX_TITLE_LINES, TITLE_PT, bold=True) if figure.title else []
    note = wrapped(figure.note, width, MAX_NOTE_LINES) if figure.note else []
    colours = type_colours(figure.types or _types(figure))
    title_mm = HEAD_MM + TITLE_MM * (len(title) - 1) if title else 1.0
    legend = _legend(figure, colours)
    legend_mm = LEGEND_MM * len(legend) + LEGEND_FOOT_MM if legend else 0.0
    head = EDGE_MM + title_mm + NOTE_MM * len(note) + legend_mm
    heights = [_PANELS[type(panel)][0](panel) for panel in figure.panels]
    page = Page(head + sum(heights) + PANEL_GAP_MM * len(heights) + EDGE_MM)
    for i, line in enumerate(title):
        page.text(EDGE_MM, EDGE_MM + TITLE_MM * i, line, fontsize=TITLE_PT, fontweight="bold")
    for i, line in enumerate(note):
        page.text(EDGE_MM, EDGE_MM + title_mm - 1 + NOTE_MM * i, line, color=GREY)
    for i, row in enumerate(legend):
        _draw_legend(page, row, colours, head - LEGEND_FOOT_MM - LEGEND_MM * (len(legend) - i - 0.5))
    top = head + PANEL_GAP_MM
    for panel, height in zip(figure.panels, heights, strict=True):
        heading = fitted(panel.title, width, TEXT_PT, bold=True)
        page.text(EDGE_MM, top - 5, heading, fontsize=TEXT_PT, fontweight="bold")
        _PANELS[type(panel)][1](page, panel, top, colours)
        top += height + PANEL_GAP_MM
    return page.canvas


_PANELS: dict[type, tuple[Callable[..., float], Callable[..., None]]] = {
    CurvePanel: (curves_height_mm, draw_curves),
    BarPanel: (bars_height_mm, draw_bars),
    GridPanel: (grid_height_mm, draw_grid),
}
"""Functions that return the height of a panel [mm], and that draw it, by type of panel."""


def _types(figure: Figure) -> tuple[str, ...]:
    """Return the accelerator types that the figure lists, or else those that its panels name."""
    named = [group for panel in figure.panels if isinstance(panel, GridPanel) for group in panel.groups]
    return tuple(dict.fromkeys([*named, *_coloured(figure)]))


def _coloured(figure: Figure) -> list[str]:
    """Return the accelerator types that appear only as colours, so that the legend must name them."""
    types = list[str]()
    for panel in figure.panels:
        if isinstance(panel, GridPanel):
            types += [cell.group for row in panel.cells for cell in row]
        elif isinstance(panel, BarPanel):
            types += [bar.type for bar in panel.bars if bar.type != bar.name]
    return [name for name in dict.fromkeys(types) if name]


def _legend(figure: Figure, colours: Mapping[str, str]) -> list[list[tuple[str, str]]]:
    """Return the entries of the colour legend, in rows that fit the width.

    Each entry has the name of an accelerator type and its colour.
    """
    shown = set(_coloured(figure))
    names = fitted_names([name for name in colours if name in shown], LEGEND_NAME_MM)
    rows, left = list[list[tuple[str, str]]](), 0.0
    for item in names.items():
        need = width_mm(item[1]) + LEGEND_GAP_MM
        if need > left:
            rows.append([])
            left = WIDTH_MM - 2 * EDGE_MM
        rows[-1].append(item)
        left -= need
    return rows


def _draw_legend(
    page: Page, row: Sequence[tuple[str, str]], colours: Mapping[str, str], middle: float
) -> None:
    left = EDGE_MM
    for name, short in row:
        page.square(left, middle, colours[name])
        page.text(left + 3, middle, short, va="center_baseline")
        left += width_mm(short) + LEGEND_GAP_MM
