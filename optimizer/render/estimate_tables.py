"""Tables of estimated profiles, of points held against measurements, and of the catalogue."""

from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Group, RenderableType

from optimizer.profiles.catalogue import Catalogue
from optimizer.profiles.documents import entry_document
from optimizer.profiles.efficiency import VERSION
from optimizer.profiles.estimate import ProfileEstimate
from optimizer.profiles.facts import AcceleratorFacts, ModelFacts
from optimizer.profiles.parameters import count_parameters
from optimizer.profiles.points import PointEstimate
from optimizer.quantities import precise, quantity
from optimizer.render import columns
from optimizer.render.tables import Paragraph, Said, Table

_UNIT_OF_RATES = "ms/token"


def estimate_tables(estimate: ProfileEstimate) -> Group:
    """Return an estimate as tables: the figures with their intervals, and what they rest on."""
    parts: list[RenderableType] = [_headline(estimate), _figures(estimate)]
    if estimate.model.experts:
        parts.append(_alpha_by_batch(estimate))
    parts.append(_basis(estimate))
    return Group(*parts)


def _headline(estimate: ProfileEstimate) -> Group:
    deployment, form = estimate.deployment, estimate.iterations.format
    title = f"{estimate.model.name} on {deployment.tp} x {estimate.accelerator.name}"
    rest = "" if form.dense == form.routed or not estimate.model.experts else f" experts, {form.dense} rest"
    lengths = f"{precise(deployment.in_tokens)} tokens in, {precise(deployment.out_tokens)} out"
    return Group(
        Paragraph(title, "bold"),
        Paragraph("estimated, not measured", "yellow"),
        Paragraph(f"weights {form.name}{rest}, cache {deployment.cache}, {lengths}\n"),
    )


def _figures(estimate: ProfileEstimate) -> Table:
    table = Table("Iteration law and memory", columns.ESTIMATE, "estimate")
    experts = (
        (f"α, at batch {estimate.at_batch}", estimate.alpha_ms, "ms"),
        ("α without experts", estimate.alpha_alone_ms, "ms"),
        ("reading all experts", estimate.expert_read_ms, "ms"),
    )
    for label, time, unit in (
        *(experts if estimate.model.experts else (("α", estimate.alpha_ms, "ms"),)),
        ("β, per token computed", estimate.beta_ms, _UNIT_OF_RATES),
        ("γ, per cache token read", estimate.gamma_ms, _UNIT_OF_RATES),
    ):
        table.add_row(label, time.value, time.low, time.high, unit)
    if estimate.model.experts:
        share = estimate.expert_share
        table.add_row("experts a token chooses", Said(f"{share:.2%}", share), None, None, "")
    tokens = estimate.kv_tokens
    counts = (Said(f"{int(end):,}", int(end)) for end in (tokens.value, tokens.low, tokens.high))
    table.add_row("KV capacity", *counts, "tokens")
    batch, low = estimate.max_batch, estimate.max_batch_low
    table.add_row("largest batch", Said(f"{batch:,}", batch), Said(f"{low:,}", low), None, "requests")
    return table


def _alpha_by_batch(estimate: ProfileEstimate) -> Table:
    title = "α by batch: more requests choose more experts"
    table = Table(title, columns.ALPHA_BY_BATCH, "alpha")
    for batch in estimate.batches:
        time = estimate.alpha_at(batch)
        table.add_row(batch, time.value, time.low, time.high)
    return table


def _basis(estimate: ProfileEstimate) -> Group:
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
    parts = [Paragraph("Rests on", "bold"), *_listed(lines)]
    if estimate.warnings:
        parts += [Paragraph("\nMind", "bold yellow"), *_listed(estimate.warnings)]
    return Group(*parts)


def _listed(lines: Iterable[str]) -> list[Paragraph]:
    return [Paragraph(line, indent="- ", hanging="  ") for line in lines]


def point_tables(rows: Sequence[PointEstimate]) -> Group:
    """Return the estimates of points as a table, and how far they are from what was measured."""
    table = Table(f"Points ({len(rows)})", columns.POINTS, "points")
    for row in rows:
        values: list[Said | None] = [None] * 3
        if row.estimated is not None:
            ends = (row.estimated.value, row.estimated.low, row.estimated.high)
            values = [Said(f"{int(end):,}" if row.kind == "kv" else quantity(end), end) for end in ends]
        names = (row.given.get("model", "-"), row.given.get("accelerator", "-"), row.given.get("tp", "1"))
        table.add_row(row.number, *names, row.kind, *values, row.measured)
    errors = [f"row {row.number}: {row.error}" for row in rows if row.estimated is None]
    missed = [Paragraph("Not estimated"), *_listed(errors)] if errors else []
    return Group(table, Paragraph(_agreement(rows)), *missed)


def _agreement(rows: Sequence[PointEstimate]) -> str:
    both = [(row.estimated, row.measured) for row in rows if row.estimated and row.measured]
    if not both:
        return ""
    off = median(abs(estimated.value / measured - 1) for estimated, measured in both)
    inside = sum(estimated.low <= measured <= estimated.high for estimated, measured in both)
    return f"{off:.1%} off in the median; {inside} of {len(both)} measurements inside the interval\n"


def catalogue_tables(catalogue: Catalogue) -> Group:
    """Return what the catalogue holds: accelerators and models by name."""
    accelerators = Table(
        f"Accelerators ({len(catalogue.accelerators)})", columns.ACCELERATORS, "accelerators"
    )
    for entry in catalogue.accelerators.values():
        rates = entry.dense_tflops
        figures = (entry.memory_gib, entry.bandwidth_gb_per_s, rates.bf16, rates.fp8, entry.link_gb_per_s)
        accelerators.add_row(entry.name, *figures, entry.aliases[0] if entry.aliases else "")
    models = Table(f"Models ({len(catalogue.models)})", columns.MODELS, "models")
    for model in catalogue.models.values():
        models.add_row(
            model.name,
            count_parameters(model).total / 1e9,
            model.layers,
            model.experts.count if model.experts else None,
            model.checkpoint,
            model.aliases[0] if model.aliases else "",
        )
    return Group(accelerators, models)


def entry_tables(entry: AcceleratorFacts | ModelFacts) -> Group:
    """Return an entry of the catalogue: every value, and where it comes from."""
    table = Table(entry.name, columns.ENTRY, "entry")
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
    return Group(table, *_listed(lines))


def _shown(value: object) -> Said:
    plain = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, int):
        text = f"{value:,}"
    else:
        text = precise(value) if isinstance(value, float) else str(value)
    return Said(text, text if plain is None else plain)
