"""Figures beside targets that are not about means, in words: percentiles, and shares within targets."""

from collections.abc import Sequence

from optimizer.plan import TargetFigure


def figures_text(figures: Sequence[TargetFigure]) -> str:
    """Return figures beside their limits, one behind the other."""
    return ", ".join(figure.text for figure in figures)
