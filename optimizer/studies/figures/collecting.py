"""Figure of a batch server at its load: replicas and latency by batch limit.

Nothing is sized. For each limit, the fewest replicas are searched whose share of the load meets the
targets. Equation numbers refer to ``docs/math.md``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from optimizer.arrays import FloatArray, grouped
from optimizer.quantities import quantity
from optimizer.queueing.bulk.model import BulkQueues, SteadyState
from optimizer.queueing.bulk.steady import ServerSteadyState
from optimizer.queueing.measures import TargetMeasure
from optimizer.queueing.roots import root_above, smallest_integer
from optimizer.studies.figures.figure_document import CurvePanel, Figure, ReferenceLine, XAxis, level
from optimizer.studies.figures.placed import EmptyFigureError, Placed
from optimizer.units import SECONDS_PER_MINUTE

BATCHES = 9
"""Number of batch limits that are evaluated, in geometric steps."""
MAX_PERCENTILES = 2
"""Maximum number of percentile curves; more curves of one colour would be hard to distinguish."""
USUAL_PERCENTILE = 99.0
"""Percentile that is shown next to the mean if no target names one."""
PRECISION = 1e-4
"""Relative precision of percentiles in the figure."""
MIN_SHARE = 1e-12
"""Smallest fraction of requests that is distinguished; smaller ones are treated as this."""
WIDE = 8.0
"""Ratio of the largest to the smallest number of replicas above which the axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class _BatchingSettings:
    """Batching settings, with the replicas that the load needs under each; arrays have shape (R,)."""

    servers: BulkQueues
    replicas: FloatArray
    """Minimum number of replicas that meets the targets; NaN if no number does."""
    load_rps: float
    """Load of all replicas together [requests/s]."""

    def long_runs(self, times: int = 1) -> list[SteadyState | None]:
        """Return the steady state of each setting with `times` as many replicas.

        None without a steady state.
        """
        return [
            None if math.isnan(count) else self.servers.row_at(row, self.load_rps / (times * count))
            for row, count in enumerate(self.replicas.tolist())
        ]


def shown_ms(long_run: SteadyState, measure: TargetMeasure) -> float:
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


def batch_limit_figure(placed: Placed) -> Figure:
    """Return the figure of replicas and latency by batch limit, at the given window (eq. 101-103)."""
    server, most = placed.batch_servers(), int(placed.pair.batch_ceiling[0])
    limits = np.unique(np.round(np.geomspace(1, most, BATCHES))).astype(np.int64)
    rows = replace(server.take(np.zeros(len(limits), np.int64)), max_batch=limits)
    axis = placed.axis("batch limit [requests]", limits.astype(np.float64))
    return placed.figure(
        "Effect of the batch limit", _note(placed), _panels(placed, _ways(placed, rows), axis)
    )


def _ways(placed: Placed, servers: BulkQueues) -> _BatchingSettings:
    load_rps = float(placed.arrays.servers.load_rps[0])
    if load_rps == 0:
        raise EmptyFigureError(f"{placed.title} carries no load; {placed.remark}")
    limits = placed.arrays.servers.targets.limits_of(0)
    fewest = [
        _fewest_replicas(servers.take(np.array([row])), load_rps, limits)
        for row in range(len(servers.max_batch))
    ]
    return _BatchingSettings(servers, np.array(fewest), load_rps)


def _fewest_replicas(server: BulkQueues, load_rps: float, limits: dict[TargetMeasure, float]) -> float:
    """Return the fewest replicas whose share of a load meets the targets; NaN if none is found.

    The number is increased in growing steps until the targets are met, followed by bisection between the last
    failure and the first success.

    Args:
        server: queue model of one batch server.
        load_rps: load of all replicas together [requests/s].
        limits: limit of each measure.
    """
    fails = math.ceil(load_rps / float(server.stable_rate_rps[0]) * (1 - 1e-9)) - 1
    most, step = load_rps / float(server.least_rate_rps[0]), 1
    while not _meets(server, load_rps / (fails + step), limits):
        fails, step = fails + step, 2 * step
        if fails + step > most:
            return math.nan
    return float(
        smallest_integer(lambda count: _meets(server, load_rps / count, limits), fails, fails + step)
    )


def _meets(server: BulkQueues, rate_rps: float, limits: dict[TargetMeasure, float]) -> bool:
    excess = server.judge(0).at(rate_rps)
    return all(excess(*target) <= 0 for target in limits.items())


def _panels(placed: Placed, ways: _BatchingSettings, axis: XAxis) -> tuple[CurvePanel, CurvePanel]:
    """Return a panel of the replicas, and one of the latencies for these and for twice as many replicas."""
    if np.isnan(ways.replicas).all():
        text = "no number of replicas meets the targets at any batch limit"
        raise EmptyFigureError(f"{placed.title}: {text}")
    measures, chosen = latencies_shown(placed), placed.batch_guide()
    known = ways.replicas[~np.isnan(ways.replicas)]
    both: tuple[Literal["x", "y"], ...] = ("x", "y") if known.max() > WIDE * known.min() else ("x",)
    title = "Replicas that meet the targets at the load, by batch limit"
    replicas = axis.panel(title, "replicas", {"": ways.replicas}, [chosen], logarithmic=both)
    runs, last = ways.long_runs(), measures[-1]
    curves = [axis.curve(measure.statistic, _latencies(runs, measure)) for measure in measures]
    curves.append(axis.curve(f"{last.statistic}, twice the replicas", _latencies(ways.long_runs(2), last)))
    guides = chosen, *latency_levels(placed)
    title = "Latency with the fewest replicas, by batch limit"
    return replicas, axis.panel(title, "latency [ms]", curves, guides, logarithmic=("x",))


def _latencies(runs: Sequence[SteadyState | None], measure: TargetMeasure) -> FloatArray:
    return np.array([math.nan if run is None else shown_ms(run, measure) for run in runs])


def latencies_shown(placed: Placed) -> Sequence[TargetMeasure]:
    """Return the latency measures to show: the mean and the highest percentiles with targets.

    Without a percentile target, it is `USUAL_PERCENTILE`.
    """
    limits = placed.arrays.servers.targets.limits_of(0)
    asked = {(item.percentile, item.hit_rate) for item in limits if item.percentile is not None}
    shown = sorted(asked)[-MAX_PERCENTILES:] or [(USUAL_PERCENTILE, 0.0)]
    return [TargetMeasure("e2e"), *(TargetMeasure("e2e", percent, hits) for percent, hits in shown)]


def latency_levels(placed: Placed) -> tuple[ReferenceLine, ...]:
    """Return the targets on the shown latencies as reference lines.

    Targets with equal limits share one line.
    """
    shown, limits = latencies_shown(placed), placed.arrays.servers.targets.limits_of(0)
    levels = grouped((limit, measure.statistic) for measure, limit in limits.items() if measure in shown)
    return tuple(
        level(f"target {limit:,.6g} ms, {', '.join(names)}", limit) for limit, names in levels.items()
    )


def _note(placed: Placed) -> str:
    rpm = float(placed.arrays.servers.load_rps[0]) * SECONDS_PER_MINUTE
    trigger = placed.system.servers[placed.server].batch_trigger
    return (
        f"at every point the fewest replicas that meet the targets at {quantity(rpm)} requests/min, "
        f"each with an equal share of Poisson arrivals; trigger: {trigger}"
    )
