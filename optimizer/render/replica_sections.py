"""Sections on the performance of single replicas."""

from collections.abc import Callable, Iterable
from typing import Any

from optimizer.kinds.batch_servers.rows import BatchAnswer, BatchSimulation, BatchSizing
from optimizer.kinds.replicas import LatencyTargets, Percentiles, ReplicaPerformance, ReplicaSizing
from optimizer.kinds.rows import OverloadedReplica
from optimizer.kinds.simulated import ReplicaSimulation
from optimizer.profiles.replicas import EstimatedReplica
from optimizer.quantities import precise, quantity, significant
from optimizer.queueing.measures import LATENCIES, METRICS
from optimizer.render.estimates import estimate_note, marked
from optimizer.render.explanation_text import part_text
from optimizer.section import Column, FormattedValue, Section, name, sentence, table, words
from optimizer.simulation.summary import PERCENTILES

_SIX, _SEVEN = significant(6), significant(7)
_Metric = tuple[str, Any, str | Callable[[Any], str], str]
"""Heading, value, format and unit of a metric."""
_Simulated = ReplicaSimulation | BatchSimulation


def _metrics(title: str, rows: Iterable[_Metric]) -> Section:
    """Return a section with a table of metrics; each metric has its own format and unit."""

    def value(row: _Metric) -> FormattedValue:
        return FormattedValue(Column(row[0], form=row[2]).written(row[1]), row[1])

    columns = words("figure", lambda row: row[0]), Column("value", value), words("unit", lambda row: row[3])
    return table(title, columns, rows, "performance")


def performance_section(
    replica_performance: ReplicaPerformance, named: EstimatedReplica | None = None, title: str = "One replica"
) -> Section:
    """Return the section with the performance of one replica.

    Args:
        named: the estimated deployment, if the token times are estimated.
        title: title of the section.
    """
    rows: list[_Metric] = [
        *([] if named is None else _estimated(named)),
        ("offered rate", replica_performance.offered_rps, _SIX, "req/s"),
        ("throughput", replica_performance.throughput_rps, _SIX, "req/s"),
        ("largest stable rate", replica_performance.stable_rate_rps, _SIX, "req/s"),
        ("lost", replica_performance.loss, ".4%", ""),
        ("TTFT, with wait", replica_performance.ttft_ms, _SIX, "ms"),
        ("ITL", replica_performance.itl_ms, _SIX, "ms"),
        ("wait", replica_performance.wait_ms, _SIX, "ms"),
        ("prefill", replica_performance.prefill_ms, _SIX, "ms"),
        ("service", replica_performance.service_ms, _SEVEN, "ms"),
        ("response", replica_performance.response_ms, _SEVEN, "ms"),
        ("in system", replica_performance.in_service + replica_performance.in_queue, _SIX, "requests"),
        ("in the batch", replica_performance.in_service, _SIX, "requests"),
        ("waiting", replica_performance.in_queue, _SIX, "requests"),
        ("utilisation", replica_performance.utilization, quantity, "of the batch limit"),
        ("p(empty)", replica_performance.p_empty, ".5g", ""),
        ("p(full)", replica_performance.loss, ".5g", ""),
    ]
    for metric in LATENCIES:
        for percentile, value in getattr(replica_performance, f"{metric}_percentiles") or ():
            rows.append((f"{METRICS[metric].label}, {percentile[:-3]}", value, _SIX, "ms"))
    section = _metrics(title, rows)
    if named is not None:
        section.notes.extend([estimate_note([named.end], is_marked=True), *named.estimate.warnings])
    return section


def _estimated(named: EstimatedReplica) -> list[_Metric]:
    """Return the rows that describe the deployment for which the performance was estimated."""
    said = named.document()
    return [
        ("model", said["model"], "", ""),
        ("accelerator", marked(f"{said['accelerator']}, tp {said['tp']}", named.end), "", ""),
        ("weights", f"{said['weights']}, cache {said['cache']}", "", ""),
        ("input length", said["inTokens"], ",.10g", "tokens"),
        ("output length", said["outTokens"], ",.10g", "tokens"),
        ("batch limit", said["maxBatch"], ",.10g", "requests"),
        ("KV capacity", said["kvCapacity"], ",.10g", "tokens"),
    ]


def performance_sections(
    answer: ReplicaPerformance | BatchAnswer,
    simulated: _Simulated | OverloadedReplica | None,
    named: EstimatedReplica | None = None,
) -> list[Section]:
    """Return the sections with the performance of one replica, compared with a simulation if there is one."""
    if isinstance(answer, BatchAnswer):
        names = ("latency", "mean_ms"), *((f"latency, p{p}", f"p{p}_ms") for p in PERCENTILES)
        pairs = [(label, getattr(answer, field), field) for label, field in names]
        return [_batch_section(answer), *_simulation(simulated, pairs)]
    rows: list[tuple[str, float | None, str]] = []
    for metric in LATENCIES:
        label, percentiles = METRICS[metric].label, getattr(answer, f"{metric}_percentiles")
        predicted = answer.response_ms if metric == "e2e" else getattr(answer, f"{metric}_ms")
        rows.append((label, predicted, f"{metric}_ms"))
        for percentile in Percentiles.model_fields:
            value = None if percentiles is None else getattr(percentiles, percentile)
            rows.append((f"{label}, {percentile[:-3]}", value, f"{percentile[:-3]}_{metric}_ms"))
    return [performance_section(answer, named), *_simulation(simulated, rows)]


def _batch_section(batch_answer: BatchAnswer) -> Section:
    """Return the section with the performance of a batch server at its load."""
    lowest = batch_answer.lowest_rps if isinstance(batch_answer, BatchSizing) else None
    rows: list[_Metric] = [
        ("lowest rate that meets the targets", lowest, _SIX, "req/s"),
        ("offered rate" if lowest is None else "largest rate", batch_answer.offered_rps, _SIX, "req/s"),
        ("throughput", batch_answer.throughput_rps, _SIX, "req/s"),
        ("largest stable rate", batch_answer.stable_rate_rps, _SIX, "req/s"),
        ("rejected", batch_answer.rejected, ".4%", ""),
        ("latency, mean", batch_answer.mean_ms, _SIX, "ms"),
        *((f"latency, p{p}", getattr(batch_answer, f"p{p}_ms"), _SIX, "ms") for p in PERCENTILES),
        ("latency, p99.9", batch_answer.p999_ms, _SIX, "ms"),
        ("wait", batch_answer.wait_ms, _SIX, "ms"),
        ("load", batch_answer.utilization, quantity, "of full batches"),
        ("busy", batch_answer.busy, quantity, "of the time"),
        ("mean batch", batch_answer.mean_batch, _SIX, "requests"),
    ]
    section = _metrics("One batch server", (row for row in rows if row[1] is not None))
    if batch_answer.binding is not None:
        section.notes.append(f"{part_text(batch_answer.binding).capitalize()} is the bottleneck.")
    return section


def _simulation(
    simulated: _Simulated | OverloadedReplica | None, rows: Iterable[tuple[str, float | None, str]]
) -> list[Section]:
    """Return the section that compares predicted with simulated latencies.

    Args:
        simulated: the simulation; None without one.
        rows: label, predicted value [ms] and field of the simulation for each latency.
    """
    if simulated is None:
        return []
    if isinstance(simulated, OverloadedReplica):
        return [sentence(f"Simulated: {simulated.overload}", "yellow")]
    columns = (
        name("figure", lambda row: row[0]),
        Column("predicted", lambda row: row[1], "ms", _SIX),
        Column("simulated", lambda row: getattr(simulated, row[2]), "ms", _SIX),
        Column("half-width", lambda row: getattr(simulated.half_width, row[2]), "ms", significant(3)),
    )
    return [table("Simulated", columns, rows)]


def sizing_sections(
    sizing: ReplicaSizing, targets: LatencyTargets, named: EstimatedReplica | None = None
) -> list[Section]:
    """Return the sections with the maximum rate of a replica, by target, and the performance at that rate."""
    of = "" if targets.percentile is None else f"p{targets.percentile:g} "
    rates = (
        (f"{of}TTFT of {precise(targets.ttft_ms)} ms alone", targets.ttft_ms, sizing.rate_ttft_rps),
        (f"{of}ITL of {precise(targets.itl_ms)} ms alone", targets.itl_ms, sizing.rate_itl_rps),
        (f"{of}end to end in {precise(targets.e2e_ms)} ms alone", targets.e2e_ms, sizing.rate_e2e_rps),
        ("throughput target alone", targets.tps, sizing.rate_tps_rps),
        ("all targets", True, sizing.max_rate_rps),
    )
    columns = (
        words("by", lambda row: marked(row[0], None if named is None else named.end)),
        Column("rate", lambda row: row[2], "req/s", _SEVEN),
        Column("rate", lambda row: row[2] * 60, "req/min", _SEVEN),
    )
    rows = (row for row in rates if row[1] and row[2] is not None)
    return [
        table("Largest rate", columns, rows, "rates"),
        performance_section(sizing.at_max_rate, named, "At the largest rate"),
    ]
