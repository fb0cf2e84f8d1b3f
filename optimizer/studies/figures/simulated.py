"""Figures of latency distributions, from the queue model and simulated.

They show one server on one accelerator. The replica is run as in `inferplan simulate`, so both show the same
metrics at the same load. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import profile_of
from optimizer.kinds.simulated import beside_heads, open_load
from optimizer.kinds.table import kind_of_profile
from optimizer.quantities import quantity
from optimizer.queueing.measures import LATENCIES, METRICS, LatencyName, TargetMeasure
from optimizer.simulation.engine import SimulatedRun
from optimizer.simulation.replicas import Effort, run_replica
from optimizer.simulation.summary import counted_rows, summarise
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, level, upright
from optimizer.studies.figures.placed import EmptyFigureError, Placed
from optimizer.studies.simulation.pools import stream_of
from optimizer.units import SECONDS_PER_MINUTE

SHOWN: tuple[tuple[LatencyName, str], ...] = (
    ("ttft", "Time to first token"),
    ("itl", "Inter-token latency, mean of each request"),
    ("e2e", "Time to last token"),
)
SHARES = np.concatenate((np.arange(0.5, 99.0, 0.5), np.arange(99.0, 99.55, 0.1))) / 100
"""Fractions of requests at which distributions are plotted; a run has too few requests for higher ones."""
BATCH_POINTS = 80
"""Number of times at which the exact distribution of a batch server is plotted."""
MIN_LOAD, MAX_LOAD = 0.1, 0.95
"""Minimum and maximum load, as fractions of the maximum stable load."""
VIEW = 2.0
"""Factor beyond all values from which a target is omitted."""
WIDE = 10.0
"""Multiple of the median above which a distribution has a logarithmic time axis."""


def distribution_figure(placed: Placed) -> Figure:
    """Return the figure of latency distributions, from the queue model and simulated (eq. 84-87)."""
    run = _steady_run(placed)
    panels = [_spread(placed, run, metric, title) for metric, title in SHOWN]
    return _distribution(placed, panels)


def batch_distribution_figure(placed: Placed) -> Figure:
    """Return the figure of a batch server's latency distribution, exact and simulated."""
    run = _steady_run(placed)
    row = placed.batch_servers().row_at(0, placed.rate_rps)
    values = run.e2e_ms[counted_rows(run)]
    simulated = np.quantile(values[~np.isnan(values)], SHARES)
    times_ms = np.linspace(simulated[0], simulated[-1], BATCH_POINTS)
    within = np.array([1 - row.late_share(limit) for limit in times_ms.tolist()])
    curves = {"closed form": (times_ms, within), "simulated": (simulated, SHARES)}
    return _distribution(placed, [_share_panel(placed, "e2e", ("Latency", "latency [ms]"), curves)])


def _steady_run(placed: Placed) -> SimulatedRun:
    """Simulate a replica at its load.

    Raises:
        EmptyFigureError: the replica has no load, or no steady state at its load.
    """
    placed.require_load()
    run = _run(placed, placed.rate_rps)
    overload = summarise([run]).overload
    if overload is not None:
        raise EmptyFigureError(f"{placed.title}: {overload}")
    return run


def _distribution(placed: Placed, panels: Sequence[CurvePanel | None]) -> Figure:
    rpm = placed.rate_rps * SECONDS_PER_MINUTE
    note = f"{placed.remark}; {quantity(rpm)} requests/min at each; {_said(placed)}"
    return placed.figure("Distribution of latencies", note, panels)


def _spread(placed: Placed, run: SimulatedRun, metric: LatencyName, title: str) -> CurvePanel | None:
    """Return the panel with the distribution of one latency; None if no request has that latency."""
    values: FloatArray = getattr(run, LATENCIES[metric])[counted_rows(run)]
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    measures = [TargetMeasure(metric, 100 * share) for share in SHARES.tolist()]
    known = placed.figures(np.array([placed.max_batch]), np.array([placed.rate_rps]), measures)
    curves = {"closed form": (np.concatenate(list(known.values())), SHARES)} if known else {}
    curves["simulated"] = np.quantile(values, SHARES), SHARES
    titles = title, f"{METRICS[metric].label} [ms]"
    return _share_panel(placed, metric, titles, curves, median=float(np.median(values)))


def _share_panel(
    placed: Placed,
    metric: LatencyName,
    titles: tuple[str, str],
    curves: Mapping[str, tuple[FloatArray, FloatArray]],
    median: float = 0.0,
) -> CurvePanel:
    """Return the panel with the fraction of requests within each latency.

    Args:
        placed: the server.
        titles: title of the panel, and name of the latency.
        curves: latencies [ms] and fractions of each curve, by name.
        median: median of the latency [ms]; the axis is logarithmic if values exceed it by far; 0 if unknown.
    """
    most, axis = max(float(x[-1]) for x, _ in curves.values()), placed.axis(titles[1], SHARES)
    series = [axis._replace(x=x).curve(name, 100 * share) for name, (x, share) in curves.items()]
    guides = _upright_targets(placed, metric, VIEW * most)
    along = ("x",) if most > WIDE * median > 0 else ()
    return axis.panel(titles[0], "share of requests [%]", series, guides, y_most=100.0, logarithmic=along)


def _upright_targets(placed: Placed, metric: LatencyName, farthest_ms: float) -> tuple[ReferenceLine, ...]:
    """Return the targets as reference lines in a distribution: the limit, and the fraction of requests."""
    guides: list[ReferenceLine] = []
    for measure, limit in _targets(placed, metric):
        if limit <= farthest_ms:
            guides.append(upright(_target_name(measure, limit), limit))
            if measure.percentile is not None:
                guides.append(level(f"{measure.percentile:g} %", measure.percentile))
    return tuple(guides)


def _target_name(measure: TargetMeasure, limit_ms: float) -> str:
    return f"target {limit_ms:,.6g} ms, {measure.statistic}"


def _targets(placed: Placed, metric: LatencyName) -> list[tuple[TargetMeasure, float]]:
    limits = placed.arrays.servers.targets.limits_of(0)
    return [target for target in limits.items() if target[0].metric == metric]


def _run(placed: Placed, rate_rps: float) -> SimulatedRun:
    """Simulate a replica at a rate, with the random streams of a simulation of the plan."""
    server = placed.system.servers[placed.server]
    profile = beside_heads(profile_of(placed.system, server, placed.accelerator), server.current.load)
    (run,) = run_replica(
        open_load(server.current.load, rate_rps),
        kind_of_profile(profile).replica(server, profile, placed.max_batch),
        Effort(),
        stream_of(placed.server, placed.accelerator),
    )
    return run


def _said(placed: Placed) -> str:
    """Return a note on the simulation and on a queue model that computes no percentiles."""
    effort = Effort()
    said = f"simulated: {effort.requests:,} requests, seed {effort.seed}"
    if placed.supports_measure(TargetMeasure("e2e", 95.0)):
        return said
    return f"{said}; the queue model {placed.queue_model!r} computes means only"
