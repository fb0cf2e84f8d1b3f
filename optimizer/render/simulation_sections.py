"""Sections of a simulation: predicted and simulated metrics, missed targets and repairs; pools as CSV."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from optimizer.kinds.shown import Shown
from optimizer.kinds.table import kinds_of, shown_in
from optimizer.plan.notebook import are_mixed
from optimizer.quantities import counted, quantity, significant
from optimizer.queueing.measures import is_about, statistic_of
from optimizer.render.estimates import estimate_note, marked
from optimizer.render.figures import columns_of, of_pool, stated, with_statistic
from optimizer.render.money import Money
from optimizer.render.simulation_text import (
    FAR_FACTOR,
    UNSETTLED,
    VERDICTS,
    missed_text,
    off_plan,
    simulation_effort,
    simulation_headline,
    target_text,
    with_width,
)
from optimizer.section import Column, FormattedValue, Paragraph, Section, name, table, words
from optimizer.studies.simulation.simulation_document import (
    ConfidenceInterval,
    LostServer,
    PoolDerating,
    RepairedPlan,
    SimulatedFigure,
    SimulatedLatency,
    SimulatedPool,
    SimulatedShape,
    Simulation,
    TargetCheck,
)

PERCENTILES = ("p50", "p90", "p95", "p99")
SHOWN = PERCENTILES[2:]
"""Percentiles that the table shows even if no target limits them."""
PLAN, SIMULATED = "plan", "simulated"
"""Names of the predicted and the simulated values in headings."""
NEAR_SATURATION = (
    "The closed form of the plan is least exact near the largest rate of a replica and for 99th percentiles."
)
NOT_SETTLED = "±?: the run has not settled, so it has no interval; ask for more requests (--requests)."
OTHER = 4
"""Lowest column rank of statistics that no target limits."""
STATISTICS = ("mean", *PERCENTILES)
LATENCIES = ("ttft", "itl", "e2e")


def simulation_sections(simulation: Simulation, effort: str = "", seen: str = SIMULATED) -> list[Section]:
    """Return the outcome of a simulation, the metrics of every pool, and the targets not clearly met.

    Args:
        simulation: the simulation, or measurements in its form.
        effort: how the metrics were found; empty for the effort of a simulation.
        seen: name of the values that are not the plan's, in headings.
    """
    headline = Section(
        text=[
            Paragraph(f"{simulation_headline(simulation, seen)}.", _style(simulation)),
            Paragraph(effort or simulation_effort(simulation)),
        ]
    )
    doubtful = [pool for pool in simulation.pools if pool.verdict != "held"]
    shapes = [(pool, shape) for pool in simulation.pools for shape in pool.shapes]
    return [
        headline,
        _pools(simulation, seen),
        *([_shapes(shapes, seen)] if shapes else []),
        *([_doubtful(doubtful, seen)] if doubtful else []),
    ]


def _style(simulation: Simulation) -> str:
    """Return the colour of the headline: green only if every target clearly holds."""
    verdicts = {pool.verdict for pool in simulation.pools}
    return "red" if "missed" in verdicts else "yellow" if "close" in verdicts else "green"


_OfShape = tuple[SimulatedPool, SimulatedShape]


def _shapes(rows: Sequence[_OfShape], seen: str) -> Section:
    """Return the latencies of each request shape, with the verdict on its targets."""

    def statistic(metric: str, statistic: str, rank: int) -> Iterator[Column]:
        def value(side: str, row: _OfShape) -> FormattedValue | None:
            mine, latency = of_pool(row[0], metric, "simulation"), getattr(row[1], metric)
            if mine is None or latency is None:
                return None
            of = _predicted if side == PLAN else _simulated_statistic
            return _formatted(mine, of(latency, statistic))

        for side, more in ((PLAN, 1), (seen, 0)):
            heading = f"{statistic} {metric.upper()} {side}"
            yield Column(heading, partial(value, side), "ms", rank=rank + more)

    columns = (
        name("server", lambda row: row[0].server, rank=1),
        name("shape", lambda row: row[1].name),
        Column("share", lambda row: row[1].share, form=".1%", rank=2),
        *statistic("ttft", "p95", 0),
        *statistic("itl", "p95", 0),
        *statistic("ttft", "mean", 4),
        *statistic("itl", "mean", 4),
        words("verdict", lambda row: VERDICTS[row[1].verdict].removesuffix(" to call")),
    )
    return table("Request shapes", columns, rows)


def _pools(simulation: Simulation, seen: str) -> Section:
    kinds = kinds_of(simulation.pools)
    headings, mark, pools = columns_of("simulation", kinds), are_mixed(simulation.pools), simulation.pools

    def accelerator(pool: SimulatedPool) -> str:
        return marked(pool.accelerator, pool.estimated if mark else None)

    columns = (
        name("server", "server"),
        name("accelerator", accelerator, rank=int(len({pool.server for pool in pools}) == len(pools))),
        Column("replicas", "num_replicas", form=",d", rank=5),
        Column("rate of each", "rate_rps", "req/s", significant(3), rank=6),
        *(
            column
            for i, shown in enumerate(shown_in("simulation", kinds))
            for column in _columns(shown, headings[shown.metric], i, pools, seen)
        ),
        Column("within limits", "within_all.value", form=".1%"),
        Column("times plan", lambda pool: off_plan(pool) or None, form="×{:.2f}".format),
        Column("finishes", "finishes_h", "h", quantity, rank=2, none=""),
        words("verdict", lambda pool: VERDICTS[pool.verdict].removesuffix(" to call")),
    )
    texts = [column.cell(column.value(pool)) for column in columns for pool in simulation.pools]
    far = seen == SIMULATED and any(off_plan(pool) >= FAR_FACTOR for pool in simulation.pools)
    notes = [NEAR_SATURATION] if far else []
    notes += [estimate_note([pool.estimated for pool in simulation.pools])] if mark else []
    notes += [NOT_SETTLED] if any(text.endswith(UNSETTLED) for text in texts) else []
    return table("Pools", columns, simulation.pools, notes=notes)


def _columns(
    shown: Shown, base: Column, place: int, pools: Sequence[SimulatedPool], seen: str
) -> Iterator[Column]:
    """Yield the columns of a metric: first the statistics that targets limit, then the others.

    Args:
        shown: display settings of the metric.
        base: column of the metric without values.
        place: position of the metric in the table, which determines the ranks of its columns.
        seen: name of the values that are not the plan's.
    """
    limited = [_limited(shown, pool) for pool in pools if of_pool(pool, shown.metric, "simulation")]
    statistics = {"mean" if check is None else statistic_of(check.target) for check in limited}

    def sides(heading: str, of: _OfSide, ranks: tuple[int, int], none: str = "") -> Iterator[Column]:
        for side, rank in zip((PLAN, seen), ranks, strict=True):
            yield base._replace(name=f"{heading} {side}", of=partial(of, side), rank=rank, none=none)

    ranks = (1 + place, 0) if any(limited) else (OTHER, OTHER - 1)
    yield from sides(
        with_statistic(base.name, statistics), partial(_tightest, shown, statistics), ranks, base.none
    )
    for rank, statistic in enumerate(("mean",) if shown.simulated else ("mean", *SHOWN), OTHER):
        if statistics != {statistic}:
            yield from sides(
                f"{statistic} {base.name}", partial(_value_of, shown, statistic), (rank + 1, rank)
            )


_OfSide = Callable[[str, SimulatedPool], FormattedValue | None]


def _limited(shown: Shown, pool: SimulatedPool) -> TargetCheck | None:
    """Return the target on a metric of a pool whose value is nearest to its limit; None without targets."""
    checks = [check for check in pool.targets if is_about(check.target, shown.metric)]
    return max(checks, key=lambda check: check.simulated.value / check.limit, default=None)


def _tightest(
    shown: Shown, statistics: Collection[str], side: str, pool: SimulatedPool
) -> FormattedValue | None:
    """Return the statistic of a metric that the pool's tightest target limits; without targets, the mean.

    Args:
        shown: display settings of the metric.
        statistics: all statistics in the column.
        side: `PLAN` for the predicted value, else the simulated one.
    """
    check, mine = _limited(shown, pool), of_pool(pool, shown.metric, "simulation")
    if check is None or mine is None:
        return _value_of(shown, "mean", side, pool)
    formatted = _formatted(mine, check.predicted if side == PLAN else check.simulated)
    statistic = statistic_of(check.target)
    return formatted and formatted._replace(text=stated(statistic, statistics, formatted.text))


def _value_of(shown: Shown, statistic: str, side: str, pool: SimulatedPool) -> FormattedValue | None:
    """Return a predicted or simulated statistic of a pool's metric; None if it is missing."""
    mine, figure = of_pool(pool, shown.metric, "simulation"), pool.figure(shown.metric)
    if mine is None or figure is None:
        return None
    of = _predicted if side == PLAN else _simulated_statistic
    return _formatted(mine, of(figure, statistic))


def _formatted(shown: Shown, value: ConfidenceInterval | float | None) -> FormattedValue | None:
    if isinstance(value, ConfidenceInterval):
        return FormattedValue(with_width(value, shown.text), value.value)
    return None if value is None else FormattedValue(shown.text(value), value)


def _predicted(simulated: SimulatedLatency | SimulatedFigure, statistic: str) -> float | None:
    if isinstance(simulated, SimulatedFigure):
        return simulated.predicted
    if statistic == "mean":
        return simulated.predicted_mean
    known = simulated.predicted_percentiles
    return None if known is None else getattr(known, f"{statistic}_ms")


def _simulated_statistic(simulated: SimulatedLatency | SimulatedFigure, statistic: str) -> ConfidenceInterval:
    if isinstance(simulated, SimulatedFigure):
        return simulated.simulated
    interval: ConfidenceInterval = getattr(simulated, statistic)
    return interval


def _doubtful(pools: list[SimulatedPool], seen: str) -> Section:
    all_missed = all(check.verdict != "close" for pool in pools for check in pool.targets)
    columns = (
        name("server", lambda row: row[0].server),
        name("accelerator", lambda row: row[0].accelerator, rank=1),
        words("target", lambda row: row[1].target if row[1] else "steady state"),
        Column("limit", _limit),
        Column(seen, _simulated),
        Column("of limit", _share_of_limit, form=".1%", none=""),
        words("verdict", lambda row: VERDICTS[row[1].verdict if row[1] else "missed"]),
        words("why", lambda row: row[0].overload, none=""),
    )
    title = "Targets that are missed" if all_missed else "Targets missed or too close to call"
    return table(title, columns, (row for pool in pools for row in _doubts(pool)), "missed")


_Doubt = tuple[SimulatedPool, TargetCheck | None]


def _doubts(pool: SimulatedPool) -> Iterator[_Doubt]:
    """Yield the targets that a pool does not clearly meet.

    Yield None instead of a target if the pool has no steady state.
    """
    yield from ((pool, check) for check in pool.targets if check.verdict != "held")
    if pool.overload and not pool.missed:
        yield pool, None


def _simulated(row: _Doubt) -> FormattedValue | None:
    pool, check = row
    if check is None or pool.overload:
        return None
    return FormattedValue(target_text(check, check.simulated), check.simulated.value)


def _limit(row: _Doubt) -> FormattedValue | None:
    check = row[1]
    return None if check is None else FormattedValue(target_text(check, check.limit, 6), check.limit)


def _share_of_limit(row: _Doubt) -> float | None:
    pool, check = row
    if check is None or pool.overload or check.limit <= 0:
        return None
    return check.simulated.value / check.limit


def simulated_repair_sections(repaired_plan: RepairedPlan) -> list[Section]:
    """Return the repairs of a plan after simulation, and the servers that are no longer served."""
    style = "green" if repaired_plan.holds else "yellow"
    if not repaired_plan.repairs:
        return [Section(text=[Paragraph("Nothing to repair", style)])]
    before, after = repaired_plan.cost_before_cents_per_h, repaired_plan.cost_after_cents_per_h
    money = Money.of(repaired_plan.plan)
    change = f" ({after / before - 1:+.1%})" if before > 0 else ""
    costs = f"{money.amount(before)} -> {money.amount(after)} {money.unit}"
    text = [Paragraph(f"Repaired: cost {costs}{change}", style)]
    text += [Paragraph(_repair_line(repair), indent="  ", hanging="    ") for repair in repaired_plan.repairs]
    text += [Paragraph(f"Lost: {_lost_line(item)}", style) for item in repaired_plan.lost]
    return [Section(text=text)]


def _repair_line(repair: PoolDerating) -> str:
    needs = (
        "never meets its targets"
        if repair.replicas_after is None
        else f"needs {counted(repair.replicas_after, 'replica')}, not {repair.replicas_before:,} "
        f"(x {quantity(repair.rate_factor, 3)} of the largest rate)"
    )
    why = "; ".join(map(missed_text, repair.missed)) if repair.overload is None else repair.overload
    return f"{repair.server} on {repair.accelerator} {needs}: {why}"


def _lost_line(item: LostServer) -> str:
    parts = [f"{item.reason}: {item.detail}", *map(missed_text, item.missed)]
    return f"{item.server}: {item.served_fraction:.1%} served, {'; '.join(parts)}"


def simulation_csv(simulation: Simulation) -> str:
    """Return the simulated pools as CSV, one row per pool, with all digits."""
    latencies = [getattr(pool, name) for pool in simulation.pools for name in LATENCIES]
    known = any(one is not None and one.predicted_percentiles is not None for one in latencies)
    statistics = [(name, statistic) for name in LATENCIES for statistic in STATISTICS]
    percentiles = [(name, statistic) for name in LATENCIES for statistic in PERCENTILES if known]
    paths = [
        ("server", "server"),
        ("accelerator", "accelerator"),
        ("numReplicas", "num_replicas"),
        ("replicaRate", "rate_rps"),
        *((f"predicted{name.upper()}", f"{name}.predicted_mean") for name in LATENCIES),
        *((f"{one}{name.upper()}", f"{name}.{one}.value") for name, one in statistics),
        *((f"{one}{name.upper()}HalfWidth", f"{name}.{one}.half_width") for name, one in statistics),
        ("throughput", "throughput_rps.value"),
        ("loss", "loss.value"),
        ("preemptions", "preemptions"),
        *((f"within{name.upper()}", f"within_{name}.value") for name in LATENCIES),
        ("withinAll", "within_all.value"),
        ("goodput", "goodput_rps"),
        ("holds", "holds"),
        ("verdict", "verdict"),
        *(
            (f"predicted{one.upper()}{name.upper()}", f"{name}.predicted_percentiles.{one}_ms")
            for name, one in percentiles
        ),
    ]
    for metric in sorted({metric for pool in simulation.pools for metric in pool.own}):
        paths += [
            (f"predicted {metric}", f"own.{metric}.predicted"),
            (metric, f"own.{metric}.simulated.value"),
            (f"{metric} half-width", f"own.{metric}.simulated.half_width"),
        ]
    return table("", [Column(heading, partial(_at, path)) for heading, path in paths], simulation.pools).csv()


def _at(path: str, pool: SimulatedPool) -> Any:
    """Return the value at an attribute path of a pool, for CSV; None if a part of the path is missing."""
    first, *rest = path.split(".")
    if first in LATENCIES and of_pool(pool, first, "simulated") is None:
        return None
    value: Any = getattr(pool, first)
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
    return str(value).lower() if isinstance(value, bool) else value
