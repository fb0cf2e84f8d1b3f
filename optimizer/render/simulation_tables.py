"""A simulation of a plan as a table for the terminal, and as rows for a spreadsheet."""

import csv
import io
from collections.abc import Sequence

from rich.console import Group, RenderableType

from optimizer.quantities import counted, quantity
from optimizer.queueing.measures import LatencyName
from optimizer.render import columns
from optimizer.render.estimates import marked
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
    SimulatedLatency,
    SimulatedPool,
    Simulation,
    TargetCheck,
)

PERCENTILES = ("p50", "p90", "p95", "p99")
STATISTICS = ("mean", *PERCENTILES)
LATENCY = "latency"
"""What the one of a batch server is called."""


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
    shown = shown_latencies(found.pools)
    table = Table("Pools", columns.simulated_pools([(label, digits) for label, _, digits in shown]))
    for pool in found.pools:
        table.add_row(
            pool.server,
            marked(pool.accelerator, pool.estimated),
            pool.num_replicas,
            pool.rate_rps,
            *(figure for label, name, digits in shown for figure in _figures(pool, label, name, digits)),
            pool.within_all.value,
            SHORT_VERDICTS[pool.verdict],
        )
    return table


def shown_latencies(pools: Sequence[SimulatedPool]) -> list[tuple[str, LatencyName, int]]:
    """Return what latencies are called, their fields, and digits: of tokens, of batch servers, or both."""
    found: list[tuple[str, LatencyName, int]] = []
    if not pools or not all(pool.answers_together for pool in pools):
        found += [("TTFT", "ttft", 0), ("ITL", "itl", 1)]
    if any(pool.answers_together for pool in pools):
        found.append((LATENCY, "e2e", 0))
    return found


def _figures(
    pool: SimulatedPool, label: str, name: LatencyName, digits: int
) -> tuple[float | Said | None, ...]:
    """Return the mean and percentiles of a latency that a pool has, each as planned and as simulated."""
    latency: SimulatedLatency | None = getattr(pool, name)
    if latency is None or pool.answers_together != (label == LATENCY):
        return (None,) * 6
    _, _, p95, p99 = _percentiles_of(latency)
    simulated = Said(with_width(latency.mean, digits), latency.mean.value)
    return latency.predicted_mean, simulated, p95, latency.p95.value, p99, latency.p99.value


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
    latencies = ("ttft", "itl", "e2e")
    figures = [f"{statistic}{name.upper()}" for name in latencies for statistic in STATISTICS]
    widths = [f"{figure}HalfWidth" for figure in figures]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["server", "accelerator", "numReplicas", "replicaRate"]
    tail = [
        "throughput",
        "loss",
        "preemptions",
        "withinTTFT",
        "withinITL",
        "withinE2E",
        "withinAll",
        "goodput",
        "holds",
        "verdict",
    ]
    predicted = [f"predicted{name.upper()}" for name in latencies]
    writer.writerow([*head, *predicted, *figures, *widths, *tail, *_percentile_names(found)])
    for pool in found.pools:
        shown = [
            None if pool.answers_together and name != "e2e" else getattr(pool, name) for name in latencies
        ]
        cells = [getattr(one, name, None) for one in shown for name in STATISTICS]
        shares = [
            _value(share) for share in (pool.within_ttft, pool.within_itl, pool.within_e2e, pool.within_all)
        ]
        row = [pool.server, pool.accelerator, pool.num_replicas, pool.rate_rps]
        row += [None if one is None else one.predicted_mean for one in shown]
        row += [_value(cell) for cell in cells]
        row += [None if cell is None else cell.half_width for cell in cells]
        row += [pool.throughput_rps.value, pool.loss.value, pool.preemptions, *shares, pool.goodput_rps]
        row += ["true" if pool.holds else "false", pool.verdict]
        if _percentile_names(found):
            row += [value for one in shown for value in _percentiles_of(one)]
        writer.writerow([spreadsheet_text(value) for value in row])
    return text.getvalue()


def _percentile_names(found: Simulation) -> list[str]:
    """Return the headings of predicted percentiles; none where no queue model knows them."""
    known = any(
        latency is not None and latency.predicted_percentiles is not None
        for pool in found.pools
        for latency in (pool.ttft, pool.itl, pool.e2e)
    )
    names = [f"{statistic.upper()}{name}" for name in ("TTFT", "ITL", "E2E") for statistic in PERCENTILES]
    return [f"predicted{name}" for name in names] if known else []


def _percentiles_of(latency: SimulatedLatency | None) -> list[float | None]:
    """Return the predicted percentiles of a latency, empty where they are not known."""
    known = None if latency is None else latency.predicted_percentiles
    return [None if known is None else getattr(known, f"{name}_ms") for name in PERCENTILES]


def _value(figure: Interval | None) -> float | None:
    return None if figure is None else figure.value
