"""Figures beside targets that are not about means, in words: percentiles, and shares within targets."""

from collections.abc import Sequence

from optimizer.plan import TargetFigure
from optimizer.quantities import precise


def of_latency(figures: Sequence[TargetFigure], label: str) -> TargetFigure | None:
    """Return the percentile of a latency that has a target, by the label of the latency: ITL, TTFT."""
    return next((figure for figure in figures if figure.measure.endswith(f" {label}")), None)


def percentile_text(figure: TargetFigure, digits: int) -> str:
    """Return a percentile of a known latency beside its limit: ``p95 512 (800)``."""
    return f"{figure.measure.split()[0]} {figure.value:,.{digits}f} ({precise(figure.limit)})"


def figures_text(figures: Sequence[TargetFigure]) -> str:
    """Return figures beside their limits, one behind the other."""
    return ", ".join(figure.text for figure in figures)
