"""A figure as data: what is to be seen, with its units, and nothing of how it is drawn.

The studies make figures, `optimizer.render.plots` draws them, and ``--json`` prints them; every number that
a picture shows can be had without the picture.
"""

from math import isfinite
from typing import Annotated, Literal

from pydantic import Field

from optimizer.documents import Document
from optimizer.quantities import precise

Values = Annotated[tuple[float | None, ...], Field(strict=False)]
"""Numbers, with none where there is nothing to show."""


SeriesStyle = Literal["line", "steps", "front", "points", "chosen", "bars", "area"]


class Series(Document):
    """Points of one curve, under one name."""

    name: str
    """Name, used as the label next to the curve."""
    x: Values
    """In the unit of the panel's axis."""
    y: Values
    """In the unit of the panel's axis."""
    style: SeriesStyle = "line"
    """Joined; by steps that go up or down before, or after, each point; single points; what the plan has
    chosen; bars from zero; the area below the points."""
    type: str = ""
    """Accelerator type that it is about, whose colour it has; none: it is about no type."""


class Guide(Document):
    """A straight line across a panel: a target, a limit, a load."""

    name: str
    """The label beside it."""
    value: float
    """Value at which it crosses its axis."""
    axis: Literal["x", "y"]
    """The axis that it crosses."""


class CurvePanel(Document):
    """Curves over one quantity."""

    kind: Literal["curves"] = "curves"
    """The sort of panel."""
    title: str
    """Title of the panel."""
    x_label: str = Field(alias="xLabel")
    """Quantity and unit."""
    y_label: str = Field(alias="yLabel")
    """Quantity and unit."""
    series: tuple[Series, ...] = Field(strict=False)
    """The curves."""
    guides: tuple[Guide, ...] = Field((), strict=False)
    """The lines that they are read against."""
    y_most: float | None = Field(None, alias="yMost")
    """End of the axis, if the curves continue beyond the range of interest."""
    logarithmic: tuple[Literal["x", "y"], ...] = Field((), strict=False)
    """The axes on which equal steps are equal factors."""


class Bar(Document):
    """One row of bars: a thing, and one number of it for every column."""

    name: str
    """The thing."""
    group: str = ""
    """Group of the row; the rows of a group are adjacent under its name."""
    values: Values
    """One for each column."""
    marks: Values = ()
    """Reference of each value, such as a limit or the value before: one per column, or empty."""
    type: str = ""
    """Accelerator type that it is about, whose colour it has; none: it is about no type."""


class BarPanel(Document):
    """Bars in rows, several quantities side by side."""

    kind: Literal["bars"] = "bars"
    """The sort of panel."""
    title: str
    """Title of the panel."""
    columns: tuple[str, ...] = Field(strict=False)
    """Quantities with their units."""
    bars: tuple[Bar, ...] = Field(strict=False)
    """The rows."""
    mark: str = ""
    """Meaning of the marks."""
    line: float | None = None
    """A value that all bars are read against, across all columns, which reach at least as far."""
    line_name: str = Field("", alias="lineName")
    """Name of the line."""


class Cell(Document):
    """One field of a grid."""

    text: str
    """Text of the field; lines are separated by a line feed."""
    group: str = ""
    """Fields of one group have one colour; none: no colour."""
    share: float = 1.0
    """Share of the cell that is coloured: the served share of the load."""


class GridPanel(Document):
    """A table of fields: rows by columns."""

    kind: Literal["grid"] = "grid"
    """The sort of panel."""
    title: str
    """Title of the panel."""
    columns: tuple[str, ...] = Field(strict=False)
    """Headings of the columns."""
    rows: tuple[str, ...] = Field(strict=False)
    """Headings of the rows."""
    cells: tuple[Annotated[tuple[Cell, ...], Field(strict=False)], ...] = Field(strict=False)
    """Row by row."""
    groups: tuple[str, ...] = Field((), strict=False)
    """All groups that there are, whether a field has one or not: each has the colour of its place."""


class Figure(Document):
    """Panels that belong together, or the reason why there is nothing to show."""

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


def target_line(target_ms: float) -> tuple[Guide, ...]:
    """Return the line of a latency target [ms], none where there is no target."""
    if not isfinite(target_ms):
        return ()
    return (Guide(name=f"target {precise(target_ms)} ms", value=target_ms, axis="y"),)
