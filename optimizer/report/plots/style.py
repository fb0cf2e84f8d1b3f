"""How pictures look, in one place: sizes, colours, text; and the page they are placed on in millimetres."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

WIDTH_MM = 160.0
"""Of every picture: what a page has room for."""
EDGE_MM = 2.0
MM_PER_INCH = 25.4
TEXT_PT, SMALL_PT = 9.0, 7.5
CHARACTER_MM = 1.45
"""Width of a character of small text, on average."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which people with any colour vision can tell apart; without the yellow, which
is too light for lines."""
GREY, LIGHT = "#6b6b6b", "#d9d9d9"

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

_ONE_AT_A_TIME = threading.Lock()  # the drawing library keeps its settings and fonts for the whole process


@contextmanager
def drawing() -> Iterator[None]:
    """Set the style; characters that the font does not have are boxes, and no reason to warn."""
    with _ONE_AT_A_TIME, mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        yield


class Page:
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


def printable(text: str) -> str:
    """Return text in which what cannot be printed is a question mark."""
    return "".join(c if c.isprintable() else "?" for c in text)


def short(text: str, characters: int) -> str:
    """Return text that fits into so many characters."""
    text = printable(text)
    return text if len(text) <= characters else text[: characters - 1] + "…"
