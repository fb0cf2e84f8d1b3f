"""Cost of a server by load, for each accelerator, and by latency, over all configurations.

Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from optimizer.arrays import FloatArray, IntArray, RowArrays
from optimizer.candidates import Candidates
from optimizer.candidates.measuring import measure_pairs
from optimizer.candidates.pairs import Pairs
from optimizer.candidates.table import CandidateTable
from optimizer.money import cost_unit, in_cost_unit
from optimizer.plan import Plan, Pool
from optimizer.quantities import quantity
from optimizer.queueing.targets import meets_target
from optimizer.schema.messages import known_name
from optimizer.spec.system import System
from optimizer.studies.figures.figure_document import (
    CurvePanel,
    Figure,
    Series,
    SeriesStyle,
    XAxis,
    target_line,
    upright,
)
from optimizer.studies.figures.placed import (
    LATENCY_TITLES,
    EmptyFigureError,
    candidates_of_only,
    has_targets,
    joined_candidates,
    of_statistic,
    rejection,
    target_of,
)
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE

_Shown = Literal["itl", "ttft"]


MAX_CURVES = 6
"""Maximum number of accelerators shown in one panel."""
LOAD_VIEW = 2.0
"""Multiple of the server's load up to which costs are shown."""
SIGHT = 3.0
"""Maximum of a cost axis, as a multiple of the end of the cheapest curve."""
POINTS = 400
"""Number of points of a curve that has too many steps to draw each one."""
COUNTS = 64
"""Number of replica counts evaluated for each accelerator and batch, in geometric steps."""
WIDE = 8.0
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""
_OTHER: dict[_Shown, _Shown] = {"itl": "ttft", "ttft": "itl"}
"""For each latency, the other latency, whose target must also be met."""
LOST = 1e-3
"""Maximum rejection rate of configurations, unless the candidate itself rejects more."""


def cost_figure(system: System, server: str, accelerator: str | None) -> Figure:
    """Return the figure of a server's cost by load, with one step curve per accelerator (eq. 28-30)."""
    candidates, table = _candidates_of(system, server, accelerator)
    load = float(candidates.arrays.servers.load_rps[0])
    at_load = in_cost_unit(_costs(candidates, table, np.array([load]))[:, 0], system.currency)
    rows = np.argsort(at_load, kind="stable")[:MAX_CURVES]
    drawn = [_steps(candidates, table.take(rows[i : i + 1]), load) for i in range(len(rows))]
    series, y_most, dear = _within_sight(drawn, at_load[rows])
    within = " within its targets" if has_targets(candidates.arrays) else ""
    title, y_label = f"Cost of the server{within}, by accelerator", f"cost [{cost_unit(system.currency)}]"
    guides = [upright("load", load * SECONDS_PER_MINUTE)]
    panel = XAxis("load [requests/min]", ()).panel(title, y_label, series, guides, y_most=y_most)
    some = f"the {len(rows)} cheapest of {len(table)} accelerators at" if len(rows) < len(table) else "at"
    note = f"{some} a load of {quantity(load * SECONDS_PER_MINUTE)} requests/min; replicas are indivisible"
    if dear:
        note += f"; far above the axis: {', '.join(dear)}"
    types = candidates.arrays.type_names
    return Figure(title=f"Cost against load: {server}", note=note, panels=(panel,), types=types)


def _within_sight(
    drawn: Sequence[Series], at_load: FloatArray
) -> tuple[tuple[Series, ...], float | None, list[str]]:
    """Return the curves close to the cheapest, the end of the cost axis, and the names of the omitted curves.

    A single expensive accelerator would otherwise flatten all relevant curves.
    """
    ends = [max((value for value in item.y if value is not None), default=0.0) for item in drawn]
    most = SIGHT * min(ends, default=0.0)
    if max(ends, default=0.0) <= most:
        return tuple(drawn), None, []
    near = tuple(item for item, cost in zip(drawn, at_load, strict=True) if not cost > most)
    return near, most, [item.name for item in drawn if item not in near]


def pareto_figure(system: System, server: str, accelerator: str | None, plan: Plan) -> Figure:
    """Return the figure of the minimum cost for each latency, over accelerators, batches and replicas."""
    candidates, table = _candidates_of(system, server, accelerator)
    ways = _ways(candidates, table)
    held = {name: _held(candidates, ways, name) for name in LATENCY_TITLES}
    shown = _worth_showing(held)
    pools = plan.allocations.get(server, ())
    panels = tuple(_front_panel(candidates, held[name], name, shown, pools) for name in LATENCY_TITLES)
    note = (
        "each point is a batch limit (the candidate's, a half, a quarter … of it) and a number of replicas "
        "(half to three times the candidate's); shown are those that no other on the same accelerator beats "
        f"in both cost and latency, without those that lose over {LOST:.1%} of the requests unless the "
        "candidate does"
    )
    unmarked = len(np.setdiff1d(table.accelerator, shown))
    if unmarked:
        note += (
            f"; points of {len(shown)} accelerators, those on a front, then the cheapest; {unmarked} others "
            "count for the front only"
        )
    if len(pools) > 1:
        note += f"; not marked: the plan, which mixes {len(pools)} accelerators"
    types = candidates.arrays.type_names
    return Figure(title=f"Cost and latency: {server}", note=note, panels=panels, types=types)


def _candidates_of(system: System, server: str, accelerator: str | None) -> tuple[Candidates, CandidateTable]:
    """Return the candidates of a server on all accelerators or on one; there is at least one candidate."""
    candidates = candidates_of_only(system, server)
    table = joined_candidates(candidates)
    if accelerator is not None:
        place_of = candidates.arrays.accelerator_names.index(
            known_name(accelerator, system.accelerators, "accelerator")
        )
        table = table.take(table.accelerator == place_of)
    if not len(table):
        raise EmptyFigureError(_no_candidate(candidates, server, accelerator))
    return candidates, table


# --- cost against load ---------------------------------------------------------------------------------


def _no_candidate(candidates: Candidates, server: str, accelerator: str | None) -> str:
    if accelerator is None:
        return f"{server} has no candidate: no accelerator meets its targets"
    return f"{server} cannot run on {accelerator}: {rejection(candidates, accelerator)}"


def _costs(candidates: Candidates, table: CandidateTable, load_rps: FloatArray) -> FloatArray:
    """Return each candidate's cost at each load [cents/h], shape (C, loads) (eq. 28).

    The cost is NaN at loads for which the candidate would need more replicas than its limit.
    """
    servers = candidates.arrays.servers
    needed = np.ceil(load_rps / table.max_rate_rps[:, None] * (1 - ROUNDING))
    count = np.maximum(needed, servers.min_replicas[0])
    allowed = count <= servers.max_replicas[0]
    return np.where(allowed, count * table.cost_per_replica[:, None], np.nan)


def _steps(candidates: Candidates, candidate: CandidateTable, load_rps: float) -> Series:
    """Return the curve of one candidate's cost up to a multiple of the load: every step, or many points."""
    rate, end = float(candidate.max_rate_rps[0]), LOAD_VIEW * load_rps
    every_step = end / rate <= POINTS
    load = np.append(np.arange(0, end, rate), end) if every_step else np.linspace(0, end, POINTS)
    cost = in_cost_unit(_costs(candidates, candidate, load)[0], candidates.system.currency)
    return _curve(candidates, int(candidate.accelerator[0]), load * SECONDS_PER_MINUTE, cost, "steps")


def _curve(candidates: Candidates, a: int, x: FloatArray, y: FloatArray, style: SeriesStyle) -> Series:
    """Return a curve of the accelerator at index `a`, in the colour of its type."""
    arrays = candidates.arrays
    return XAxis("", x, arrays.type_names[int(arrays.type[a])]).curve(arrays.accelerator_names[a], y, style)


# --- cost against latency ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Configurations(RowArrays):
    """Configurations of a server: accelerator, batch and replicas; arrays have shape (W,)."""

    accelerator: IntArray
    cost: FloatArray
    """Cost [cents/h]."""
    itl_ms: FloatArray
    """Statistic of the ITL that the target limits [ms]: the mean or a percentile."""
    ttft_ms: FloatArray

    def latency_ms(self, name: _Shown) -> FloatArray:
        """Return the ITL or the TTFT of each configuration [ms], by name: `itl` or `ttft`."""
        return self.itl_ms if name == "itl" else self.ttft_ms


def _ways(candidates: Candidates, table: CandidateTable) -> _Configurations:
    """Return every candidate with batches N, N/2, N/4 … 1, and with fewer and more replicas.

    Configurations that reject more than `LOST` of the requests, or violate the server's limits on replicas,
    are excluded.
    """
    servers = candidates.arrays.servers
    least, most = int(servers.min_replicas[0]), int(servers.max_replicas[0])
    of_row, batch, count = [], [], []
    for c in range(len(table)):
        halves = int(table.max_batch[c]) >> np.arange(int(table.max_batch[c]).bit_length())
        near = _counts(int(table.num_replicas[c]))
        near = near[(near >= least) & (near <= most)]
        of_row.append(np.full(len(halves) * len(near), c))
        batch.append(np.repeat(halves, len(near)))
        count.append(np.tile(near, len(halves)))
    rows, replicas = np.concatenate(of_row), np.concatenate(count)
    pairs = Pairs.of(candidates.arrays, table.server[rows], table.accelerator[rows], np.concatenate(batch))
    measured = measure_pairs(candidates.arrays, pairs, float(servers.load_rps[0]) / replicas)
    performance = measured.performance
    known = dict(zip(servers.targets.measures, measured.targets, strict=True))
    itl, ttft = (target_of(candidates.arrays, name)[0] for name in LATENCY_TITLES)
    ways = _Configurations(
        table.accelerator[rows],
        table.cost_per_replica[rows] * replicas,
        known.get(itl, performance.itl_ms),
        known.get(ttft, performance.ttft_ms),
    )
    return ways.take(performance.loss <= np.maximum(table.loss[rows], LOST))


def _counts(replicas: int) -> IntArray:
    """Return numbers of replicas around a given one: from half of it to three times."""
    ends = max(replicas // 2, 1), 3 * replicas
    near = np.round(np.geomspace(*ends, COUNTS)).astype(np.int64)
    return np.unique(np.append(near, replicas))


def _held(candidates: Candidates, ways: _Configurations, name: _Shown) -> _Configurations:
    """Return the configurations that meet the target on the other latency."""
    other = _OTHER[name]
    _, limit = target_of(candidates.arrays, other)
    return ways.take(meets_target(ways.latency_ms(other), limit, 0.0))


def _worth_showing(held: Mapping[_Shown, _Configurations]) -> list[int]:
    """Return the accelerators to show: those on a Pareto front, then the cheapest, up to the maximum."""
    on_a_front, by_cost = [], []
    for name, ways in held.items():
        on_a_front += ways.accelerator[front(ways.cost, ways.latency_ms(name))].tolist()
        by_cost += list(zip(ways.cost.tolist(), ways.accelerator.tolist(), strict=True))
    return list(dict.fromkeys([*on_a_front, *(a for _, a in sorted(by_cost))]))[:MAX_CURVES]


def _front_panel(
    candidates: Candidates, ways: _Configurations, name: _Shown, shown: Sequence[int], pools: Sequence[Pool]
) -> CurvePanel:
    """Return the panel of cost by one latency: Pareto fronts over all configurations and per accelerator.

    It also shows the point of the plan's choice.
    """
    latency, currency = ways.latency_ms(name), candidates.system.currency
    cost, series = in_cost_unit(ways.cost, currency), []
    axis = XAxis(f"cost [{cost_unit(currency)}]", cost)
    for a in shown:
        mine = np.flatnonzero(ways.accelerator == a)
        rows = mine[front(ways.cost[mine], latency[mine])]
        series.append(_curve(candidates, a, cost[rows], latency[rows], "points"))
    best = front(ways.cost, latency)
    if len(best):
        series.append(axis._replace(x=cost[best]).curve("Pareto front", latency[best], "front"))
    if len(pools) == 1:
        series.append(_chosen(pools[0], name, candidates))
    measure, limit = target_of(candidates.arrays, name)
    title, other = of_statistic(LATENCY_TITLES[name], measure), _OTHER[name]
    if np.isfinite(target_of(candidates.arrays, other)[1]):
        title += f", with the {other.upper()} target held"
    label, along = f"{measure.label} [ms]", _wide_axes(series)
    return axis.panel(title, label, series, target_line(limit), logarithmic=along)


def _chosen(pool: Pool, name: _Shown, candidates: Candidates) -> Series:
    """Return the point of the plan's choice as a series."""
    measure, _ = target_of(candidates.arrays, name)
    known = {figure.measure: figure.value for figure in pool.targets}
    latency_ms = known.get(measure.label, pool.itl_ms if name == "itl" else pool.ttft_ms)
    x, y = (in_cost_unit(pool.cost_cents_per_h, candidates.system.currency),), (latency_ms,)
    return Series(name=f"plan: {pool.num_replicas:,} × {pool.accelerator}", x=x, y=y, style="chosen")


def _wide_axes(series: Sequence[Series]) -> tuple[Literal["x", "y"], ...]:
    """Return the axes to draw logarithmically, because their positive values differ by large factors."""
    along: dict[Literal["x", "y"], list[float]] = {
        "x": [value for item in series for value in item.x if value is not None],
        "y": [value for item in series for value in item.y if value is not None],
    }
    return tuple(axis for axis, values in along.items() if 0 < WIDE * min(values, default=0) < max(values))


def front(cost: FloatArray, latency: FloatArray) -> IntArray:
    """Return the Pareto front of cost and latency: the rows that no other row dominates, sorted by cost."""
    order = np.lexsort((latency, cost))
    best = np.minimum.accumulate(latency[order])
    better = np.append(True, best[1:] < best[:-1]) if len(order) else np.zeros(0, np.bool_)
    rows: IntArray = order[better]
    return rows
