"""A simulation of a plan as a table for the terminal, and as rows for a spreadsheet."""

import csv
import io

from rich.console import Group, RenderableType

from optimizer.kinds.shown import Shown
from optimizer.kinds.table import kinds_of, shown_in
from optimizer.quantities import counted, quantity
from optimizer.render import columns
from optimizer.render.estimates import marked
from optimizer.render.figures import columns_of, of_pool
from optimizer.render.money import Money
from optimizer.render.simulation_words import (
    SHORT_VERDICTS,
    VERDICTS,
    number,
    simulation_effort,
    simulation_headline,
    with_width,
)
from optimizer.render.tables import Paragraph, Said, Table
from optimizer.render.text import spreadsheet_text
from optimizer.studies.simulation.document import (
    Interval,
    LostServer,
    Repair,
    RepairedPlan,
    SimulatedFigure,
    SimulatedLatency,
    SimulatedPool,
    Simulation,
    TargetCheck,
)

PERCENTILES = ("p50", "p90", "p95", "p99")
SHOWN = PERCENTILES[2:]
"""Those that the table has room for."""
STATISTICS = ("mean", *PERCENTILES)
LATENCIES = ("ttft", "itl", "e2e")


def simulation_tables(found: Simulation) -> Group:
    """Return a simulation as tables: predicted beside simulated, and the targets that are not surely held."""
    parts: list[RenderableType] = [_headline(found), _pools(found)]
    doubtful = [pool for pool in found.pools if pool.verdict != "held"]
    if doubtful:
        parts.append(_doubtful(doubtful))
    return Group(*parts)


def _headline(found: Simulation) -> Group:
    return Group(
        Paragraph(simulation_headline(found), "green" if found.holds else "yellow"),
        Paragraph(f"{simulation_effort(found)}\n"),
    )


def _pools(found: Simulation) -> Table:
    kinds = kinds_of(found.pools)
    figures, heads = shown_in("simulation", kinds), columns_of("simulation", kinds)
    pairs = [(heads[shown.metric], () if shown.simulated else SHOWN) for shown in figures]
    table = Table("Pools", columns.simulated_pools(pairs))
    for pool in found.pools:
        table.add_row(
            pool.server,
            marked(pool.accelerator, pool.estimated),
            pool.num_replicas,
            pool.rate_rps,
            *(cell for shown in figures for cell in _figures(pool, shown)),
            pool.within_all.value,
            SHORT_VERDICTS[pool.verdict],
        )
    return table


def _figures(pool: SimulatedPool, shown: Shown) -> tuple[float | Said | None, ...]:
    """Return the mean and percentiles of a figure that a pool has, each as planned and as simulated."""
    mine, found = of_pool(pool, shown.metric, "simulation"), pool.figure(shown.metric)
    if mine is None or found is None:
        return (None,) * (2 if shown.simulated else 6)
    if isinstance(found, SimulatedFigure):
        return found.predicted, Said(with_width(found.simulated, mine.text), found.simulated.value)
    _, _, p95, p99 = _percentiles_of(found)
    simulated = Said(with_width(found.mean, mine.text), found.mean.value)
    return found.predicted_mean, simulated, p95, found.p95.value, p99, found.p99.value


def _doubtful(pools: list[SimulatedPool]) -> Table:
    all_missed = all(check.verdict != "close" for pool in pools for check in pool.targets)
    title = "Targets that are missed" if all_missed else "Targets missed or too close to call"
    table = Table(title, columns.SIMULATED_MISSES, "missed")
    for pool in pools:
        for check in pool.targets:
            if check.verdict != "held":
                simulated, over = None, None
                if not pool.overload:
                    simulated = Said(with_width(check.simulated), check.simulated.value)
                    over = None if check.limit <= 0 else check.simulated.value / check.limit - 1
                table.add_row(
                    pool.server, pool.accelerator, check.target, check.limit, simulated, over,
                    VERDICTS[check.verdict], pool.overload,
                )  # fmt: skip
        if pool.overload and not pool.missed:
            table.add_row(
                pool.server, pool.accelerator, "steady state", None, None, None, VERDICTS["missed"],
                pool.overload,
            )  # fmt: skip
    return table


def repair_lines(found: RepairedPlan) -> Group:
    """Return what was repaired in a plan and what is lost, a paragraph for each."""
    style = "green" if found.holds else "yellow"
    if not found.repairs:
        return Group(Paragraph("Nothing to repair", style))
    before, after = found.cost_before_cents_per_h, found.cost_after_cents_per_h
    money = Money.of(found.plan)
    change = f" ({after / before - 1:+.1%})" if before > 0 else ""
    costs = f"{money.amount(before)} -> {money.amount(after)} {money.unit}"
    parts = [Paragraph(f"Repaired: cost {costs}{change}", style)]
    parts += [Paragraph(_repair_line(repair), indent="  ", hanging="    ") for repair in found.repairs]
    parts += [Paragraph(f"Lost: {_lost_line(item)}", style) for item in found.lost]
    return Group(*parts)


def _repair_line(repair: Repair) -> str:
    needs = (
        "keeps its targets at no load"
        if repair.replicas_after is None
        else f"needs {counted(repair.replicas_after, 'replica')}, not {repair.replicas_before:,} "
        f"(x {quantity(repair.rate_factor, 3)} of the largest rate)"
    )
    why = "; ".join(map(_miss, repair.missed)) if repair.overload is None else repair.overload
    return f"{repair.server} on {repair.accelerator} {needs}: {why}"


def _lost_line(item: LostServer) -> str:
    missed = "; ".join(map(_miss, item.missed))
    why = f"{item.reason}: {item.detail}"
    return f"{item.server}: {item.served_fraction:.1%} served, {why}" + (f"; {missed}" if missed else "")


def _miss(check: TargetCheck) -> str:
    """Say by how much a target is missed."""
    over = "" if check.limit <= 0 else f" ({check.simulated.value / check.limit - 1:+.1%})"
    return f"{check.target} {with_width(check.simulated)}, target {number(check.limit)}{over}"


def simulation_csv(found: Simulation) -> str:
    """Return one row for each pool as CSV, with every digit."""
    own = sorted({metric for pool in found.pools for metric in pool.own})
    figures = [f"{statistic}{name.upper()}" for name in LATENCIES for statistic in STATISTICS]
    predicted = [f"predicted{name.upper()}" for name in LATENCIES]
    widths = [f"{figure}HalfWidth" for figure in figures]
    more = [f"{before}{metric}{after}" for metric in own for before, after in _OWN]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_HEAD, *predicted, *figures, *widths, *_TAIL, *_percentile_names(found), *more])
    for pool in found.pools:
        shown = [getattr(pool, name) if of_pool(pool, name, "simulated") else None for name in LATENCIES]
        cells = [getattr(one, name, None) for one in shown for name in STATISTICS]
        shares = [pool.within_ttft, pool.within_itl, pool.within_e2e, pool.within_all]
        row = [pool.server, pool.accelerator, pool.num_replicas, pool.rate_rps]
        row += [None if one is None else one.predicted_mean for one in shown]
        row += [_value(cell) for cell in cells]
        row += [None if cell is None else cell.half_width for cell in cells]
        row += [pool.throughput_rps.value, pool.loss.value, pool.preemptions, *map(_value, shares)]
        row += [pool.goodput_rps, "true" if pool.holds else "false", pool.verdict]
        if _percentile_names(found):
            row += [value for one in shown for value in _percentiles_of(one)]
        row += [value for metric in own for value in _own_values(pool.own.get(metric))]
        writer.writerow([spreadsheet_text(value) for value in row])
    return text.getvalue()


_HEAD = ("server", "accelerator", "numReplicas", "replicaRate")
_TAIL = (
    "throughput", "loss", "preemptions", "withinTTFT", "withinITL", "withinE2E", "withinAll", "goodput",
    "holds", "verdict",
)  # fmt: skip
_OWN = (("predicted ", ""), ("", ""), ("", " half-width"))
"""What stands around the metrics that only some kinds of replicas have."""


def _own_values(found: SimulatedFigure | None) -> tuple[float | None, float | None, float | None]:
    if found is None:
        return None, None, None
    return found.predicted, found.simulated.value, found.simulated.half_width


def _percentile_names(found: Simulation) -> list[str]:
    """Return the headings of predicted percentiles; none where no queue model knows them."""
    latencies = [getattr(pool, name) for pool in found.pools for name in LATENCIES]
    known = any(one is not None and one.predicted_percentiles is not None for one in latencies)
    names = [f"{statistic.upper()}{name.upper()}" for name in LATENCIES for statistic in PERCENTILES]
    return [f"predicted{name}" for name in names] if known else []


def _percentiles_of(latency: SimulatedLatency | None) -> list[float | None]:
    """Return the predicted percentiles of a latency, empty where they are not known."""
    known = None if latency is None else latency.predicted_percentiles
    return [None if known is None else getattr(known, f"{name}_ms") for name in PERCENTILES]


def _value(figure: Interval | None) -> float | None:
    return None if figure is None else figure.value
