"""Figure of a batch server by load: rejection rate, and latency of the requests that are served.

Equation numbers refer to ``docs/math.md``.
"""

import math
from collections.abc import Sequence

import numpy as np

from optimizer.arrays import FloatArray, grouped
from optimizer.quantities import quantity
from optimizer.queueing.bulk.model import SteadyState
from optimizer.queueing.bulk.steady import ServerSteadyState
from optimizer.queueing.measures import LOSS, TargetMeasure
from optimizer.queueing.roots import root_above
from optimizer.simulation.limits import UNLIMITED
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, level, upright
from optimizer.studies.figures.placed import Placed

POINTS = 33
"""Number of loads that are evaluated."""
MIN_LOAD, MAX_LOAD, MAX_STABLE_LOAD = 0.02, 1.5, 0.97
"""Range of loads relative to the saturation throughput: minimum, maximum, and maximum for unlimited queues.
"""
PERCENT = 100.0
LOAD = "load of one replica [requests/s]"
MAX_PERCENTILES = 2
"""Maximum number of percentile curves; more curves of one colour would be hard to distinguish."""
USUAL_PERCENTILE = 99.0
"""Percentile that is shown next to the mean if no target names one."""
PRECISION = 1e-4
"""Relative precision of percentiles in the figure."""
MIN_SHARE = 1e-12
"""Smallest fraction of requests that is distinguished; smaller ones are treated as this."""


def batch_latency_figure(placed: Placed) -> Figure:
    """Return the figure of latencies by load, and of rejections if the queue has a limit (eq. 103)."""
    rate_rps, server = loads_rps(placed), placed.batch_servers()
    panels, note = [latency_panel(placed, rate_rps)], ""
    if _is_limited(placed):
        panels.insert(0, _rejected_panel(placed, rate_rps))
        where = "in the system" if server.policy.counts_system[0] else "waiting"
        note = f"room for {int(server.policy.queue_limit[0]):,} {where}"
    trigger = placed.system.servers[placed.server].batch_trigger
    window = quantity(float(server.policy.window_ms[0]))
    collecting = f"trigger: {trigger}, window {window} ms, batch limit {placed.max_batch:,}"
    notes = filter(None, (placed.remark, note, collecting))
    return placed.figure("Latency against load", "; ".join(notes), panels)


def loads_rps(placed: Placed) -> FloatArray:
    """Return the loads per replica that are evaluated [requests/s]."""
    server = placed.batch_servers()
    full = float(server.full_rate_rps[0])
    most = (
        min(MAX_LOAD * full, float(server.longest_rate_rps[0]))
        if _is_limited(placed)
        else MAX_STABLE_LOAD * full
    )
    return np.linspace(MIN_LOAD * full, most, POINTS)


def latency_panel(placed: Placed, rate_rps: FloatArray) -> CurvePanel:
    """Return the panel of the mean and percentiles of the latency of served requests by load."""
    server = placed.batch_servers()
    rows, axis = [server.row_at(0, rate) for rate in rate_rps.tolist()], placed.axis(LOAD, rate_rps)
    curves = [
        axis.curve(measure.statistic, [_shown_ms(row, measure) for row in rows])
        for measure in _latencies_shown(placed)
    ]
    guides = (*_latency_levels(placed), *_loads(placed))
    return axis.panel("Latency of answered requests", "latency [ms]", curves, guides)


def _rejected_panel(placed: Placed, rate_rps: FloatArray) -> CurvePanel:
    server = placed.batch_servers()
    rejected = np.array([server.row_at(0, rate).rejected for rate in rate_rps.tolist()])
    limit = placed.arrays.servers.targets.limits_of(0).get(LOSS)
    levels = [] if limit is None else [level(f"target {PERCENT * limit:g} %", PERCENT * limit)]
    axis, curves = placed.axis(LOAD, rate_rps), {"": PERCENT * rejected}
    return axis.panel("Rejected requests", "rejected [%]", curves, (*levels, *_loads(placed)))


def _loads(placed: Placed) -> tuple[ReferenceLine, ...]:
    """Return reference lines at the saturation throughput, and at the planned load per replica."""
    full = float(placed.batch_servers().full_rate_rps[0])
    named = [("saturation", full)] * _is_limited(placed) + [("load", placed.rate_rps)]
    return tuple(upright(f"{name} {quantity(rate)}", rate) for name, rate in named if rate > 0)


def _is_limited(placed: Placed) -> bool:
    """Return whether the queue has a limit."""
    return bool(placed.batch_servers().policy.queue_limit[0] < UNLIMITED)


def _shown_ms(long_run: SteadyState, measure: TargetMeasure) -> float:
    """Return a latency measure [ms], precise enough for a figure.

    Tails fall geometrically, so a percentile can be interpolated from few probabilities.
    """
    if measure.percentile is None:
        return long_run.mean_ms
    if not isinstance(long_run, ServerSteadyState):
        return long_run.quantile_ms(measure.percentile / 100)
    over = 1 - measure.percentile / 100

    def excess(limit_ms: float) -> float:
        return math.log(max(long_run.late_share(limit_ms), MIN_SHARE) / over)

    return root_above(excess, long_run.service_ms / 2, 2 * long_run.mean_ms, PRECISION)


def _latencies_shown(placed: Placed) -> Sequence[TargetMeasure]:
    """Return the latency measures to show: the mean and the highest percentiles with targets.

    Without a percentile target, it is `USUAL_PERCENTILE`.
    """
    limits = placed.arrays.servers.targets.limits_of(0)
    asked = {(item.percentile, item.hit_rate) for item in limits if item.percentile is not None}
    shown = sorted(asked)[-MAX_PERCENTILES:] or [(USUAL_PERCENTILE, 0.0)]
    return [TargetMeasure("e2e"), *(TargetMeasure("e2e", percent, hits) for percent, hits in shown)]


def _latency_levels(placed: Placed) -> tuple[ReferenceLine, ...]:
    """Return the targets on the shown latencies as reference lines.

    Targets with equal limits share one line.
    """
    shown, limits = _latencies_shown(placed), placed.arrays.servers.targets.limits_of(0)
    levels = grouped((limit, measure.statistic) for measure, limit in limits.items() if measure in shown)
    return tuple(
        level(f"target {limit:,.6g} ms, {', '.join(names)}", limit) for limit, names in levels.items()
    )
