"""Tables of single replicas, and of how long planning takes; every number with its unit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchSimulation, BatchSizing
from optimizer.kinds.replicas import LatencyTargets, Percentiles, ReplicaPerformance, ReplicaSizing
from optimizer.kinds.rows import Overload
from optimizer.kinds.simulated import ReplicaSimulation
from optimizer.profiles.replicas import EstimatedReplica
from optimizer.quantities import precise, quantity, significant
from optimizer.queueing.measures import LATENCIES, METRICS
from optimizer.render import columns
from optimizer.render.columns import Column
from optimizer.render.estimates import estimate_note, marked
from optimizer.render.explanation_words import part_text
from optimizer.render.tables import Paragraph, Said, Table

_SIX, _SEVEN = significant(6), significant(7)
_Row = tuple[str, Any, str | Callable[[Any], str], str]
"""A figure, its value, its form, and its unit."""


def performance_table(
    found: ReplicaPerformance, named: EstimatedReplica | None = None, title: str = "One replica"
) -> Table:
    """Return the performance of one replica as a table of figures with their units."""
    table = Table(title, columns.FIGURES, "performance")
    if named is not None:
        _add_estimate(table, named)
    rows: list[_Row] = [
        ("offered rate", found.offered_rps, _SIX, "req/s"),
        ("throughput", found.throughput_rps, _SIX, "req/s"),
        ("largest stable rate", found.stable_rate_rps, _SIX, "req/s"),
        ("lost", found.loss, ".4%", ""),
        ("TTFT, with wait", found.ttft_ms, _SIX, "ms"),
        ("ITL", found.itl_ms, _SIX, "ms"),
        ("wait", found.wait_ms, _SIX, "ms"),
        ("prefill", found.prefill_ms, _SIX, "ms"),
        ("service", found.service_ms, _SEVEN, "ms"),
        ("response", found.response_ms, _SEVEN, "ms"),
        ("in system", found.in_service + found.in_queue, _SIX, "requests"),
        ("in the batch", found.in_service, _SIX, "requests"),
        ("waiting", found.in_queue, _SIX, "requests"),
        ("utilisation", found.utilization, quantity, "of the batch limit"),
        ("p(empty)", found.p_empty, ".5g", ""),
        ("p(full)", found.loss, ".5g", ""),
    ]
    for metric in LATENCIES:
        for name, value in getattr(found, f"{metric}_percentiles") or ():
            rows.append((f"{METRICS[metric].label}, {name[:-3]}", value, _SIX, "ms"))
    for figure, value, form, unit in rows:
        table.add_row(figure, Said(Column(figure, form=form).written(value), value), unit)
    return table


def _add_estimate(table: Table, named: EstimatedReplica) -> None:
    """Say in a table what its figures were estimated for."""
    said = named.document()
    cards = marked(f"{said['accelerator']}, tp {said['tp']}", named.end)
    formats = f"{said['weights']}, cache {said['cache']}"
    for name, text in (("model", said["model"]), ("accelerator", cards), ("weights", formats)):
        table.add_row(name, Said(text, text), "")
    for name, key, unit in (
        ("input length", "inTokens", "tokens"),
        ("output length", "outTokens", "tokens"),
        ("batch limit", "maxBatch", "requests"),
        ("KV capacity", "kvCapacity", "tokens"),
    ):
        table.add_row(name, Said(f"{said[key]:,.10g}", said[key]), unit)
    table.notes.append(estimate_note(named.end))


def performance_tables(
    found: ReplicaPerformance,
    simulated: ReplicaSimulation | Overload | None,
    named: EstimatedReplica | None = None,
) -> RenderableType:
    """Return the performance of one replica, and beside it what was simulated, if it was."""
    performance = performance_table(found, named)
    if simulated is None:
        return performance
    if isinstance(simulated, Overload):
        return Group(performance, Paragraph(f"Simulated: {simulated.overload}", "yellow"))
    table = Table("Simulated", columns.SIMULATED_FIGURES, "simulated")
    for metric in LATENCIES:
        label = METRICS[metric].label
        predicted = found.response_ms if metric == "e2e" else getattr(found, f"{metric}_ms")
        table.add_row(label, predicted, *_simulated(simulated, f"{metric}_ms"))
        percentiles = getattr(found, f"{metric}_percentiles")
        for name in Percentiles.model_fields:
            value = None if percentiles is None else getattr(percentiles, name)
            figures = _simulated(simulated, f"{name[:-3]}_{metric}_ms")
            table.add_row(f"{label}, {name[:-3]}", value, *figures)
    return Group(performance, table)


def batch_tables(found: BatchAnswer, simulated: BatchSimulation | Overload | None) -> RenderableType:
    """Return what a batch server does at a rate, or at its largest, and beside it what was simulated."""
    table = Table("One batch server", columns.FIGURES, "performance")
    lowest = found.lowest_rps if isinstance(found, BatchSizing) else None
    rows: list[_Row] = [
        ("lowest rate that meets the targets", lowest, _SIX, "req/s"),
        ("offered rate" if lowest is None else "largest rate", found.offered_rps, _SIX, "req/s"),
        ("throughput", found.throughput_rps, _SIX, "req/s"),
        ("largest stable rate", found.stable_rate_rps, _SIX, "req/s"),
        ("rejected", found.rejected, ".4%", ""),
        ("latency, mean", found.mean_ms, _SIX, "ms"),
        ("latency, p50", found.p50_ms, _SIX, "ms"),
        ("latency, p90", found.p90_ms, _SIX, "ms"),
        ("latency, p95", found.p95_ms, _SIX, "ms"),
        ("latency, p99", found.p99_ms, _SIX, "ms"),
        ("latency, p99.9", found.p999_ms, _SIX, "ms"),
        ("wait", found.wait_ms, _SIX, "ms"),
        ("load", found.utilization, quantity, "of full batches"),
        ("busy", found.busy, quantity, "of the time"),
        ("mean batch", found.mean_batch, _SIX, "requests"),
    ]
    for figure, value, form, unit in rows:
        if value is not None:
            table.add_row(figure, Said(Column(figure, form=form).written(value), value), unit)
    if found.binding is not None:
        table.notes.append(f"Of its parts, {part_text(found.binding)} can serve the least.")
    if simulated is None:
        return table
    if isinstance(simulated, Overload):
        return Group(table, Paragraph(f"Simulated: {simulated.overload}", "yellow"))
    beside = Table("Simulated", columns.SIMULATED_FIGURES, "simulated")
    for label, name in (("latency", "mean_ms"), *((f"latency, p{p}", f"p{p}_ms") for p in (50, 90, 95, 99))):
        beside.add_row(label, getattr(found, name), *_simulated(simulated, name))
    return Group(table, beside)


def _simulated(simulated: ReplicaSimulation | BatchSimulation, name: str) -> tuple[float, float]:
    return getattr(simulated, name), getattr(simulated.half_width, name)


def sizing_tables(
    sizing: ReplicaSizing, targets: LatencyTargets, named: EstimatedReplica | None = None
) -> Group:
    """Return the largest rate of a replica, target by target, and the performance there."""
    table = Table("Largest rate", columns.RATES, "rates")
    of = "" if targets.percentile is None else f"p{targets.percentile:g} "
    for name, asked, rate in (
        (f"{of}TTFT of {precise(targets.ttft_ms)} ms alone", targets.ttft_ms, sizing.rate_ttft_rps),
        (f"{of}ITL of {precise(targets.itl_ms)} ms alone", targets.itl_ms, sizing.rate_itl_rps),
        (f"{of}end to end in {precise(targets.e2e_ms)} ms alone", targets.e2e_ms, sizing.rate_e2e_rps),
        ("throughput target alone", targets.tps, sizing.rate_tps_rps),
        ("all targets", True, sizing.max_rate_rps),
    ):
        if asked and rate is not None:
            table.add_row(marked(name, None if named is None else named.end), rate, rate * 60)
    return Group(table, performance_table(sizing.at_max_rate, named, "At the largest rate"))


def bench_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return measurements, at least one, as a table, one row a size."""
    stages = tuple(rows[0]["stages_ms"])
    table = Table("Median time of each stage", columns.bench_columns(stages), "stages")
    for row in rows:
        table.add_row(
            f"{row['servers']} x {row['accelerators']}",
            row["columns"],
            *(row["stages_ms"][stage] for stage in stages),
            row["gap"],
            row["service_gap"],
            f"{row['complete']} of {row['repeats']}",
            f"{row['proved']} of {row['repeats']}",
            row["peak_memory_mib"],
        )
    return table
