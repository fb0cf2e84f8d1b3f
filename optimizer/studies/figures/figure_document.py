"""A figure as data: the plotted values with their units, independent of how they are drawn.

The studies make figures, `optimizer.render.plots` draws them, and ``--json`` prints them; every number shown
in a picture is also available as data.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document
from optimizer.printed import Drawn
from optimizer.quantities import precise

Values = Annotated[tuple[float | None, ...], Field(strict=False)]
"""Numbers; None for missing ones."""


SeriesStyle = Literal["line", "steps", "front", "points", "chosen", "bars", "area"]


class Series(Document):
    """Points of one curve, under one name."""

    name: str
    """Name, used as the label next to the curve."""
    x: Values
    """x values, in the unit of the panel's axis."""
    y: Values
    """y values, in the unit of the panel's axis."""
    style: SeriesStyle = "line"
    """`line` joins the points; `steps` draws a step up to each point, and `front` one from each point;
    `points` and `chosen`, the plan's choice, are single points; `bars` start at zero; `area` is filled below
    the points.
    """
    type: str = ""
    """Accelerator type that sets its colour; empty if it belongs to no type."""


class ReferenceLine(Document):
    """A straight line across a panel: a target, a limit, a load."""

    name: str
    """Label of the line."""
    value: float
    """Value at which it crosses its axis."""
    axis: Literal["x", "y"]
    """The axis that it crosses."""


class CurvePanel(Document):
    """Curves over one quantity."""

    kind: Literal["curves"] = "curves"
    """Kind of panel."""
    title: str
    """Title of the panel."""
    x_label: str = Field(alias="xLabel")
    """Quantity and unit of the x axis."""
    y_label: str = Field(alias="yLabel")
    """Quantity and unit of the y axis."""
    series: tuple[Series, ...] = Field(strict=False)
    """The curves."""
    guides: tuple[ReferenceLine, ...] = Field((), strict=False)
    """Reference lines."""
    y_most: float | None = Field(None, alias="yMost")
    """End of the axis, if the curves continue beyond the range of interest."""
    logarithmic: tuple[Literal["x", "y"], ...] = Field((), strict=False)
    """Logarithmic axes."""


class Bar(Document):
    """One row of bars: a name, and a number for every column."""

    name: str
    """Name of the row."""
    group: str = ""
    """Group of the row; the rows of a group are adjacent under its name."""
    values: Values
    """Values, one per column."""
    marks: Values = ()
    """Reference of each value, such as a limit or the value before: one per column, or empty."""
    type: str = ""
    """Accelerator type that sets its colour; empty if it belongs to no type."""


class BarPanel(Document):
    """Bars in rows, several quantities side by side."""

    kind: Literal["bars"] = "bars"
    """Kind of panel."""
    title: str
    """Title of the panel."""
    columns: tuple[str, ...] = Field(strict=False)
    """Quantities with their units."""
    bars: tuple[Bar, ...] = Field(strict=False)
    """The rows."""
    mark: str = ""
    """Meaning of the marks."""
    line: float | None = None
    """Reference value of all bars, across all columns, which are at least as wide."""
    line_name: str = Field("", alias="lineName")
    """Name of the line."""


class Cell(Document):
    """One field of a grid."""

    text: str
    """Text of the field; lines are separated by a line feed."""
    group: str = ""
    """Group of the field, which sets its colour; empty without a colour."""
    share: float = 1.0
    """Share of the field that is coloured: the served share of the load."""


class GridPanel(Document):
    """A table: rows by columns."""

    kind: Literal["grid"] = "grid"
    """Kind of panel."""
    title: str
    """Title of the panel."""
    columns: tuple[str, ...] = Field(strict=False)
    """Headings of the columns."""
    rows: tuple[str, ...] = Field(strict=False)
    """Headings of the rows."""
    cells: tuple[Annotated[tuple[Cell, ...], Field(strict=False)], ...] = Field(strict=False)
    """Fields, row by row."""
    groups: tuple[str, ...] = Field((), strict=False)
    """All groups, including unused ones; the position of a group sets its colour."""


class Figure(Drawn, Document):
    """Panels that belong together, or the reason that there is nothing to show."""

    title: str
    """Title of the figure."""
    note: str = ""
    """Explanation of the figure, including omissions."""
    panels: tuple[Annotated[CurvePanel | BarPanel | GridPanel, Field(discriminator="kind")], ...] = Field(
        (), strict=False
    )
    """Panels from top to bottom; empty if there is nothing to show, with the reason in `note`."""
    types: tuple[str, ...] = Field((), strict=False)
    """All accelerator types of the system; the position of a type sets its colour in every picture."""


def level(name: str, value: float) -> ReferenceLine:
    """Return a line across the y axis."""
    return ReferenceLine(name=name, value=value, axis="y")


def upright(name: str, value: float) -> ReferenceLine:
    """Return a line across the x axis."""
    return ReferenceLine(name=name, value=value, axis="x")


_Values = FloatArray | IntArray | Sequence[float | None]


class XAxis(NamedTuple):
    """The x axis of curves and panels: its quantity, and the values at which curves are known."""

    label: str
    """Quantity and unit."""
    x: _Values
    """Values, in that unit."""
    type: str = ""
    """Accelerator type that sets the colour of its curves; empty if they belong to no type."""

    def curve(self, name: str, y: _Values, style: SeriesStyle = "line", type_name: str = "") -> Series:
        """Return a curve, in the colour of another type if given; missing values are not finite."""
        return Series(name=name, x=_numbers(self.x), y=_numbers(y), style=style, type=type_name or self.type)

    def panel(
        self,
        title: str,
        y_label: str,
        curves: Mapping[str, _Values] | Iterable[Series],
        guides: Iterable[ReferenceLine] = (),
        **ends: Any,
    ) -> CurvePanel:
        """Return a panel of curves, given as such or as their values by name."""
        if isinstance(curves, Mapping):
            curves = [self.curve(*named) for named in curves.items()]
        lines: dict[str, Any] = {"series": tuple(curves), "guides": tuple(guides)}
        return CurvePanel(title=title, x_label=self.label, y_label=y_label, **lines, **ends)


def _numbers(values: _Values) -> tuple[float | None, ...]:
    """Return plain numbers, with None for values that are not finite."""
    return tuple(None if value is None or not isfinite(value) else float(value) for value in values)


def target_line(target_ms: float) -> tuple[ReferenceLine, ...]:
    """Return the line of a latency target [ms]; empty without a target."""
    if not isfinite(target_ms):
        return ()
    return (level(f"target {precise(target_ms)} ms", target_ms),)
