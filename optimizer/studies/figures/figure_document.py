"""A figure as data: the plotted values with their units, independent of how they are drawn.

Studies create figures, `optimizer.render.plots` draws them, and ``--json`` prints them. So every number in a
drawn figure is also available as data.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from optimizer.arrays import FloatArray, IntArray
from optimizer.documents import Document, is_none
from optimizer.printed import Drawn
from optimizer.quantities import precise

Values = Annotated[tuple[float | None, ...], Field(strict=False)]
"""Sequence of numbers; None for a missing value."""


SeriesStyle = Literal["line", "steps", "points", "area"]


class Series(Document):
    """Points of one curve with a name."""

    name: str
    """Name of the curve, used as its label."""
    x: Values
    """x values, in the unit of the panel's x axis."""
    y: Values
    """y values, in the unit of the panel's y axis."""
    style: SeriesStyle = "line"
    """How the points are drawn. `line` joins them; `steps` draws a step up to each point; `points` are single
    points; `area` is filled between the points and `base`.
    """
    base: Values = ()
    """Lower edge of an area, one value for each point; empty for zero."""
    type: str = ""
    """Accelerator type that determines the colour; empty if the curve belongs to no type."""


class ReferenceLine(Document):
    """A straight line across a panel, such as a target, a limit or a load."""

    name: str
    """Label of the line."""
    value: float
    """Value at which the line crosses its axis."""
    axis: Literal["x", "y"]
    """Axis that the line crosses."""


class CurvePanel(Document):
    """A panel with curves over one quantity."""

    kind: Literal["curves"] = "curves"
    """Identifies the type of panel."""
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
    """Upper end of the y axis, if curves continue beyond the range of interest; null: no limit."""
    logarithmic: tuple[Literal["x", "y"], ...] = Field((), strict=False)
    """Axes with a logarithmic scale."""
    ticks: Values = ()
    """x values with a number on the axis; empty: round numbers."""


class Bar(Document):
    """One row of a bar panel: a name, and a number for every column."""

    name: str
    """Name of the row."""
    group: str = ""
    """Group of the row; rows of a group are adjacent under its name."""
    values: Values
    """Values of the row, one per column."""
    marks: Values = ()
    """Reference for each value, such as a limit or the previous value: one per column, or empty."""
    type: str = ""
    """Accelerator type that determines the colour; empty if the row belongs to no type."""


class BarPanel(Document):
    """A panel with bars in rows, with several quantities side by side."""

    kind: Literal["bars"] = "bars"
    """Identifies the type of panel."""
    title: str
    """Title of the panel."""
    columns: tuple[str, ...] = Field(strict=False)
    """Name and unit of the quantity in each column."""
    bars: tuple[Bar, ...] = Field(strict=False)
    """Rows of the panel."""
    mark: str = ""
    """Meaning of the marks next to the bars."""
    line: float | None = None
    """Reference value of all bars, drawn as a line in every column; null without one."""
    line_name: str = Field("", alias="lineName")
    """Name of the reference line."""


class Cell(Document):
    """One cell of a grid panel."""

    text: str
    """Text of the cell; its lines are separated by line feeds."""
    group: str = ""
    """Group of the cell, which determines its colour; empty for no colour."""
    share: float = 1.0
    """Fraction of the cell that is coloured: the served share of the load."""
    level: float | None = Field(None, exclude_if=is_none)
    """Colour between blue (−1), white (0) and red (1), instead of that of a group; absent: that of the group.
    """


class GridPanel(Document):
    """A panel with a table of text."""

    kind: Literal["grid"] = "grid"
    """Identifies the type of panel."""
    title: str
    """Title of the panel."""
    columns: tuple[str, ...] = Field(strict=False)
    """Headings of the columns."""
    rows: tuple[str, ...] = Field(strict=False)
    """Headings of the rows."""
    cells: tuple[Annotated[tuple[Cell, ...], Field(strict=False)], ...] = Field(strict=False)
    """Fields of the panel, row by row."""
    groups: tuple[str, ...] = Field((), strict=False)
    """All groups, including unused ones; the position of a group determines its colour."""


class Figure(Drawn, Document):
    """A figure: panels that belong together, or the reason why there is nothing to show."""

    title: str
    """Title of the figure."""
    note: str = ""
    """Explanation of the figure, including what is omitted."""
    panels: tuple[Annotated[CurvePanel | BarPanel | GridPanel, Field(discriminator="kind")], ...] = Field(
        (), strict=False
    )
    """Panels from top to bottom; empty if there is nothing to show, with the reason in `note`."""
    types: tuple[str, ...] = Field((), strict=False)
    """All accelerator types of the system; the position of a type determines its colour in every figure."""


def level(name: str, value: float) -> ReferenceLine:
    """Return a horizontal reference line at a value of the y axis."""
    return ReferenceLine(name=name, value=value, axis="y")


def upright(name: str, value: float) -> ReferenceLine:
    """Return a vertical reference line at a value of the x axis."""
    return ReferenceLine(name=name, value=value, axis="x")


_Values = FloatArray | IntArray | Sequence[float | None]


class XAxis(NamedTuple):
    """The x axis of curves and panels: its quantity, and the x values of the curves."""

    label: str
    """Name and unit of the quantity."""
    x: _Values
    """x values of the curves, in the unit of the axis."""
    type: str = ""
    """Accelerator type that determines the colour of the curves; empty if they belong to no type."""

    def curve(
        self, name: str, y: _Values, style: SeriesStyle = "line", type_name: str = "", base: _Values = ()
    ) -> Series:
        """Return a curve over this axis.

        Args:
            name: name of the curve.
            y: y values; values that are not finite become missing.
            style: how the points are drawn.
            type_name: accelerator type for the colour; empty: that of the axis.
            base: lower edge of an area; empty for zero.
        """
        shown = {"x": _numbers(self.x), "y": _numbers(y), "base": _numbers(base)}
        return Series(name=name, style=style, type=type_name or self.type, **shown)

    def panel(
        self,
        title: str,
        y_label: str,
        curves: Mapping[str, _Values] | Iterable[Series],
        guides: Iterable[ReferenceLine] = (),
        **ends: Any,
    ) -> CurvePanel:
        """Return a panel over this axis.

        Args:
            title: title of the panel.
            y_label: name and unit of the y axis.
            curves: curves, or their y values by name.
            ends: further settings of the panel.
        """
        if isinstance(curves, Mapping):
            curves = [self.curve(*named) for named in curves.items()]
        lines: dict[str, Any] = {"series": tuple(curves), "guides": tuple(guides)}
        return CurvePanel(title=title, x_label=self.label, y_label=y_label, **lines, **ends)


def _numbers(values: _Values) -> tuple[float | None, ...]:
    """Convert values to Python numbers; those that are not finite become None."""
    return tuple(None if value is None or not isfinite(value) else float(value) for value in values)


def target_line(target_ms: float) -> tuple[ReferenceLine, ...]:
    """Return the reference line of a latency target [ms]; empty without a target."""
    if not isfinite(target_ms):
        return ()
    return (level(f"target {precise(target_ms)} ms", target_ms),)
