"""A figure as data: the plotted values with their units, independent of how they are drawn.

The studies make figures, `optimizer.render.plots` draws them, and ``--json`` prints them; every number shown
in a picture is also available as data.
"""

from math import isfinite
from typing import Annotated, Literal

from pydantic import Field

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
    """Style: joined lines, steps before or after each point, single points, the plan's choice, bars from
    zero, or the area below the points.
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


def target_line(target_ms: float) -> tuple[ReferenceLine, ...]:
    """Return the line of a latency target [ms]; empty without a target."""
    if not isfinite(target_ms):
        return ()
    return (ReferenceLine(name=f"target {precise(target_ms)} ms", value=target_ms, axis="y"),)
