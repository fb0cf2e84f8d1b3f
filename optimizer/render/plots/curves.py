"""Draws curve panels: lines, steps, points and bars over one quantity, with targets and loads."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from optimizer.quantities import precise
from optimizer.render.colours import COLOURS, shade
from optimizer.render.plots.style import (
    EDGE_MM,
    GREY,
    INK,
    PLAIN,
    SMALL_PT,
    WIDTH_MM,
    Page,
    fitted,
    fitted_names,
    widest_mm,
    width_mm,
)
from optimizer.studies.figures.figure_document import CurvePanel, ReferenceLine

CURVE_MM, STRIP_MM = 46.0, 3.5
LEFT_MM = 17.0
"""Width for the numbers and the label of the vertical axis [mm]."""
LABEL_MM = 7.5
"""Part of `LEFT_MM` for the label, the ticks and the gaps between them [mm]."""
NAMES_MM = (22.0, 50.0)
"""Minimum and maximum width for the names of curves and levels to the right of the axes [mm]."""
SIGN_MM = 6.0
"""Part of `NAMES_MM` for the sign before a name, with gaps [mm]."""
AREA_ALPHA = 0.35
"""Opacity of the area below a line."""
MAX_NAME_MM = 60.0
"""Maximum width for the name of a line across the panel [mm]."""
MIN_LABEL_STEP = 0.075
"""Minimum vertical distance between the names of curves, as a fraction of the panel's height."""
FAR = 2.5
"""A level beyond all curves by more than this factor is stated as text instead of drawn."""
MIN_PLAIN_NUMBER = 1e-4
"""Axis numbers below this value are written with a power of ten."""
NUMBERED = ((10, (1, 2, 3, 4, 6)), (1000, (1, 2, 5)), (float("inf"), (1,)))
"""Labels of a logarithmic axis: multiples of powers of ten, by the factor that the axis spans."""
MIN_NUMBERS, MAX_NUMBERS = 3, 5
"""Minimum number of labels of a logarithmic axis; with fewer it gets round ones, up to the maximum number."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEVEL_DASH = (0, (5, 2))
DASHES = ("-", "--", "-.", ":")
"""Line styles for several curves of one accelerator type, which have shades of one colour."""


def curves_height_mm(panel: CurvePanel) -> float:
    """Return the height of a curve panel including its horizontal axis [mm]."""
    return _strip_mm(panel) + CURVE_MM + 10


def draw_curves(page: Page, panel: CurvePanel, top: float, colours: Mapping[str, str]) -> None:
    """Draw a curve panel; its upper edge is at `top` [mm]."""
    far = _far_levels(panel)
    levels = [guide for guide in panel.guides if guide.axis == "y" and guide not in far]
    names = [*(series.name for series in panel.series), *(guide.name for guide in levels)]
    names_mm = widest_mm(names, *NAMES_MM)
    right = names_mm + SIGN_MM + EDGE_MM if any(names) else 6.0
    axes = page.axes(LEFT_MM, top + _strip_mm(panel), WIDTH_MM - LEFT_MM - right, CURVE_MM)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    words = "; ".join(f"{guide.name}: far {where}" for guide, where in far.items())
    page.text(WIDTH_MM - EDGE_MM, top - 5, words, ha="right", color=GREY)
    shades = _colours(panel, colours)
    for i, shade_of_series in enumerate(shades):
        _draw_series(axes, panel, i, shade_of_series)
    _set_ends(axes, panel, [guide for guide in panel.guides if guide not in far])
    _make_space_for_numbers(axes)
    for guide in levels:
        axes.axhline(guide.value, color=INK, linewidth=0.9, linestyle=LEVEL_DASH)
    if any(names):
        _name_lines(axes, panel, levels, shades, names_mm)
    _draw_uprights(axes, [guide for guide in panel.guides if guide.axis == "x"])


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
    if least == most:
        axes.set_xlim(least - 0.6, most + 0.6)
    elif 0 <= least <= 0.3 * most:
        axes.set_xlim(0, most + 0.02 * (most - least))
    else:
        axes.set_xlim(least - 0.03 * (most - least), most + 0.02 * (most - least))
    axes.set_ylim(min(*y, 0.0), panel.y_most or max(y) * 1.08 or 1.0)
    if all(value.is_integer() for series in panel.series for value in series.x if value is not None):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.ticks:
        axes.xaxis.set_major_locator(FixedLocator([value for value in panel.ticks if value is not None]))
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
    locator: Locator = LogLocator(subs=numbered)
    places = locator.tick_values(least, most)
    if sum(least / margin <= place <= most * margin for place in places) < MIN_NUMBERS:
        locator = MaxNLocator(MAX_NUMBERS)
        axis.set_minor_locator(NullLocator())
    axis.set_major_locator(locator)
    axis.set_minor_formatter(NullFormatter())


def _shown(values: Sequence[float | None], guides: Sequence[ReferenceLine], axis: str) -> list[float]:
    shown = [value for value in values if value is not None]
    return shown + [guide.value for guide in guides if guide.axis == axis] or [0.0, 1.0]


def _colours(panel: CurvePanel, colours: Mapping[str, str]) -> list[str]:
    """Return the colour of each series: its type's, in shades, or one of its own without a type.

    Points have the colour of the line to which they belong.
    """
    seen, shades = Counter[str](), list[str]()
    is_typed = any(series.type in colours for series in panel.series)
    for i, series in enumerate(panel.series):
        if _belongs_to_line(panel, i):
            shades.append(shades[-1])
        else:
            own = PLAIN if is_typed else COLOURS[seen[""] % len(COLOURS)]
            shades.append(shade(colours.get(series.type, own), seen[series.type] if is_typed else 0))
            seen[series.type] += 1
    return shades


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
    if series.style == "area":
        axes.fill_between(
            x, y, [value or 0.0 for value in series.base] or 0.0, color=colour, alpha=AREA_ALPHA, linewidth=0
        )
    elif series.style == "points":
        sign = MARKERS[i % len(MARKERS)]
        axes.plot(x, y, sign, color=colour, markersize=3.2, markeredgewidth=0, zorder=3)
    else:
        few = "o" if len(x) <= 40 else None
        drawn = {"line": "default", "steps": "steps-pre"}[series.style]
        style: dict[str, Any] = {"drawstyle": drawn, "marker": few, "markersize": 2.5}
        axes.plot(x, y, _dash(panel, i), color=colour, linewidth=1.3, **style)


def _name_lines(
    axes: Axes, panel: CurvePanel, levels: Sequence[ReferenceLine], colours: Sequence[str], names_mm: float
) -> None:
    """Write the names of series and levels to the right, without overlap: at the ends of lines, or listed."""
    bottom, ends = axes.get_ylim()[0], []
    for i, series in enumerate(panel.series):
        last = next((y for y in reversed(series.y) if y is not None), bottom)
        listed = series.style == "points" and not _belongs_to_line(panel, i)
        height = 1 - i / 8 if listed else min(max(_share(axes, last, "y"), 0.0), 1.0)
        ends += [(height, i, series.name)] if series.name else []
    ends += [(_share(axes, guide.value, "y"), -1, guide.name) for guide in levels]
    ends.sort()
    step = min(MIN_LABEL_STEP, 1.0 / len(ends))
    heights = _apart([share for share, _, _ in ends], [step] * len(ends))
    names = fitted_names((name for _, _, name in ends), names_mm)
    mm = 1 / (axes.get_position().width * WIDTH_MM)
    for height, (_, i, name) in zip(heights, ends, strict=True):
        style: dict[str, Any] = {"clip_on": False, "transform": axes.transAxes}
        style["color"] = INK if i < 0 else colours[i]
        kind = "level" if i < 0 else panel.series[i].style
        if kind == "points":
            sign = MARKERS[i % len(MARKERS)]
            axes.plot(1 + 2.5 * mm, height, sign, markersize=3.2, markeredgewidth=0, **style)
        elif kind == "area":
            axes.plot(1 + 2.5 * mm, height, "s", markersize=4.5, markeredgewidth=0, alpha=AREA_ALPHA, **style)
        else:
            dash = LEVEL_DASH if i < 0 else _dash(panel, i)
            style |= {"linestyle": dash, "linewidth": 0.9 if i < 0 else 1.3}
            axes.plot([1 + 0.5 * mm, 1 + 4.5 * mm], [height, height], **style)
        place: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "fontsize": SMALL_PT}
        axes.text(1 + SIGN_MM * mm, height, names[name], color=INK, **place)


def _belongs_to_line(panel: CurvePanel, i: int) -> bool:
    """Return whether series `i` has the points of the line before it, so that they share a name."""
    before, series = panel.series[i - 1] if i else None, panel.series[i]
    return before is not None and (before.style, series.style) == ("line", "points") and before.x == series.x


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
