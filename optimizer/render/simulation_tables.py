"""A simulation of a plan as a table for the terminal, and as rows for a spreadsheet."""

import csv
import io

from rich.console import Group, RenderableType

from optimizer.render import columns
from optimizer.render.estimates import marked
from optimizer.render.money import Money
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

STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def simulation_tables(found: Simulation) -> Group:
    """Return a simulation as tables: predicted beside simulated, and the targets that are missed."""
    parts: list[RenderableType] = [_headline(found), _pools(found)]
    missed = [pool for pool in found.pools if not pool.holds]
    if missed:
        parts.append(_missed(missed))
    return Group(*parts)


def _headline(found: Simulation) -> Group:
    held = sum(pool.holds for pool in found.pools)
    return Group(
        Paragraph(
            f"{held} of {len(found.pools)} pools keep their targets", "green" if found.holds else "yellow"
        ),
        Paragraph(
            f"goodput {found.goodput_rps:,.4g} of {found.offered_rps:,.4g} requests/s, "
            f"{found.requests:,} requests to one replica of each pool, seed {found.seed}\n"
        ),
    )


def _pools(found: Simulation) -> Table:
    table = Table("Pools", columns.SIMULATED_POOLS)
    for pool in found.pools:
        table.add_row(
            pool.server,
            marked(pool.accelerator, pool.estimated),
            pool.num_replicas,
            pool.rate_rps,
            *_figures(pool.ttft, 0),
            *_figures(pool.itl, 1),
            pool.within_all.value,
            "yes" if pool.holds else "no",
        )
    return table


def _figures(latency: SimulatedLatency | None, digits: int) -> tuple[float | Said | None, ...]:
    """Return the mean as planned and as simulated, and percentiles."""
    if latency is None:
        return None, None, None, None
    mean = latency.mean
    width = "" if mean.half_width is None else f" ±{mean.half_width:,.{digits}f}"
    simulated = Said(f"{mean.value:,.{digits}f}{width}", mean.value)
    return latency.predicted_mean, simulated, latency.p95.value, latency.p99.value


def _missed(pools: list[SimulatedPool]) -> Table:
    table = Table("Targets that are missed", columns.SIMULATED_MISSES, "missed")
    for pool in pools:
        for check in pool.targets:
            if not check.met:
                simulated, over = None, None
                if not pool.overload:
                    simulated = Said(_with_width(check.simulated), check.simulated.value)
                    over = None if check.limit <= 0 else check.simulated.value / check.limit - 1
                table.add_row(
                    pool.server, pool.accelerator, check.target, check.limit, simulated, over, pool.overload
                )
        if pool.overload and all(check.met for check in pool.targets):
            table.add_row(pool.server, pool.accelerator, "steady state", None, None, None, pool.overload)
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
        else f"needs {repair.replicas_after} replicas, not {repair.replicas_before} "
        f"(x {repair.rate_factor:.3g} of the largest rate)"
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
    return f"{check.target} {_with_width(check.simulated)}, target {_number(check.limit)}{over}"


def _with_width(figure: Interval) -> str:
    return _number(figure.value) + ("" if figure.half_width is None else f" ±{_number(figure.half_width)}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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
    ]
    predicted = [f"predicted{name.upper()}" for name in latencies]
    writer.writerow([*head, *predicted, *figures, *widths, *tail])
    for pool in found.pools:
        shown = [getattr(pool, name) for name in latencies]
        cells = [getattr(one, name, None) for one in shown for name in STATISTICS]
        shares = [
            _value(share) for share in (pool.within_ttft, pool.within_itl, pool.within_e2e, pool.within_all)
        ]
        row = [pool.server, pool.accelerator, pool.num_replicas, pool.rate_rps]
        row += [None if one is None else one.predicted_mean for one in shown]
        row += [_value(cell) for cell in cells]
        row += [None if cell is None else cell.half_width for cell in cells]
        row += [pool.throughput_rps.value, pool.loss.value, pool.preemptions, *shares, pool.goodput_rps]
        writer.writerow([spreadsheet_text(value) for value in (*row, "true" if pool.holds else "false")])
    return text.getvalue()


def _value(figure: Interval | None) -> float | None:
    return None if figure is None else figure.value
