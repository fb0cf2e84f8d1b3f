"""Curves for one server on one accelerator: rates and latencies by batch limit, latencies by load.

The numbers are those of the queue model that plans use. Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.measures import METRICS, TargetMeasure
from optimizer.studies.figures.figure_document import (
    CurvePanel,
    Figure,
    ReferenceLine,
    target_line,
)
from optimizer.studies.figures.placed import (
    LATENCY_TITLES,
    EmptyFigureError,
    Placed,
    has_targets,
    of_statistic,
    target_of,
)
from optimizer.units import SECONDS_PER_MINUTE

POINTS = 240
"""Number of points of a smooth curve."""
LARGE_BATCH = 2**14
"""Batch limit above which curves have few points, because the queue model is slow."""
FEW_POINTS = 48
PERCENTILES = (50.0, 95.0, 99.0)
"""Percentiles that are shown by load beside the mean and that of the target."""
MEAN = 60.0
"""Place of the mean among the percentiles."""
MAX_EVERY_BATCH = 256
"""Largest batch ceiling for which every batch is evaluated; above it, only `FEW_BATCHES` in geometric steps.
"""
FEW_BATCHES = 64
TARGET_VIEW = 2.0
"""Multiple of a latency target up to which latencies are shown."""


def batch_figure(placed: Placed) -> Figure:
    """Return the figure of the maximum rate within the targets, by batch limit (eq. 26).

    It also shows the latencies at that rate.
    """
    ceiling = int(placed.pair.batch_ceiling[0])
    batch = _batches(ceiling)
    rate = placed.largest_rates(batch)
    if np.isnan(rate).all():
        raise EmptyFigureError(f"{placed.title}: no batch meets the targets; {placed.remark}")
    known = np.flatnonzero(~np.isnan(rate))
    which, met = ("", " that meets the targets") if has_targets(placed.arrays) else ("stable ", "")
    latencies = _latencies(placed)
    at = placed.figures(batch[known], rate[known], [measure for _, measure, _ in latencies])
    axis = placed.axis("batch limit [requests]", batch.astype(np.float64))

    def panel(title: str, label: str, values: FloatArray, *guides: ReferenceLine) -> CurvePanel:
        return axis.panel(title, label, {"": values}, (placed.batch_guide(), *guides), logarithmic=("x",))

    def spread(values: FloatArray) -> FloatArray:
        full = np.full(len(batch), np.nan)
        full[known] = values
        return full

    return placed.figure(
        "Effect of the batch limit",
        f"{placed.remark}; at every batch the replica has the largest {which}load{met}",
        (
            panel(f"Largest {which}load of one replica{met}", "requests/min", rate * SECONDS_PER_MINUTE),
            *(
                panel(
                    of_statistic(f"{title} at that load", measure),
                    f"{measure.label} [ms]",
                    spread(at[measure]),
                    *target,
                )
                for title, measure, target in latencies
            ),
        ),
    )


def latency_figure(placed: Placed) -> Figure:
    """Return the figure of mean and percentiles of ITL and TTFT by load, with the targets (eq. 18-20)."""
    points = POINTS if placed.max_batch <= LARGE_BATCH else FEW_POINTS
    rate = np.linspace(*placed.rate_range_rps(), points)
    axis = placed.axis("load of one replica [requests/min]", rate * SECONDS_PER_MINUTE)
    bound = "all targets are met" if has_targets(placed.arrays) else "the queue is stable; there is no target"
    guides, panels = placed.load_guides(), []
    for title, of_target, target in _latencies(placed):
        metric = of_target.metric
        measures = {TargetMeasure(metric), of_target, *(TargetMeasure(metric, each) for each in PERCENTILES)}
        ordered = sorted(measures, key=lambda measure: measure.percentile or MEAN)
        known = placed.figures(np.full(points, placed.max_batch), rate, ordered)
        curves = {measure.statistic: values for measure, values in known.items()}
        most = _view(known[of_target], target)
        label = f"{METRICS[metric].label} [ms]"
        panels.append(axis.panel(title, label, curves, (*target, *guides), y_most=most))
    return placed.figure(
        "Latency against load",
        f"{placed.remark}; largest: the load up to which {bound}; the curves end at the stable load",
        panels,
    )


def _batches(ceiling: int) -> IntArray:
    """Return the batches to evaluate up to a ceiling, in ascending order."""
    if ceiling <= MAX_EVERY_BATCH:
        return np.arange(1, ceiling + 1)
    return np.unique(np.round(np.geomspace(1, ceiling, FEW_BATCHES))).astype(np.int64)


def _latencies(placed: Placed) -> list[tuple[str, TargetMeasure, tuple[ReferenceLine, ...]]]:
    """Return the latencies to show: title, measure, and reference lines of the target.

    The measure is the one that the target limits, or else the mean.
    """
    latencies = ((title, target_of(placed.arrays, metric)) for metric, title in LATENCY_TITLES.items())
    return [(title, measure, target_line(limit)) for title, (measure, limit) in latencies]


def _view(values: FloatArray, target: tuple[ReferenceLine, ...]) -> float | None:
    """Return the end of the y axis, so that values near saturation do not hide those around the target."""
    if not target or float(np.max(values)) <= TARGET_VIEW * target[0].value:
        return None
    return TARGET_VIEW * max(target[0].value, float(np.min(values)))
