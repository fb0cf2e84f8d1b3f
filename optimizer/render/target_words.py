"""Figures beside targets that are not about means, in words: percentiles, and shares within targets."""

from collections.abc import Sequence

from optimizer.plan import TargetFigure
from optimizer.quantities import precise, quantity
from optimizer.queueing.measures import MISSED


def of_latency(figures: Sequence[TargetFigure], label: str) -> TargetFigure | None:
    """Return the percentile of a latency that has a target, by the label of the latency: ITL, TTFT."""
    return next((figure for figure in figures if figure.measure.endswith(f" {label}")), None)


def percentile_text(figure: TargetFigure, digits: int) -> str:
    """Return a percentile of a known latency beside its limit: ``p95 512 (800)``."""
    return f"{figure.measure.split()[0]} {figure.value:,.{digits}f} ({precise(figure.limit)})"


def figure_text(figure: TargetFigure) -> str:
    """Return a figure beside its limit: ``p95 TTFT 512 (800)``, ``97.6 % within (97 %)``."""
    if figure.measure == MISSED.label:
        return f"{quantity(100 * (1 - figure.value))} % within ({quantity(100 * (1 - figure.limit))} %)"
    return f"{figure.measure} {quantity(figure.value)} ({precise(figure.limit)})"


def figures_text(figures: Sequence[TargetFigure]) -> str:
    """Return figures beside their limits, one behind the other."""
    return ", ".join(figure_text(figure) for figure in figures)
