"""Figures of a batch server by load: rejection rate, and latency of the requests that are served.

Equation numbers refer to ``docs/math.md``.
"""

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.quantities import quantity
from optimizer.queueing.measures import LOSS
from optimizer.simulation.limits import UNLIMITED
from optimizer.studies.figures.collecting import latencies_shown, latency_levels, shown_ms
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, level, upright
from optimizer.studies.figures.placed import Placed

POINTS = 33
"""Number of loads that are evaluated."""
MIN_LOAD, MAX_LOAD, MAX_STABLE_LOAD = 0.02, 1.5, 0.97
"""Range of loads relative to the saturation throughput: minimum, maximum, and maximum for unlimited queues.
"""
PERCENT = 100.0
LOAD = "load of one replica [requests/s]"


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
        axis.curve(measure.statistic, [shown_ms(row, measure) for row in rows])
        for measure in latencies_shown(placed)
    ]
    guides = (*latency_levels(placed), *_loads(placed))
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
