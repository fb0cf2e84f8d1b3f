"""Figures of a replica's metrics by load and by batch limit, for kinds of replicas without specific figures.

They show the metrics that tables show for the kind.
"""

from collections.abc import Sequence

import numpy as np

from optimizer.kinds.shown import Shown
from optimizer.queueing.measures import METRICS
from optimizer.queueing.performance import Performance
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, XAxis, upright
from optimizer.studies.figures.placed import EmptyFigureError, Placed
from optimizer.units import SECONDS_PER_MINUTE

POINTS = 33
"""Number of loads or batch limits at which metrics are evaluated."""
MAX_LOAD = 0.95
"""Maximum load in the figure, as a fraction of the maximum stable load."""


def figures_by_load(placed: Placed) -> Figure:
    """Return the figure of a replica's metrics by load."""
    least, stable = placed.rate_range_rps()
    rate_rps = np.linspace(least, MAX_LOAD * stable, POINTS)
    performance = placed.analyze(np.full(POINTS, placed.max_batch), rate_rps)
    load_rpm = placed.rate_rps * SECONDS_PER_MINUTE
    axis = placed.axis("load of one replica [requests/min]", rate_rps * SECONDS_PER_MINUTE)
    guides = [upright("load", load_rpm)] if load_rpm else []
    return _figure("Figures against load", placed, performance, axis, guides)


def figures_by_batch_limit(placed: Placed) -> Figure:
    """Return the figure of a replica's metrics at its load, by the batch limits that carry it.

    Raises:
        EmptyFigureError: no batch limit carries the load.
    """
    placed.require_load()
    most = int(placed.pair.batch_ceiling[0])
    limits = np.unique(np.round(np.geomspace(1, most, POINTS))).astype(np.int64)
    limits = limits[placed.carries(limits)]
    if not len(limits):
        raise EmptyFigureError(
            f"{placed.title}: no batch limit up to {most:,} carries the load; {placed.remark}"
        )
    performance = placed.analyze(limits, np.full(len(limits), placed.rate_rps))
    axis = placed.axis("batch limit [requests]", limits.astype(np.float64))
    return _figure("Figures by batch limit", placed, performance, axis, [placed.batch_guide()])


def _figure(
    title: str, placed: Placed, performance: Performance, axis: XAxis, guides: Sequence[ReferenceLine]
) -> Figure:
    panels = (_panel(shown, performance, axis, guides) for shown in placed.kind.shown("plan").values())
    return placed.figure(title, placed.remark, panels)


def _panel(
    shown: Shown, performance: Performance, axis: XAxis, guides: Sequence[ReferenceLine]
) -> CurvePanel | None:
    """Return a panel with a metric as a curve; None if the queue model does not compute the metric."""
    known = next((known for name, known in METRICS.items() if name == shown.metric), None)
    field = shown.simulated or (shown.field if known is None else known.figure)
    values = getattr(performance, field, None)
    if values is None:
        return None
    known = next((known for known in METRICS.values() if known.figure == field), None)
    unit, scale = (shown.unit, 1.0) if known is None else (known.unit, known.scale)
    title = shown.heading.capitalize() if shown.heading.islower() else shown.heading
    label = f"{shown.heading} [{unit}]" if unit else shown.heading
    return axis.panel(title, label, {"": scale * values}, guides)
