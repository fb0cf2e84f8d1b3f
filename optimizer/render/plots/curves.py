"""Draws curve panels: lines, steps, points and bars over one quantity, with targets and loads."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from optimizer.quantities import precise
from optimizer.render.plots.style import (
    EDGE_MM,
    GREY,
    INK,
    MM_PER_INCH,
    PLAIN,
    POINTS_PER_INCH,
    SMALL_PT,
    WIDTH_MM,
    Page,
    fitted,
    fitted_names,
    widest_mm,
    width_mm,
)
from optimizer.studies.figures.figure_document import CurvePanel, ReferenceLine, Series

CURVE_MM, STRIP_MM = 46.0, 3.5
LEFT_MM = 17.0
"""Width for the numbers and the label of the vertical axis [mm]."""
LABEL_MM = 7.5
"""Part of `LEFT_MM` for the label, the ticks and the gaps between them [mm]."""
NAMES_MM = (22.0, 44.0)
"""Minimum and maximum width for the names of the series to the right of the axes [mm]."""
SIGN_MM = 6.0
"""Part of `NAMES_MM` for the sign before a name, with gaps [mm]."""
AREA_ALPHA = 0.35
"""Opacity of the area below a line."""
MAX_NAME_MM = 60.0
"""Maximum width for the name of a line across the panel [mm]."""
LEVEL_GAP_MM = 4.0
"""Horizontal space between the names of two levels that are close together [mm]."""
MIN_LABEL_STEP = 0.075
"""Minimum vertical distance between the names of curves, as a fraction of the panel's height."""
FAR = 2.5
"""A level beyond all curves by more than this factor is stated as text instead of drawn."""
MIN_PLAIN_NUMBER = 1e-4
"""Axis numbers below this value are written with a power of ten."""
NUMBERED = ((10, (1, 2, 3, 4, 6)), (1000, (1, 2, 5)), (float("inf"), (1,)))
"""Labels of a logarithmic axis: multiples of powers of ten, by the factor that the axis spans."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
CHOSEN = "o"
DASHES = ("-", "--", "-.", ":")
"""Line styles for several curves of one accelerator type, which have the same colour."""


def curves_height_mm(panel: CurvePanel) -> float:
    """Return the height of a curve panel including its horizontal axis [mm]."""
    return _strip_mm(panel) + CURVE_MM + 10


def draw_curves(page: Page, panel: CurvePanel, top: float, colours: Mapping[str, str]) -> None:
    """Draw a curve panel; its upper edge is at `top` [mm]."""
    named = any(series.name for series in panel.series)
    names_mm = widest_mm((series.name for series in panel.series), *NAMES_MM)
    right = names_mm + SIGN_MM + EDGE_MM if named else 6.0
    axes = page.axes(LEFT_MM, top + _strip_mm(panel), WIDTH_MM - LEFT_MM - right, CURVE_MM)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    far = _far_levels(panel)
    words = "; ".join(f"{guide.name}: far {where}" for guide, where in far.items())
    page.text(WIDTH_MM - EDGE_MM, top - 5, words, ha="right", color=GREY)
    for i, series in enumerate(panel.series):
        _draw_series(axes, panel, i, _colour(series, colours))
    _set_ends(axes, panel, [guide for guide in panel.guides if guide not in far])
    _make_space_for_numbers(axes)
    if named:
        _name_series(axes, panel, colours, names_mm)
    _draw_uprights(axes, [guide for guide in panel.guides if guide.axis == "x"])
    _draw_levels(axes, [guide for guide in panel.guides if guide.axis == "y" and guide not in far])


def _far_levels(panel: CurvePanel) -> dict[ReferenceLine, str]:
    """Return the levels that are too far from the curves to be drawn, with their direction as text.

    Drawing them would squash the curves.
    """
    far_levels = dict[ReferenceLine, str]()
    values = [value for series in panel.series for value in series.y if value is not None]
    for guide in panel.guides:
        if guide.axis == "y" and values and panel.y_most is None:
            if 0 < FAR * max(values) < guide.value:
                far_levels[guide] = "above"
            elif "y" in panel.logarithmic and FAR * guide.value < min(values):
                far_levels[guide] = "below"
    return far_levels


def _strip_mm(panel: CurvePanel) -> float:
    """Return the height of the strip above the axes for the names of vertical lines [mm]."""
    return STRIP_MM if any(guide.axis == "x" for guide in panel.guides) else 0.0


def _set_ends(axes: Axes, panel: CurvePanel, near: Sequence[ReferenceLine]) -> None:
    """Set the ranges of the axes to include all values and the levels in `near`, and write plain numbers."""
    x = _shown([value for series in panel.series for value in series.x], near, "x")
    y = _shown([value for series in panel.series for value in series.y], near, "y")
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
    for name, values in (("x", x), ("y", y)):
        if name in panel.logarithmic and min(values) > 0:
            _set_logarithmic(axes, name, values)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _on_axis(value)))


def _on_axis(value: float) -> str:
    """Return the text of an axis number; small numbers have a power of ten instead of many zeros."""
    return precise(value) if abs(value) >= MIN_PLAIN_NUMBER else f"{value:g}"


def _make_space_for_numbers(axes: Axes) -> None:
    """Move the left edge of the axes if the numbers of the vertical axis are long, so that its label fits."""
    low, high = axes.get_ylim()
    places = [place for place in axes.yaxis.get_major_locator()() if low <= place <= high]
    numbers = axes.yaxis.get_major_formatter().format_ticks(places)
    more = max(max(map(width_mm, numbers), default=0.0) + LABEL_MM - LEFT_MM, 0.0) / WIDTH_MM
    box = axes.get_position()
    axes.set_position((box.x0 + more, box.y0, box.width - more, box.height))


def _set_logarithmic(axes: Axes, name: str, values: Sequence[float]) -> None:
    least, most = min(values), max(values)
    margin = max((most / least) ** 0.08, 1.1)
    axes.set(**{f"{name}scale": "log", f"{name}lim": (least / margin, most * margin)})
    axis = axes.xaxis if name == "x" else axes.yaxis
    numbered = next(subs for times, subs in NUMBERED if most <= times * least)
    axis.set_major_locator(LogLocator(subs=numbered))
    axis.set_minor_formatter(NullFormatter())


def _shown(values: Sequence[float | None], guides: Sequence[ReferenceLine], axis: str) -> list[float]:
    shown = [value for value in values if value is not None]
    return shown + [guide.value for guide in guides if guide.axis == axis] or [0.0, 1.0]


def _colour(series: Series, colours: Mapping[str, str]) -> str:
    return INK if series.style in {"front", "chosen"} else colours.get(series.type, PLAIN)


def _dash(panel: CurvePanel, i: int) -> str:
    """Return the line style of curve `i`; curves of one accelerator type have different styles."""
    series = panel.series[i]
    before = sum(other.type == series.type and other.style == series.style for other in panel.series[:i])
    return DASHES[before % len(DASHES)]


def _draw_series(axes: Axes, panel: CurvePanel, i: int, colour: str) -> None:
    series = panel.series[i]
    points = list(zip(series.x, series.y, strict=True))
    x = [float("nan") if value is None else value for value, _ in points]
    y = [float("nan") if value is None else value for _, value in points]
    if series.style == "bars":
        if len(x) <= 120:
            axes.bar(x, y, width=0.8, color=colour)
        else:
            axes.fill_between(x, y, step="mid", color=colour, linewidth=0)
    elif series.style == "area":
        axes.fill_between(x, y, color=colour, alpha=AREA_ALPHA, linewidth=0)
    elif series.style == "points":
        sign = MARKERS[i % len(MARKERS)]
        axes.plot(x, y, sign, color=colour, markersize=3.2, markeredgewidth=0, zorder=3)  # above the front
    elif series.style == "chosen":
        axes.plot(x, y, CHOSEN, markersize=8, markeredgewidth=1.3, color=colour, fillstyle="none", zorder=4)
    else:
        dash = _dash(panel, i)
        few = "o" if series.style == "line" and len(x) <= 40 else None
        drawn = {"line": "default", "steps": "steps-pre", "front": "steps-post"}[series.style]
        axes.plot(x, y, dash, color=colour, linewidth=1.3, drawstyle=drawn, marker=few, markersize=2.5)


def _name_series(axes: Axes, panel: CurvePanel, colours: Mapping[str, str], names_mm: float) -> None:
    """Write the names of the series to the right without overlap: at the ends of curves, or as a list."""
    bottom, ends = axes.get_ylim()[0], []
    for i, series in enumerate(panel.series):
        last = next((y for y in reversed(series.y) if y is not None), bottom)
        listed = series.style in {"points", "bars", "chosen"} and not _belongs_to_line(panel, i)
        ends.append((1 - i / 8 if listed else min(max(_share(axes, last, "y"), 0.0), 1.0), i))
    ends.sort()
    step = min(MIN_LABEL_STEP, 1.0 / len(ends))
    heights = _apart([share for share, _ in ends], [step] * len(ends))
    names = fitted_names((series.name for series in panel.series), names_mm)
    mm = 1 / (axes.get_position().width * WIDTH_MM)
    for height, (_, i) in zip(heights, ends, strict=True):
        series = panel.series[i]
        style: dict[str, Any] = {"clip_on": False, "transform": axes.transAxes}
        style["color"] = _colour(series, colours)
        if series.style in {"points", "chosen"}:
            sign, size = (CHOSEN, 5.5) if series.style == "chosen" else (MARKERS[i % len(MARKERS)], 3.2)
            hollow = {"fillstyle": "none"} if series.style == "chosen" else {"markeredgewidth": 0}
            axes.plot(1 + 2.5 * mm, height, sign, markersize=size, **hollow, **style)
        elif series.style in {"bars", "area"}:
            alpha = AREA_ALPHA if series.style == "area" else 1.0
            axes.plot(1 + 2.5 * mm, height, "s", markersize=4.5, markeredgewidth=0, alpha=alpha, **style)
        elif series.name:
            dash = _dash(panel, i)
            axes.plot([1 + 0.5 * mm, 1 + 4.5 * mm], [height, height], dash, linewidth=1.3, **style)
        place: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "fontsize": SMALL_PT}
        axes.text(1 + SIGN_MM * mm, height, names[series.name], color=INK, **place)


def _belongs_to_line(panel: CurvePanel, i: int) -> bool:
    """Return whether series `i` has the points of the line before it, so that they share a name."""
    before = panel.series[i - 1] if i else None
    return before is not None and before.style == "line" and before.x == panel.series[i].x


def _share(axes: Axes, value: float, axis: Literal["x", "y"]) -> float:
    """Return the relative position of a value on an axis, from 0 at its start to 1 at its end."""
    point = (value, axes.get_ylim()[0]) if axis == "x" else (axes.get_xlim()[0], value)
    shares = axes.transLimits.transform(axes.transScale.transform(point))
    return float(shares["xy".index(axis)])


def _apart(places: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move labels apart so that they do not overlap and stay between 0 and 1.

    Args:
        places: positions of the labels, in ascending order.
        sizes: heights of the labels.
    """
    moved, end = [], 0.0
    for place, size in zip(places, sizes, strict=True):
        moved.append(max(place, end + size / 2))
        end = moved[-1] + size / 2
    begin = 1.0
    for k in range(len(moved) - 1, -1, -1):
        moved[k] = min(moved[k], begin - sizes[k] / 2)
        begin = moved[k] - sizes[k] / 2
    return moved


def _draw_levels(axes: Axes, guides: Sequence[ReferenceLine]) -> None:
    """Draw horizontal reference lines with names; the names of lines close together are side by side."""
    names = {guide: fitted(guide.name, MAX_NAME_MM) for guide in guides}
    begin_mm, below = dict[ReferenceLine, float](), None
    for guide in sorted(guides, key=lambda guide: guide.value):
        begin_mm[guide] = 0.0
        if below and _share(axes, guide.value, "y") - _share(axes, below.value, "y") < MIN_LABEL_STEP:
            begin_mm[guide] = begin_mm[below] + width_mm(names[below]) + LEVEL_GAP_MM
        below = guide
    for guide, name in names.items():
        axes.axhline(guide.value, color=INK, linewidth=0.9, linestyle=(0, (5, 2)))
        begin_pt = 3 + begin_mm[guide] * POINTS_PER_INCH / MM_PER_INCH
        axes.annotate(
            name, (0.0, guide.value), (begin_pt, 2), xycoords=("axes fraction", "data"),
            textcoords="offset points", color=INK, va="bottom", ha="left", fontsize=SMALL_PT,
            bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip


def _draw_uprights(axes: Axes, guides: Sequence[ReferenceLine]) -> None:
    """Draw vertical reference lines with their names above them, side by side."""
    guides = sorted(guides, key=lambda guide: guide.value)
    places = [_share(axes, guide.value, "x") for guide in guides]
    names = [fitted(guide.name, MAX_NAME_MM) for guide in guides]
    axes_mm = axes.get_position().width * WIDTH_MM
    middles = _apart(places, [(width_mm(name) + 3) / axes_mm for name in names])
    for guide, name, middle in zip(guides, names, middles, strict=True):
        axes.axvline(guide.value, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.5)))
        axes.annotate(
            name, (middle, 1.0), (0, 2), xycoords="axes fraction", textcoords="offset points",
            color=GREY, va="bottom", ha="center", fontsize=SMALL_PT,
        )  # fmt: skip
