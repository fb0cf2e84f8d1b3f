"""Draws figures: one style, one width for print and screen, and no state between two of them.

Takes a `Figure` (what is to be seen), gives the bytes of an SVG, PNG or PDF file, the same for the same
figure. Names are drawn as they are: never as formulas, and with what cannot be printed shown as a question
mark.
"""

import io
from typing import Literal

from matplotlib.figure import Figure as Canvas

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
    wrapped,
)
from optimizer.studies.figures.document import BarPanel, CurvePanel, Figure, GridPanel

Format = Literal["svg", "png", "pdf"]

PNG_DPI = 200
HEAD_MM, NOTE_MM, PANEL_GAP_MM = 7.0, 3.8, 7.0
MOST_NOTE_LINES = 6
TITLE_PT = TEXT_PT + 1.5
METADATA = {
    "svg": {"Date": None, "Creator": "inferplan"},
    "png": {"Software": "inferplan"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "inferplan", "Producer": "inferplan"},
}


def draw(figure: Figure, file_format: Format) -> bytes:
    """Return a figure as a file; `file_format` is svg, png or pdf."""
    with drawing():
        canvas = _drawn(figure)
        target = io.BytesIO()
        canvas.savefig(target, format=file_format, dpi=PNG_DPI, metadata=METADATA[file_format])
    return target.getvalue()


def _drawn(figure: Figure) -> Canvas:
    width = WIDTH_MM - 2 * EDGE_MM
    note = wrapped(figure.note, width, MOST_NOTE_LINES) if figure.note else []
    title_mm = HEAD_MM if figure.title else 1.0
    head = EDGE_MM + title_mm + NOTE_MM * len(note)
    heights = [_height_mm(panel) for panel in figure.panels]
    page = Page(head + sum(heights) + PANEL_GAP_MM * len(heights) + EDGE_MM)
    title = fitted(figure.title, width, TITLE_PT, bold=True)
    page.text(EDGE_MM, EDGE_MM, title, fontsize=TITLE_PT, fontweight="bold")
    for i, line in enumerate(note):
        page.text(EDGE_MM, EDGE_MM + title_mm - 1 + NOTE_MM * i, line, color=GREY)
    top = head + PANEL_GAP_MM
    for panel, height in zip(figure.panels, heights, strict=True):
        title = fitted(panel.title, width, TEXT_PT, bold=True)
        page.text(EDGE_MM, top - 5, title, fontsize=TEXT_PT, fontweight="bold")
        if isinstance(panel, CurvePanel):
            draw_curves(page, panel, top)
        elif isinstance(panel, GridPanel):
            draw_grid(page, panel, top)
        elif panel.bars:
            draw_bars(page, panel, top)
        top += height + PANEL_GAP_MM
    return page.canvas


def _height_mm(panel: CurvePanel | BarPanel | GridPanel) -> float:
    if isinstance(panel, CurvePanel):
        return curves_height_mm(panel)
    return bars_height_mm(panel) if isinstance(panel, BarPanel) else grid_height_mm(panel)
