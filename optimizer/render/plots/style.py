"""Style of all figures: sizes, colours, text, and a page measured in millimetres."""

import re
import string
import threading
import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextToPath

from optimizer.render.names import GAP, shortened
from optimizer.text import printable

WIDTH_MM = 160.0
"""Width of every figure, which fits on a page [mm]."""
EDGE_MM = 2.0
MM_PER_INCH = 25.4
TEXT_PT, SMALL_PT = 9.0, 7.5
FONT = "DejaVu Sans"
HINTING = 1.02
"""Factor on text widths, because characters in PNG files are placed at integer pixels."""
POINTS_PER_INCH = 72

PLAIN = "#4d5d6b"
"""Colour of items without an accelerator type."""
INK = "#000000"
"""Colour of reference lines, Pareto fronts, marks and names."""
GREY, LIGHT = "#595959", "#d9d9d9"

STYLE: dict[Any, Any] = {
    "font.family": [FONT, "sans-serif"],
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

_ONE_AT_A_TIME = threading.Lock()  # the drawing library keeps its settings and fonts for the whole process


@contextmanager
def drawing() -> Iterator[None]:
    """Context that applies the style; characters missing in the font are drawn as boxes, without warnings."""
    with _ONE_AT_A_TIME, mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        yield


class Page:
    """A drawing page; positions are in millimetres from its upper left corner."""

    def __init__(self, height_mm: float) -> None:
        self.height_mm = height_mm
        self.canvas = Canvas(figsize=(WIDTH_MM / MM_PER_INCH, height_mm / MM_PER_INCH), facecolor="white")
        FigureCanvasAgg(self.canvas)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Return axes on the page at the given position and size [mm]."""
        box = (
            left / WIDTH_MM,
            1 - (top + height) / self.height_mm,
            width / WIDTH_MM,
            height / self.height_mm,
        )
        return self.canvas.add_axes(box)

    def square(self, left: float, middle: float, colour: str) -> None:
        """Draw a small square, given its left edge and vertical middle [mm]."""
        side = 2.2
        box = (left / WIDTH_MM, 1 - (middle + side / 2) / self.height_mm)
        self.canvas.add_artist(
            Rectangle(box, side / WIDTH_MM, side / self.height_mm, facecolor=colour, linewidth=0)
        )

    def text(self, left: float, top: float, text: str, **style: Any) -> None:
        """Write text, given its upper left corner [mm]."""
        plain: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": SMALL_PT}
        self.canvas.text(left / WIDTH_MM, 1 - top / self.height_mm, text, **(plain | style))


@lru_cache(maxsize=4096)
def width_mm(text: str, size_pt: float = SMALL_PT, *, bold: bool = False) -> float:
    """Return the drawn width of a line of text [mm].

    East Asian characters, which the font lacks, count as squares.
    """
    font = FontProperties(family=FONT, weight="bold" if bold else "normal", size=size_pt)
    square = sum(unicodedata.east_asian_width(c) in "FW" for c in text)
    narrow = "".join(c for c in text if unicodedata.east_asian_width(c) not in "FW")
    points = TextToPath().get_text_width_height_descent(narrow, font, ismath=False)[0] if narrow else 0.0
    return HINTING * float(points + square * size_pt) * MM_PER_INCH / POINTS_PER_INCH


def fitted(text: str, width_limit_mm: float, size_pt: float = SMALL_PT, *, bold: bool = False) -> str:
    """Return text that fits a width [mm]; if it is too long, its middle is omitted."""
    return fitted_names((text,), width_limit_mm, size_pt, bold=bold)[text]


def fitted_names(
    names: Iterable[str], width_limit_mm: float, size_pt: float = SMALL_PT, *, bold: bool = False
) -> dict[str, str]:
    """Return a displayed form of each name that fits a width [mm].

    Middles are omitted, and all forms differ.
    """
    plain = {name: printable(name) for name in names}
    signs = {sign for text in plain.values() for sign in text} | {*GAP, *string.digits}
    advance = {sign: _advance_mm(sign, size_pt, bold=bold) for sign in sorted(signs)}
    short = shortened(plain.values(), width_limit_mm, lambda text: sum(map(advance.__getitem__, text)))
    return {name: short[text] for name, text in plain.items()}


@lru_cache(maxsize=4096)
def _advance_mm(sign: str, size_pt: float, *, bold: bool) -> float:
    """Return the width that one more copy of a character adds to a line [mm]."""
    ends, nine = (width_mm(text, size_pt, bold=bold) for text in ("||", f"|{sign * 9}|"))
    return (nine - ends) / 9


def widest_mm(names: Iterable[str], least_mm: float, most_mm: float, *, bold: bool = False) -> float:
    """Return the drawn width of the widest name, limited to the range from `least_mm` to `most_mm` [mm]."""
    return min(max([least_mm, *(width_mm(printable(name), bold=bold) + 1 for name in names)]), most_mm)


def wrapped(
    text: str, width_limit_mm: float, most_lines: int, size_pt: float = SMALL_PT, *, bold: bool = False
) -> list[str]:
    """Wrap text at spaces into lines that fit a width [mm]; text beyond the last line is cut off.

    No line ends before or after × and →, so numbers stay with their signs.
    """
    lines: list[str] = []
    for word in re.split("(?<![×→]) (?![×→])", printable(text)):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and (len(lines) == most_lines or width_mm(longer, size_pt, bold=bold) <= width_limit_mm):
            lines[-1] = longer
        else:
            lines.append(word)
    return [fitted(line, width_limit_mm, size_pt, bold=bold) for line in lines]
