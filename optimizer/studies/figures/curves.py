"""Curves for one server on one accelerator: queue, batch, rate and token times.

The numbers are those of the queue model that plans use. Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.quantities import counted, quantity
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.performance import MS_PER_S
from optimizer.studies.figures.figure_document import (
    CurvePanel,
    Figure,
    ReferenceLine,
    XAxis,
    target_line,
    upright,
)
from optimizer.studies.figures.placed import (
    LATENCY_TITLES,
    EmptyFigureError,
    Placed,
    has_targets,
    of_statistic,
    target_of,
)
from optimizer.timing.law import ServiceLaw
from optimizer.units import SECONDS_PER_MINUTE

POINTS = 240
"""Number of points of a smooth curve."""
LARGE_BATCH = 2**14
"""Batch limit above which curves have few points, because the queue model is slow."""
FEW_POINTS = 48
MAX_EVERY_BATCH = 256
"""Largest batch ceiling for which every batch is evaluated; above it, only `FEW_BATCHES` in geometric steps.
"""
FEW_BATCHES = 64
MAX_STATES = 2000
"""Maximum number of queue states shown; if there are more, only every second, third, … is shown."""
TARGET_VIEW = 2.0
"""Multiple of a latency target up to which latencies are shown."""
RARE = 1e-4
"""Maximum total probability of the queue states that are not shown."""


def occupancy_figure(placed: Placed) -> Figure:
    """Return the figure of the stationary distribution of requests in a replica (eq. 10-12)."""
    placed.require_load()
    performance = placed.analyze(placed.pair.max_batch, np.array([placed.rate_rps]))
    states, probability = _occupancy(placed)
    mean = float(performance.in_service[0] + performance.in_queue[0])
    inside = states <= placed.max_batch
    axis = XAxis("requests in the replica", states)
    curves = [
        XAxis(axis.label, states[rows], type_name).curve(name, probability[rows], "bars")
        for name, rows, type_name in (
            ("all in the batch", inside, placed.type),
            ("some waiting", ~inside, ""),
        )
        if rows.any()
    ]
    guides = [upright(f"mean {mean:.3g}", mean)]
    panel = axis.panel("Requests in a replica", "share of time", curves, guides)
    rpm = placed.rate_rps * SECONDS_PER_MINUTE
    note = (
        f"{placed.remark}; {quantity(rpm)} requests/min at each; batch limit {placed.max_batch:,}, "
        f"{performance.utilization[0]:.0%} in use; empty {float(performance.p_empty[0]):.2%} of the time; "
        f"{_lost(float(performance.loss[0]))}"
    )
    return placed.figure("Occupancy", note, [panel])


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
    """Return the figure of ITL and TTFT by load of a replica, with the targets (eq. 18-20)."""
    points = POINTS if placed.max_batch <= LARGE_BATCH else FEW_POINTS
    rate = np.linspace(*placed.rate_range_rps(), points)
    latencies = _latencies(placed)
    figures = placed.figures(
        np.full(points, placed.max_batch), rate, [measure for _, measure, _ in latencies]
    )
    axis = placed.axis("load of one replica [requests/min]", rate * SECONDS_PER_MINUTE)
    bound = "all targets are met" if has_targets(placed.arrays) else "the queue is stable; there is no target"
    guides = placed.load_guides()

    def panel(title: str, label: str, values: FloatArray, target: tuple[ReferenceLine, ...]) -> CurvePanel:
        return axis.panel(title, label, {"": values}, (*target, *guides), y_most=_view(values, target))

    return placed.figure(
        "Latency against load",
        f"{placed.remark}; largest: the load up to which {bound}; the curves end at the stable load",
        [
            panel(of_statistic(title, measure), f"{measure.label} [ms]", figures[measure], target)
            for title, measure, target in latencies
        ],
    )


def timing_figure(placed: Placed) -> Figure:
    """Return the figure of the latency model's token times at every constant batch (eq. 1-8)."""
    batch = _batches(int(placed.pair.batch_ceiling[0]))
    law = placed.law(len(batch))
    if not isinstance(law, ServiceLaw):
        raise EmptyFigureError(f"the {law.name} latency model has no token times")
    occupancy = batch.astype(np.float64)
    times = law.token_times(law.service_time_ms(occupancy), occupancy, batch)
    servers = placed.arrays.servers
    shape = f"input of {counted(float(servers.in_tokens[0]), 'token')}, output of {servers.out_tokens[0]:g}"
    axis = placed.axis("batch [requests]", occupancy)

    return placed.figure(
        "Token times",
        f"the latency model of the profile at a constant batch; {shape}",
        (
            axis.panel("One decode step", "time per token [ms]", {"": times.itl_ms}),
            axis.panel("Prefill of one request", "prefill [ms]", {"": times.prefill_ms}),
        ),
    )


def _occupancy(placed: Placed) -> tuple[IntArray, FloatArray]:
    """Return the queue states 0 … N+Q that are not negligible, with their probabilities (eq. 10, 12)."""
    queue, batch = placed.queue(), placed.max_batch
    log_rate = np.log(placed.rate_rps / MS_PER_S)
    log_load = float(log_rate - queue.log_full_rate[0])
    log_p_empty = queue.solve(np.array([log_rate])).log_p_empty
    log_in_batch = np.arange(batch + 1) * log_rate + queue.log_weight + log_p_empty
    # Upper bound of the probability beyond a full batch.
    above = max(1 - float(np.sum(np.exp(log_in_batch))), RARE)
    waiting = int(queue.max_queue[0])
    if log_load < 0:  # beyond a full batch, probabilities fall geometrically
        waiting = min(waiting, 1 + int(np.log(RARE / above) / log_load))
    last = batch + waiting
    states = np.arange(0, last + 1, -(-(last + 1) // MAX_STATES))
    log_probability = log_in_batch[np.minimum(states, batch)] + np.maximum(states - batch, 0) * log_load
    probability: FloatArray = np.exp(log_probability)
    return states, probability


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


def _lost(share: float) -> str:
    return "hardly a request finds the queue full" if share < RARE else f"{share:.2%} find the queue full"
