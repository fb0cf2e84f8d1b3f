"""Tables for the terminal, from plans, candidates and single replicas; every number with its unit."""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from optimizer.candidates import Candidates
from optimizer.plan import Plan
from optimizer.queueing.measures import LATENCIES, METRICS
from optimizer.render.estimates import estimates_note, marked
from optimizer.render.money import Money
from optimizer.render.text import printable
from optimizer.replica import LatencyTargets, ReplicaPerformance, ReplicaSizing
from optimizer.spec.system import System
from optimizer.studies.figures.document import share_text

WIDTH_WITHOUT_TERMINAL = 160


def show(renderable: RenderableType, file: IO[str]) -> None:
    """Write tables to a file: in colour at a terminal, as plain text of a fixed width elsewhere."""
    if file.isatty():
        Console(file=file, highlight=False, markup=False, emoji=False).print(renderable)
        return
    text = io.StringIO()
    Console(file=text, width=WIDTH_WITHOUT_TERMINAL, highlight=False, markup=False, emoji=False).print(
        renderable
    )
    file.write(text.getvalue())


def plan_tables(plan: Plan, system: System) -> Group:
    """Return a plan as tables: allocations against targets, units, and what could not be served."""
    parts: list[RenderableType] = [_headline(plan, system), _allocations(plan, system), _capacity(plan)]
    note = estimates_note(plan)
    if note:
        parts.append(Text(f"{note}\n"))
    if plan.unserved:
        parts.append(_unserved(plan))
    open_levels = [level for level in plan.levels if level.gap]
    if open_levels:
        parts.append(_levels(plan))
    return Group(*parts)


class _PlainTable(Table):
    """A table whose cells are shown as they are, whatever names hold."""

    def add_row(self, *cells: RenderableType | None, **style: Any) -> None:
        """Add a row of text; characters that steer a terminal are shown as a question mark."""
        super().add_row(*(Text(printable(str(cell))) for cell in cells), **style)


def empty_table(title: str, columns: Iterable[tuple[str, bool]]) -> Table:
    """Return an empty table; a column is its heading and whether it holds numbers."""
    table = _PlainTable(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for heading, numeric in columns:
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    return table


def _headline(plan: Plan, system: System) -> Text:
    served = len(system.servers) - len(plan.unserved)
    proof = {
        "optimal": "proved within the gap" if plan.gap else "proved optimal",
        "feasible": "the solver stopped early",
        "heuristic": "found by a heuristic, without proof",
    }[plan.status]
    gap = "" if plan.gap is None else f", gap {_percent(plan.gap)}"
    mode = "unlimited" if system.options.unlimited else "limited"
    style = "green" if plan.complete else "yellow"
    text = Text(Money.of(plan).text(plan.total_cost_cents_per_h), style="bold")
    text.append(f"   {mode} plan, {proof}{gap}   ", style="default")
    text.append(f"{served} of {len(system.servers)} servers served in full", style=style)
    text.append(f", {len(plan.changes)} changed\n", style="default")
    return text


def _allocations(plan: Plan, system: System) -> Table:
    money = Money.of(plan)
    table = empty_table(
        "Allocations",
        [
            ("server", False),
            ("prio", True),
            ("accelerator", False),
            ("replicas", True),
            ("batch", True),
            ("load\nreq/min", True),
            ("capacity\nreq/min", True),
            ("ITL ms\n(target)", True),
            ("TTFT ms\n(target)", True),
            ("util", True),
            (f"cost\n{money.unit}", True),
        ],
    )
    order = sorted(plan.allocations, key=lambda name: (system.priority(system.servers[name]), name))
    for name in order:
        server = system.servers[name]
        target = system.targets.get((server.service_class, server.model))
        priority = str(system.priority(server))
        if not plan.allocations[name]:
            table.add_row(name, priority, "idle", *["-"] * 7, "0.00")
        for i, pool in enumerate(plan.allocations[name]):
            loss = f" ({_percent(pool.loss)} lost)" if pool.loss > 1e-4 else ""
            table.add_row(
                name if i == 0 else "",
                priority if i == 0 else "",
                marked(pool.accelerator, pool.estimated),
                str(pool.num_replicas),
                str(pool.max_batch),
                f"{pool.arrival_rate_rpm:,.4g}{loss}",
                f"{pool.max_arrival_rate_rpm:,.4g}",
                f"{pool.itl_ms:,.1f} ({_target(target.itl_ms if target else 0)})",
                f"{pool.ttft_ms:,.0f} ({_target(target.ttft_ms if target else 0)})",
                f"{pool.utilization:.0%}",
                money.amount(pool.cost_cents_per_h),
            )
    return table


def _target(value: float) -> str:
    return f"{value:g}" if value else "none"


def _percent(share: float) -> str:
    return f"{share:.2g}" if share < 1e-4 and share else f"{share:.2%}"


def _capacity(plan: Plan) -> Table:
    table = empty_table(
        "Units by accelerator type", [("type", False), ("used", True), ("exist", True), ("left", True)]
    )
    for item in plan.capacity:
        limit = item.limit
        table.add_row(
            item.type,
            f"{item.used:,}",
            "unlimited" if limit is None else f"{limit:,}",
            "-" if limit is None else f"{limit - item.used:,}",
        )
    return table


def _unserved(plan: Plan) -> Table:
    table = empty_table(
        "Not served in full",
        [("server", False), ("prio", True), ("served", True), ("reason", False), ("detail", False)],
    )
    for item in sorted(plan.unserved, key=lambda item: (item.priority, item.server)):
        table.add_row(
            item.server, str(item.priority), share_text(item.served_fraction), item.reason, item.detail
        )
    return table


def _levels(plan: Plan) -> Table:
    table = empty_table(
        "Objectives not closed", [("objective", False), ("reached", True), ("bound", True), ("gap", True)]
    )
    money = Money.of(plan)
    for level in plan.levels:
        if level.gap:
            in_money = level.name == "value"
            reached = money.amount(level.value) if in_money else f"{level.value:,.2f}"
            bound = "-"
            if level.bound is not None:
                bound = money.amount(level.bound) if in_money else f"{level.bound:,.2f}"
            table.add_row(level.name, reached, bound, _percent(level.gap))
    return table


def candidate_tables(candidates: Candidates) -> Group:
    """Return the candidates and the rejected pairs of a system as tables."""
    arrays, rows, money = candidates.arrays, candidates.table, Money(candidates.system.currency)
    table = empty_table(
        f"Candidates ({len(rows)})",
        [
            ("server", False),
            ("accelerator", False),
            ("replicas", True),
            ("batch", True),
            ("rate per replica\nreq/min", True),
            ("ITL\nms", True),
            ("TTFT\nms", True),
            ("units", True),
            (f"cost\n{money.unit}", True),
        ],
    )
    units, cost = rows.units, rows.cost_cents_per_h
    for c in range(len(rows)):
        table.add_row(
            arrays.server_names[rows.server[c]],
            marked(
                arrays.accelerator_names[rows.accelerator[c]],
                candidates.estimated(int(rows.server[c]), int(rows.accelerator[c])),
            ),
            str(rows.num_replicas[c]),
            str(rows.max_batch[c]),
            f"{rows.max_rate_rps[c] * 60:,.4g}",
            f"{rows.itl_ms[c]:,.1f}",
            f"{rows.ttft_ms[c]:,.0f}",
            f"{units[c]:,} {arrays.type_names[rows.kind[c]]}",
            money.amount(cost[c]),
        )
    rejected = empty_table(
        "Rejected pairs", [("server", False), ("accelerator", False), ("reason", False), ("detail", False)]
    )
    for item in candidates.rejections():
        rejected.add_row(item.server, item.accelerator, item.reason, item.detail)
    return Group(table, rejected) if rejected.row_count else Group(table)


def performance_table(found: ReplicaPerformance, title: str = "One replica") -> Table:
    """Return the performance of one replica as a table of figures with their units."""
    table = empty_table(title, [("figure", False), ("value", True), ("unit", False)])
    rows = [
        ("offered rate", f"{found.offered_rps:.6g}", "req/s"),
        ("throughput", f"{found.throughput_rps:.6g}", "req/s"),
        ("largest stable rate", f"{found.stable_rate_rps:.6g}", "req/s"),
        ("lost", f"{found.loss:.4%}", ""),
        ("TTFT, with wait", f"{found.ttft_ms:.6g}", "ms"),
        ("ITL", f"{found.itl_ms:.6g}", "ms"),
        ("wait", f"{found.wait_ms:.6g}", "ms"),
        ("prefill", f"{found.prefill_ms:.6g}", "ms"),
        ("service", f"{found.service_ms:.7g}", "ms"),
        ("response", f"{found.response_ms:.7g}", "ms"),
        ("in system", f"{found.in_service + found.in_queue:.6g}", "requests"),
        ("in the batch", f"{found.in_service:.6g}", "requests"),
        ("waiting", f"{found.in_queue:.6g}", "requests"),
        ("utilisation", f"{found.utilization:.4g}", "of the batch limit"),
        ("p(empty)", f"{found.p_empty:.5g}", ""),
        ("p(full)", f"{found.loss:.5g}", ""),
    ]
    for metric in LATENCIES:
        percentiles = getattr(found, f"{metric}_percentiles")
        if percentiles is not None:
            label = METRICS[metric].label
            rows += [(f"{label}, {name[:-3]}", f"{value:.6g}", "ms") for name, value in percentiles]
    for row in rows:
        table.add_row(*row)
    return table


def sizing_tables(sizing: ReplicaSizing, targets: LatencyTargets) -> Group:
    """Return the largest rate of a replica, target by target, and the performance there."""
    table = empty_table("Largest rate", [("by", False), ("req/s", True), ("req/min", True)])
    of = "" if targets.percentile is None else f"p{targets.percentile:g} "
    for name, asked, rate in (
        (f"{of}TTFT of {targets.ttft_ms:g} ms alone", targets.ttft_ms, sizing.rate_ttft_rps),
        (f"{of}ITL of {targets.itl_ms:g} ms alone", targets.itl_ms, sizing.rate_itl_rps),
        (f"{of}end to end in {targets.e2e_ms:g} ms alone", targets.e2e_ms, sizing.rate_e2e_rps),
        ("throughput target alone", targets.tps, sizing.rate_tps_rps),
        ("all targets", True, sizing.max_rate_rps),
    ):
        if asked and rate is not None:
            table.add_row(name, f"{rate:.7g}", f"{rate * 60:.7g}")
    return Group(table, performance_table(sizing.at_max_rate, "At the largest rate"))


def bench_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return measurements, at least one, as a table, one row a size."""
    stages = list(rows[0]["stages_ms"])
    table = empty_table(
        "Median time of each stage",
        [
            ("servers x\naccelerators", False),
            ("columns", True),
            *((f"{stage}\nms", True) for stage in stages),
            ("largest\ngap", True),
            ("complete\nplans", True),
            ("peak memory\nMiB", True),
        ],
    )
    for row in rows:
        table.add_row(
            f"{row['servers']} x {row['accelerators']}",
            f"{row['columns']:,}",
            *(f"{row['stages_ms'][stage]:,.1f}" for stage in stages),
            _percent(row["gap"]),
            f"{row['complete']} of {row['repeats']}",
            f"{row['peak_memory_mib']:,.0f}",
        )
    return table
