"""Draws figures: one style, one width for print and screen, and no state between two of them.

Takes a `Figure` (what is to be seen), gives the bytes of an SVG, PNG or PDF file, the same for the same
figure. Everything is placed in millimetres. Names are drawn as they are: never as formulas, and with what
cannot be printed shown as a question mark.
"""

import io
import itertools
import textwrap
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from optimizer.study.figure import Bar, BarPanel, CurvePanel, Figure, GridPanel, Guide, Series

Format = Literal["svg", "png", "pdf"]

WIDTH_MM = 160.0
MM_PER_INCH = 25.4
PNG_DPI = 200
TEXT_PT, SMALL_PT = 9.0, 7.5
EDGE_MM = 2.0
HEAD_MM, NOTE_MM, PANEL_GAP_MM = 7.0, 3.8, 7.0
CURVE_MM, STRIP_MM, ROW_MM, FIELD_MM, LINE_MM = 46.0, 3.5, 3.7, 6.0, 3.2
HEADING_MM = 34.0
"""Room for the headings of the rows of a grid."""
NOTE_CHARACTERS = 112
CHARACTER_MM = 1.45
"""Width of a character of small text, on average."""
LEAST_LABEL_STEP = 0.075
"""Distance of labels beside curves, as a share of the panel's height."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which people with any colour vision can tell apart; without the yellow, which
is too light for lines."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY, LIGHT = "#6b6b6b", "#d9d9d9"
SPACIOUS_COLUMNS = 3
"""Up to so many columns of bars there is room for the number of a mark beside that of its bar."""
TINT = 0.28
"""Strength of a colour behind text."""

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": TEXT_PT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.labelsize": SMALL_PT,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.formatter.useoffset": False,
    "axes.unicode_minus": True,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "inferplan",
    "pdf.fonttype": 42,
}
METADATA = {
    "svg": {"Date": None, "Creator": "inferplan"},
    "png": {"Software": "inferplan"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "inferplan", "Producer": "inferplan"},
}

_ONE_AT_A_TIME = threading.Lock()  # the drawing library keeps its settings and fonts for the whole process


def draw(figure: Figure, file_format: Format) -> bytes:
    """Return a figure as a file; `file_format` is svg, png or pdf."""
    with _drawing():
        canvas = _drawn(figure)
        target = io.BytesIO()
        canvas.savefig(target, format=file_format, dpi=PNG_DPI, metadata=METADATA[file_format])
    return target.getvalue()


@contextmanager
def _drawing() -> Iterator[None]:
    """Set the style; characters that the font does not have are boxes, and no reason to warn."""
    with _ONE_AT_A_TIME, mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        yield


class _Page:
    """A page on which things are placed in millimetres from the upper left corner."""

    def __init__(self, height_mm: float) -> None:
        self.height_mm = height_mm
        self.canvas = Canvas(figsize=(WIDTH_MM / MM_PER_INCH, height_mm / MM_PER_INCH), facecolor="white")
        FigureCanvasAgg(self.canvas)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Return axes with the given place and size."""
        box = (
            left / WIDTH_MM,
            1 - (top + height) / self.height_mm,
            width / WIDTH_MM,
            height / self.height_mm,
        )
        return self.canvas.add_axes(box)

    def text(self, left: float, top: float, text: str, **style: Any) -> None:
        """Write text whose upper left corner is at the given place."""
        plain: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": SMALL_PT}
        self.canvas.text(left / WIDTH_MM, 1 - top / self.height_mm, text, **(plain | style))


def _drawn(figure: Figure) -> Canvas:
    note = textwrap.wrap(printable(figure.note), NOTE_CHARACTERS)
    title_mm = HEAD_MM if figure.title else 1.0
    head = EDGE_MM + title_mm + NOTE_MM * len(note)
    heights = [_height_mm(panel) for panel in figure.panels]
    page = _Page(head + sum(heights) + PANEL_GAP_MM * len(heights) + EDGE_MM)
    page.text(EDGE_MM, EDGE_MM, _short(figure.title, 80), fontsize=TEXT_PT + 1.5, fontweight="bold")
    for i, line in enumerate(note):
        page.text(EDGE_MM, EDGE_MM + title_mm - 1 + NOTE_MM * i, line, color=GREY)
    top = head + PANEL_GAP_MM
    for panel, height in zip(figure.panels, heights, strict=True):
        page.text(EDGE_MM, top - 5, _short(panel.title, 95), fontsize=TEXT_PT, fontweight="bold")
        if isinstance(panel, CurvePanel):
            _draw_curves(page, panel, top)
        elif isinstance(panel, GridPanel):
            _draw_grid(page, panel, top)
        elif panel.bars:
            _draw_bars(page, panel, top)
        top += height + PANEL_GAP_MM
    return page.canvas


def _height_mm(panel: CurvePanel | BarPanel | GridPanel) -> float:
    if isinstance(panel, CurvePanel):
        return _strip_mm(panel) + CURVE_MM + 10
    if isinstance(panel, BarPanel):
        return ROW_MM * (len(panel.bars) + _gaps(panel.bars)) + 8
    return _field_mm(panel) * len(panel.rows) + 6


# --- curves --------------------------------------------------------------------------------------------


def _strip_mm(panel: CurvePanel) -> float:
    """Return the height of the strip above the axes that has the names of the upright lines."""
    return STRIP_MM if any(guide.axis == "x" for guide in panel.guides) else 0.0


def _draw_curves(page: _Page, panel: CurvePanel, top: float) -> None:
    named = any(series.name for series in panel.series)
    left, right = 17.0, 30.0 if named else 6.0
    axes = page.axes(left, top + _strip_mm(panel), WIDTH_MM - left - right, CURVE_MM)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    for i, series in enumerate(panel.series):
        _draw_series(axes, series, i)
    _set_ends(axes, panel)
    if named:
        _name_series(axes, panel)
    _draw_uprights(axes, [guide for guide in panel.guides if guide.axis == "x"])
    for guide in panel.guides:
        if guide.axis == "y":
            _draw_level(axes, guide)


def _set_ends(axes: Axes, panel: CurvePanel) -> None:
    """Begin and end the axes so that all values and lines are on them, and number them plainly."""
    x = _shown([value for series in panel.series for value in series.x], panel.guides, "x")
    y = _shown([value for series in panel.series for value in series.y], panel.guides, "y")
    least, most = min(x), max(x)
    if least == most or any(series.style == "bars" for series in panel.series):
        axes.set_xlim(least - 0.6, most + 0.6)
    elif 0 <= least <= 0.3 * most:
        axes.set_xlim(0, most + 0.02 * (most - least))
    else:
        axes.set_xlim(least - 0.03 * (most - least), most + 0.02 * (most - least))
    axes.set_ylim(min(*y, 0.0), panel.y_most or max(y) * 1.08 or 1.0)
    if all(value.is_integer() for series in panel.series for value in series.x if value is not None):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _shown(values: Sequence[float | None], guides: Sequence[Guide], axis: str) -> list[float]:
    shown = [value for value in values if value is not None]
    return shown + [guide.value for guide in guides if guide.axis == axis] or [0.0, 1.0]


def _draw_series(axes: Axes, series: Series, i: int) -> None:
    colour, points = COLOURS[i % len(COLOURS)], list(zip(series.x, series.y, strict=True))
    x = [float("nan") if value is None else value for value, _ in points]
    y = [float("nan") if value is None else value for _, value in points]
    dash = "-" if i < len(COLOURS) else "--"
    if series.style == "bars":
        if len(x) <= 120:
            axes.bar(x, y, width=0.8, color=colour)
        else:
            axes.fill_between(x, y, step="mid", color=colour, linewidth=0)
    elif series.style == "points":
        axes.plot(x, y, MARKERS[i % len(MARKERS)], color=colour, markersize=3.2, markeredgewidth=0)
    else:
        few = "o" if series.style == "line" and len(x) <= 40 else None
        drawn = {"line": "default", "steps": "steps-pre", "front": "steps-post"}[series.style]
        axes.plot(x, y, dash, color=colour, linewidth=1.3, drawstyle=drawn, marker=few, markersize=2.5)


def _name_series(axes: Axes, panel: CurvePanel) -> None:
    """Write the names at the right: where each curve ends, or as a list with their signs; not too close."""
    bottom, top = axes.get_ylim()
    ends = []
    for i, series in enumerate(panel.series):
        last = next((y for y in reversed(series.y) if y is not None), bottom)
        listed = series.style in {"points", "bars"}
        ends.append((1 - i / 8 if listed else min(max((last - bottom) / (top - bottom), 0.0), 1.0), i))
    ends.sort()
    step = min(LEAST_LABEL_STEP, 1.0 / len(ends))
    heights = _apart([share for share, _ in ends], [step] * len(ends))
    for height, (_, i) in zip(heights, ends, strict=True):
        series, colour = panel.series[i], COLOURS[i % len(COLOURS)]
        axes.text(
            1.03, height, _short(series.name, 16), color=colour, va="center", fontsize=SMALL_PT,
            transform=axes.transAxes,
        )  # fmt: skip
        if series.style == "points":
            axes.plot(
                1.015, height, MARKERS[i % len(MARKERS)], color=colour, markersize=3.2, markeredgewidth=0,
                transform=axes.transAxes, clip_on=False,
            )  # fmt: skip


def _apart(places: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move the middles of labels, in ascending order, apart, and onto the stretch from 0 to 1."""
    moved, end = [], 0.0
    for place, size in zip(places, sizes, strict=True):
        moved.append(max(place, end + size / 2))
        end = moved[-1] + size / 2
    begin = 1.0
    for k in range(len(moved) - 1, -1, -1):
        moved[k] = min(moved[k], begin - sizes[k] / 2)
        begin = moved[k] - sizes[k] / 2
    return moved


def _draw_level(axes: Axes, guide: Guide) -> None:
    axes.axhline(guide.value, color=COLOURS[1], linewidth=0.9, linestyle=(0, (5, 2)))
    axes.annotate(
        _short(guide.name, 40), (0.0, guide.value), (3, 2), xycoords=("axes fraction", "data"),
        textcoords="offset points", color=COLOURS[1], va="bottom", ha="left", fontsize=SMALL_PT,
    )  # fmt: skip


def _draw_uprights(axes: Axes, guides: Sequence[Guide]) -> None:
    """Draw upright lines with their names above them, side by side."""
    left, right = axes.get_xlim()
    guides = sorted(guides, key=lambda guide: guide.value)
    places = [(guide.value - left) / (right - left) for guide in guides]
    names = [_short(guide.name, 40) for guide in guides]
    width_mm = axes.get_position().width * WIDTH_MM
    middles = _apart(places, [(len(name) + 2) * CHARACTER_MM / width_mm for name in names])
    for guide, name, middle in zip(guides, names, middles, strict=True):
        axes.axvline(guide.value, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.5)))
        axes.annotate(
            name, (middle, 1.0), (0, 2), xycoords="axes fraction", textcoords="offset points",
            color=GREY, va="bottom", ha="center", fontsize=SMALL_PT,
        )  # fmt: skip


# --- bars ----------------------------------------------------------------------------------------------


def _gaps(bars: Sequence[Bar]) -> float:
    """Return the room between groups, in rows."""
    return 0.6 * sum(a.group != b.group for a, b in itertools.pairwise(bars))


def _rows(bars: Sequence[Bar]) -> list[float]:
    """Return the place of each row, from above, in rows."""
    return [i + _gaps(bars[: i + 1]) for i in range(len(bars))]


def _draw_bars(page: _Page, panel: BarPanel, top: float) -> None:
    rows, grouped = _rows(panel.bars), any(bar.group for bar in panel.bars)
    left = 46.0 if grouped else 24.0
    names = list(dict.fromkeys(bar.name for bar in panel.bars))
    spacious = len(panel.columns) <= SPACIOUS_COLUMNS
    width = (WIDTH_MM - left - EDGE_MM) / len(panel.columns)
    head = 6.5
    for i, (bar, row) in enumerate(zip(panel.bars, rows, strict=True)):
        middle = top + head + ROW_MM * (row + 0.5)
        if grouped and (i == 0 or panel.bars[i - 1].group != bar.group):
            page.text(EDGE_MM, middle, _short(bar.group, 16), va="center", fontweight="bold")
        page.text(28.0 if grouped else EDGE_MM, middle, _short(bar.name, 12 if grouped else 14), va="center")
    for c, heading in enumerate(panel.columns):
        begin = left + width * c
        page.text(begin, top + head, heading, va="bottom", color=GREY, linespacing=1.1)
        axes = page.axes(begin, top + head, width - 2, ROW_MM * (rows[-1] + 1))
        _draw_column(axes, panel.bars, rows, c, names if grouped else [], spacious=spacious)
    if panel.mark:
        sign = "tick and (number)" if spacious else "tick"
        page.text(WIDTH_MM - EDGE_MM, top - 5, f"{sign}: {panel.mark}", ha="right", color=GREY)


def _draw_column(
    axes: Axes, bars: Sequence[Bar], rows: Sequence[float], c: int, names: list[str], *, spacious: bool
) -> None:
    axes.axis("off")
    axes.set_ylim(rows[-1] + 0.5, -0.5)
    values = [bar.values[c] for bar in bars]
    marks = [bar.marks[c] if bar.marks else None for bar in bars]
    labels = [_label(value, mark if spacious else None) for value, mark in zip(values, marks, strict=True)]
    most = max((value for value in (*values, *marks) if value is not None), default=0.0) or 1.0
    room = max(len(label) for label in labels) * CHARACTER_MM / (axes.get_position().width * WIDTH_MM)
    axes.set_xlim(0, most / max(0.98 - room, 0.25))
    axes.plot([0, 0], [-0.5, rows[-1] + 0.5], color=LIGHT, linewidth=0.6, clip_on=False)
    for bar, row, value, mark, label in zip(bars, rows, values, marks, labels, strict=True):
        few = len(names) <= len(COLOURS)
        colour = COLOURS[names.index(bar.name)] if names and few else COLOURS[0]
        if value:
            axes.barh(row, value, height=0.72, color=colour, linewidth=0)
        if mark is not None:
            axes.plot([mark, mark], [row - 0.45, row + 0.45], color="black", linewidth=1.1)
        end = max(value or 0.0, mark or 0.0)
        axes.annotate(
            label, (end, row), (2, 0), textcoords="offset points", va="center", fontsize=SMALL_PT - 0.5
        )


def _label(value: float | None, mark: float | None) -> str:
    if value is None:
        return "–" if mark is None else f"– ({_number(mark)})"
    if mark is None or _number(mark) == _number(value):
        return _number(value)
    return f"{_number(value)} ({_number(mark)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# --- grids ---------------------------------------------------------------------------------------------


def _field_mm(panel: GridPanel) -> float:
    """Return the height of the fields: all have room for the text of the fullest."""
    lines = max((len(_lines(cell.text, panel)) for row in panel.cells for cell in row), default=1)
    return FIELD_MM + LINE_MM * max(lines - 1, 0)


def _column_mm(panel: GridPanel) -> float:
    return (WIDTH_MM - HEADING_MM - EDGE_MM) / max(len(panel.columns), 1)


def _lines(text: str, panel: GridPanel) -> list[str]:
    """Break the text of a field into lines that fit its column; figures stay with their signs."""
    fit = max(int((_column_mm(panel) - 1.5) / CHARACTER_MM), 4)
    lines = [
        printable(line).replace(" × ", "\xa0×\xa0").replace(" → ", "\xa0→\xa0") for line in text.split("\n")
    ]
    return [
        _short(part.replace("\xa0", " "), fit)
        for line in lines
        for part in textwrap.wrap(line, fit, max_lines=2, placeholder=" …", break_long_words=False)
    ]


def _draw_grid(page: _Page, panel: GridPanel, top: float) -> None:
    left, head, height, width = HEADING_MM, 5.0, _field_mm(panel), _column_mm(panel)
    groups = _by_use([cell.group for row in panel.cells for cell in row if cell.group])
    axes = page.axes(0, top, WIDTH_MM, head + height * len(panel.rows) + 0.5)
    axes.axis("off")
    axes.set_xlim(0, WIDTH_MM)
    axes.set_ylim(head + height * len(panel.rows) + 0.5, 0)
    for c, heading in enumerate(panel.columns):
        page.text(left + width * c + 1, top, _lines(heading, panel)[0] if heading else "", color=GREY)
    for r, name in enumerate(panel.rows):
        begin = head + height * r
        page.text(EDGE_MM, top + begin + height / 2, _short(name, 20), va="center", fontweight="bold")
        for c, cell in enumerate(panel.cells[r]):
            colour = _tint(groups.get(cell.group))
            axes.add_patch(
                Rectangle((left + width * c, begin), width - 0.8, height - 0.8, facecolor=colour, linewidth=0)
            )
            text = "\n".join(_lines(cell.text, panel))
            place = left + width * c + 1, top + begin + (height - 0.8) / 2
            page.text(*place, text, va="center", linespacing=1.25)


def _by_use(groups: Sequence[str]) -> dict[str, str]:
    """Return a colour for each group, as far as there are colours, the most frequent first."""
    order = sorted(dict.fromkeys(groups), key=lambda name: (-groups.count(name), name))
    return dict(zip(order, COLOURS, strict=False))


def _tint(colour: str | None) -> tuple[float, float, float]:
    """Return a colour that black text can be read on; light grey where there is none."""
    red, green, blue = mpl.colors.to_rgb(colour or LIGHT)
    strength = TINT if colour else 0.4
    return 1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue)


# --- text ----------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Return text in which what cannot be printed is a question mark."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _short(text: str, characters: int) -> str:
    """Return text that fits into so many characters."""
    text = printable(text)
    return text if len(text) <= characters else text[: characters - 1] + "…"
