"""Panels of figures, by their kind."""

from optimizer import Figure
from optimizer.studies.figures.figure_document import BarPanel, CurvePanel, GridPanel, Series


def curves(figure: Figure, panel: int = 0) -> CurvePanel:
    found = figure.panels[panel]
    assert isinstance(found, CurvePanel)
    return found


def bars(figure: Figure, panel: int = 0) -> BarPanel:
    found = figure.panels[panel]
    assert isinstance(found, BarPanel)
    return found


def grid(figure: Figure, panel: int = 0) -> GridPanel:
    found = figure.panels[panel]
    assert isinstance(found, GridPanel)
    return found


def points(series: Series) -> list[tuple[float, float]]:
    """Return the points of a curve without its gaps."""
    return [(x, y) for x, y in zip(series.x, series.y, strict=True) if x is not None and y is not None]


def curve(figure: Figure, panel: int, name: str = "") -> dict[float, float]:
    """Return a named curve of a panel."""
    (series,) = (item for item in curves(figure, panel).series if item.name == name)
    return dict(points(series))
