"""Tables of estimated profiles, of points held against measurements, and of the catalogue."""

import textwrap
from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from optimizer.profiles.catalogue import Catalogue
from optimizer.profiles.documents import entry_document
from optimizer.profiles.efficiency import VERSION
from optimizer.profiles.estimate import Estimate
from optimizer.profiles.facts import AcceleratorFacts, ModelFacts
from optimizer.profiles.intervals import Estimated
from optimizer.profiles.parameters import count_parameters
from optimizer.profiles.points import Row
from optimizer.render.tables import empty_table

_WIDTH = 78
_UNIT_OF_RATES = "ms/token"


def estimate_tables(estimate: Estimate) -> Group:
    """Return an estimate as tables: the figures with their intervals, and what they rest on."""
    parts: list[RenderableType] = [_headline(estimate), _figures(estimate)]
    if estimate.model.experts:
        parts.append(_alpha_by_batch(estimate))
    parts.append(_basis(estimate))
    return Group(*parts)


def _headline(estimate: Estimate) -> Text:
    deployment, form = estimate.deployment, estimate.iterations.format
    text = Text(f"{estimate.model.name} on {deployment.tp} x {estimate.accelerator.name}", style="bold")
    text.append("   estimated, not measured\n", style="yellow")
    rest = "" if form.dense == form.routed or not estimate.model.experts else f" experts, {form.dense} rest"
    lengths = f"{deployment.in_tokens:g} tokens in, {deployment.out_tokens:g} out"
    text.append(f"weights {form.name}{rest}, cache {deployment.cache}, {lengths}\n", style="default")
    return text


def _figures(estimate: Estimate) -> Table:
    table = empty_table(
        "Iteration law and memory",
        [("figure", False), ("estimate", True), ("low", True), ("high", True), ("unit", False)],
    )
    for label, time, unit in (
        (f"α, at batch {estimate.at_batch}" if estimate.model.experts else "α", estimate.alpha_ms, "ms"),
        ("β, per token computed", estimate.beta_ms, _UNIT_OF_RATES),
        ("γ, per cache token read", estimate.gamma_ms, _UNIT_OF_RATES),
    ):
        table.add_row(label, *_numbers(time), unit)
    tokens = estimate.kv_tokens
    table.add_row(
        "KV capacity", *(f"{int(end):,}" for end in (tokens.value, tokens.low, tokens.high)), "tokens"
    )
    batch, low = estimate.max_batch, estimate.max_batch_low
    table.add_row("largest batch", f"{batch:,}", f"{low:,}", "", "requests")
    return table


def _numbers(time: Estimated) -> tuple[str, str, str]:
    return f"{time.value:.4g}", f"{time.low:.4g}", f"{time.high:.4g}"


def _alpha_by_batch(estimate: Estimate) -> Table:
    table = empty_table(
        "α by batch: more requests choose more experts",
        [("batch", True), ("α\nms", True), ("low", True), ("high", True)],
    )
    for batch in estimate.batches:
        table.add_row(f"{batch:,}", *_numbers(estimate.alpha_at(batch)))
    return table


def _basis(estimate: Estimate) -> Text:
    spread, efficiency = estimate.spread, estimate.iterations.efficiency
    shares = efficiency.shares(estimate.accelerator.generation)
    why = ", ".join(spread.reasons)
    constants = (
        f"constants {VERSION}: weights are read at {efficiency.weight_bandwidth:.0%} of the bandwidth, "
        f"experts at {efficiency.expert_bandwidth:.0%}; 16-bit arithmetic has {shares['bf16']:.0%} of its "
        f"rate, fp8 {shares['fp8']:.0%}; software takes {efficiency.layer_ms:g} ms a layer and "
        f"{efficiency.step_ms:g} ms an iteration"
    )
    lines = [f"times may be {spread.below:g} times lower or {spread.above:g} times higher ({why})", constants]
    for what, facts in (("model", estimate.model), ("accelerator", estimate.accelerator)):
        lines.append(f"{what}: {facts.source} ({facts.as_of})")
        if facts.checked_against:
            lines.append(f"{what} checked against: {facts.checked_against}")
    text = Text("Rests on\n", style="bold")
    text.append(_wrapped(lines), style="default")
    if estimate.warnings:
        text.append("\nMind\n", style="bold yellow")
        text.append(_wrapped(estimate.warnings), style="default")
    return text


def _wrapped(lines: Iterable[str]) -> str:
    """Return lines as a list that is no wider than the tables, but for links, which stay whole."""
    return "".join(
        textwrap.fill(
            _printable(line), _WIDTH, initial_indent="- ", subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        ) + "\n"
        for line in lines
    )  # fmt: skip


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def point_tables(rows: Sequence[Row]) -> Group:
    """Return the estimates of points as a table, and how far they are from what was measured."""
    table = empty_table(
        f"Points ({len(rows)})",
        [
            ("row", True), ("model", False), ("accelerator", False), ("tp", True), ("kind", False),
            ("estimate", True), ("low", True), ("high", True), ("measured", True),
        ],
    )  # fmt: skip
    for row in rows:
        names = (str(row.number), row.given.get("model", "-"), row.given.get("accelerator", "-"))
        values = ["-"] * 3
        if row.estimated is not None:
            ends = (row.estimated.value, row.estimated.low, row.estimated.high)
            values = [f"{int(end):,}" if row.kind == "kv" else f"{end:.4g}" for end in ends]
        measured = "-" if row.measured is None else f"{row.measured:.6g}"
        table.add_row(*names, row.given.get("tp", "1"), row.kind, *values, measured)
    errors = [f"row {row.number}: {row.error}" for row in rows if row.estimated is None]
    return Group(
        table, Text(_agreement(rows)), *([Text("Not estimated\n" + _wrapped(errors))] if errors else [])
    )


def _agreement(rows: Sequence[Row]) -> str:
    both = [(row.estimated, row.measured) for row in rows if row.estimated and row.measured]
    if not both:
        return ""
    off = median(abs(estimated.value / measured - 1) for estimated, measured in both)
    inside = sum(estimated.low <= measured <= estimated.high for estimated, measured in both)
    return f"{off:.1%} off in the median; {inside} of {len(both)} measurements inside the interval\n"


def catalogue_tables(catalogue: Catalogue) -> Group:
    """Return what the catalogue holds: accelerators and models by name."""
    accelerators = empty_table(
        f"Accelerators ({len(catalogue.accelerators)})",
        [("name", False), ("memory\nGiB", True), ("bandwidth\nGB/s", True), ("16-bit\nTFLOPS", True),
         ("fp8\nTFLOPS", True), ("link\nGB/s", True), ("also", False)],
    )  # fmt: skip
    for entry in catalogue.accelerators.values():
        rates = entry.dense_tflops
        fp8 = "-" if rates.fp8 is None else f"{rates.fp8:g}"
        figures = (entry.memory_gib, entry.bandwidth_gb_per_s, rates.bf16)
        also = entry.aliases[0] if entry.aliases else ""
        accelerators.add_row(
            entry.name, *(f"{value:g}" for value in figures), fp8, f"{entry.link_gb_per_s:g}", also
        )
    models = empty_table(
        f"Models ({len(catalogue.models)})",
        [
            ("name", False),
            ("parameters\n10^9", True),
            ("layers", True),
            ("experts", True),
            ("published\nin", False),
            ("also", False),
        ],
    )
    for model in catalogue.models.values():
        experts = str(model.experts.count) if model.experts else "-"
        size = f"{count_parameters(model).total / 1e9:.2f}"
        also = model.aliases[0] if model.aliases else ""
        models.add_row(model.name, size, str(model.layers), experts, model.checkpoint, also)
    return Group(accelerators, models)


def entry_tables(entry: AcceleratorFacts | ModelFacts) -> Group:
    """Return an entry of the catalogue: every value, and where it comes from."""
    table = empty_table(entry.name, [("value", False), ("", False)])
    words = {"name", "note", "source", "asOf", "checkedAgainst", "conflicts", "otherSources"}
    values = entry_document(entry)
    for key, value in values.items():
        if isinstance(value, dict) and key not in words:
            for inner, figure in value.items():
                table.add_row(f"{key}.{inner}", _shown(figure))
        elif key not in words:
            table.add_row(key, _shown(value))
    lines = [f"source: {entry.source} ({entry.as_of})"]
    lines += [f"source of {key}: {page}" for key, page in entry.other_sources.items()]
    lines += [f"checked against: {entry.checked_against}"] if entry.checked_against else []
    lines += [f"says otherwise: {conflict}" for conflict in entry.conflicts]
    lines += [f"note: {entry.note}"] if entry.note else []
    return Group(table, Text(_wrapped(lines)))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )
