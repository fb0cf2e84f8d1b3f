"""Sections on estimated profiles, on estimates compared with measurements, and on the catalogue."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from optimizer.profiles.catalogue import Catalogue
from optimizer.profiles.documents import entry_document
from optimizer.profiles.efficiency import VERSION
from optimizer.profiles.ends import at_end
from optimizer.profiles.estimate import ProfileEstimate
from optimizer.profiles.facts import AcceleratorFacts, ModelEntry
from optimizer.profiles.intervals import Estimated
from optimizer.profiles.memory import GIB
from optimizer.profiles.numbers import ITL_MS, TTFT_MS, EstimateNumbers
from optimizer.profiles.points import PointEstimate
from optimizer.quantities import precise, quantity, significant
from optimizer.section import (
    NOTHING,
    Column,
    FormattedValue,
    Paragraph,
    Section,
    name,
    sentence,
    table,
    titled_list,
    words,
)

_UNIT_OF_RATES = "ms/token"


def estimate_sections(estimate: ProfileEstimate) -> list[Section]:
    """Return the sections of an estimated profile: values with their intervals, their basis, and warnings."""
    return [
        _headline(estimate),
        *_number_sections(EstimateNumbers(estimate)),
        _values(estimate),
        *([_alpha_by_batch(estimate)] if estimate.model.experts else []),
        *titled_list("Rests on", _basis(estimate), bullet="- "),
        *titled_list("Notes", estimate.warnings, bullet="- "),
    ]


def _headline(estimate: ProfileEstimate) -> Section:
    deployment, form = estimate.deployment, estimate.iterations.format
    title = f"{estimate.model.name} on {deployment.tp} × {estimate.accelerator.name}"
    dense, routed = form.form("dense"), form.form("routed")
    rest = "" if dense == routed or not estimate.model.experts else f" experts, {dense} rest"
    lengths = f"{precise(deployment.in_tokens)} tokens in, {precise(deployment.out_tokens)} out"
    return Section(
        text=[
            Paragraph(title, "bold"),
            Paragraph("estimated, not measured", "yellow"),
            Paragraph(f"weights {form.name}{rest}, cache {estimate.iterations.cache}, {lengths}"),
        ]
    )


def _number_sections(numbers: EstimateNumbers) -> list[Section]:
    """Return the tables of numbers for readers: one replica, and decoding by number of users."""
    estimate, load = numbers.estimate, numbers.largest_load_rps
    low, value, high = (size / GIB for size in estimate.memory.free_bytes)
    rows: list[tuple[str, Estimated | float | None, str]] = [
        (f"TTFT of {precise(estimate.deployment.in_tokens)} tokens alone", numbers.prompt_ms, "ms"),
        (f"largest load, ITL {ITL_MS:g} ms and TTFT {TTFT_MS:,g} ms", load, "requests/s"),
        ("weights on each card", estimate.memory.weight_bytes / GIB, "GiB"),
        ("KV cache on each card", Estimated(value, low, high), "GiB"),
    ]

    def end(field: str) -> Callable[[Any], float | None]:
        def value(row: Any) -> float | None:
            number = row[1]
            if isinstance(number, Estimated):
                return float(getattr(number, field))
            return number if field == "value" else None

        return value

    columns = (
        words("one replica", lambda row: row[0]),
        *(
            Column(heading, end(field), form=significant(3), none="" if field != "value" else NOTHING)
            for heading, field in (("estimate", "value"), ("low", "low"), ("high", "high"))
        ),
        words("unit", lambda row: row[2]),
    )
    by_users = (
        Column("users", "users", form=",d"),
        Column("time per token", "token_ms.value", "ms", significant(3)),
        Column("low", "token_ms.low", "ms", significant(3)),
        Column("high", "token_ms.high", "ms", significant(3)),
        Column("per user", "per_user_tps", "tokens/s", significant(3)),
        Column("per card", "per_card_tps", "tokens/s", significant(3)),
    )
    title = "Decoding by users: speed of each against throughput of a card"
    return [table("Estimates", columns, rows, "numbers"), table(title, by_users, numbers.users, "users")]


def _values(estimate: ProfileEstimate) -> Section:
    experts = (
        (f"α, at batch {estimate.at_batch}", estimate.alpha_ms, "ms"),
        ("α without experts", estimate.alpha_alone_ms, "ms"),
        ("reading all experts", estimate.expert_read_ms, "ms"),
    )
    rows: list[tuple[str, object, object, object, str]] = [
        (label, time.value, time.low, time.high, unit)
        for label, time, unit in (
            *(experts if estimate.model.experts else (("α", estimate.alpha_ms, "ms"),)),
            ("β, per token computed", estimate.beta_ms, _UNIT_OF_RATES),
            ("γ, per cache token read", estimate.gamma_ms, _UNIT_OF_RATES),
        )
    ]
    if estimate.model.experts:
        share = estimate.expert_share
        rows.append(("experts a token chooses", FormattedValue(f"{share:.2%}", share), None, None, ""))
    tokens = estimate.kv_tokens
    value, low, high = (_whole(end) for end in (tokens.value, tokens.low, tokens.high))
    rows.append(("KV capacity", value, low, high, "tokens"))
    batch, least = _whole(estimate.max_batch), _whole(estimate.max_batch_low)
    most = _whole(at_end(estimate, "lower").max_batch)
    rows.append(("largest batch", batch, least, most, "requests"))
    columns = (
        words("figure"),
        Column("estimate", form=quantity),
        Column("low", form=quantity),
        Column("high", form=quantity, none=""),
        words("unit"),
    )
    return Section("Iteration law and memory", columns, list(rows), "estimate")


def _whole(value: float) -> FormattedValue:
    return FormattedValue(f"{int(value):,}", int(value))


def _alpha_by_batch(estimate: ProfileEstimate) -> Section:
    columns = (
        Column("batch", lambda row: row[0], form=",d"),
        Column("α", lambda row: row[1].value, "ms", quantity),
        Column("low", lambda row: row[1].low, "ms", quantity),
        Column("high", lambda row: row[1].high, "ms", quantity),
    )
    rows = ((batch, estimate.alpha_at(batch)) for batch in estimate.batches)
    return table("α by batch: more requests choose more experts", columns, rows, "alpha")


def _basis(estimate: ProfileEstimate) -> list[str]:
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
    return lines


def point_sections(rows: Sequence[PointEstimate]) -> list[Section]:
    """Return the sections with estimates at given loads and, if measured, how well they agree."""

    def end(row: PointEstimate, field: str) -> FormattedValue | None:
        if row.estimated is None:
            return None
        value: float = getattr(row.estimated, field)
        return FormattedValue(f"{int(value):,}" if row.kind == "kv" else quantity(value), value)

    columns = (
        Column("row", "number", form="d", rank=1),
        name("model", lambda row: row.given.get("model", "-")),
        name("accelerator", lambda row: row.given.get("accelerator", "-")),
        Column("tp", lambda row: row.given.get("tp", "1"), rank=3),
        name("kind", "kind", rank=2, none="-"),
        Column("estimate", lambda row: end(row, "value")),
        Column("low", lambda row: end(row, "low")),
        Column("high", lambda row: end(row, "high")),
        Column("measured", "measured", form=significant(6)),
    )
    errors = [f"row {row.number}: {row.error}" for row in rows if row.estimated is None]
    return [
        table(f"Points ({len(rows)})", columns, rows, "points"),
        *_agreement(rows),
        *titled_list("Not estimated", errors, bullet="- "),
        *titled_list("Notes", dict.fromkeys(row.note for row in rows if row.note), bullet="- "),
    ]


def _agreement(rows: Sequence[PointEstimate]) -> list[Section]:
    both = [(row.estimated, row.measured) for row in rows if row.estimated and row.measured]
    if not both:
        return []
    off = median(abs(estimated.value / measured - 1) for estimated, measured in both)
    inside = sum(estimated.low <= measured <= estimated.high for estimated, measured in both)
    return [
        sentence(f"{off:.1%} off in the median; {inside} of {len(both)} measurements inside the interval")
    ]


def catalogue_sections(catalogue: Catalogue) -> list[Section]:
    """Return the sections that list the accelerators and models of the catalogue."""
    accelerators = (
        name("name", "name"),
        Column("memory", "memory_gib", "GiB", "g"),
        Column("bandwidth", "bandwidth_gb_per_s", "GB/s", "g"),
        Column("16-bit", "dense_tflops.bf16", "TFLOPS", "g", rank=1),
        Column("fp8", "dense_tflops.fp8", "TFLOPS", "g", rank=2),
        Column("link", "link_gb_per_s", "GB/s", "g", rank=3),
        name("also", lambda item: item.aliases[0] if item.aliases else "", rank=4),
    )
    models = (
        name("name", "name"),
        Column("parameters", lambda model: model.parameters / 1e9, "10^9", ".2f"),
        Column("layers", "count", form="d", rank=1),
        Column("experts", lambda model: model.experts.count if model.experts else None, form="d", rank=2),
        name("published in", "checkpoint", rank=3),
        name("also", lambda model: (*catalogue.models[model.name].aliases, "")[0], rank=4),
    )
    cards, known = catalogue.accelerators.values(), [model.facts for model in catalogue.models.values()]
    return [
        table(f"Accelerators ({len(cards)})", accelerators, cards, "accelerators"),
        table(f"Models ({len(known)})", models, known, "models"),
    ]


def entry_sections(entry: AcceleratorFacts | ModelEntry) -> list[Section]:
    """Return the sections with every value of a catalogue entry and its sources."""
    hidden = {"name", "note", "source", "asOf", "checkedAgainst", "conflicts", "otherSources"}
    rows: list[tuple[str, object]] = []
    for key, value in entry_document(entry).items():
        if isinstance(value, dict) and key not in hidden:
            rows += [(f"{key}.{inner}", inner_value) for inner, inner_value in value.items()]
        elif key not in hidden:
            rows.append((key, value))
    lines = [f"source: {entry.source} ({entry.as_of})"]
    lines += [f"source of {key}: {page}" for key, page in entry.other_sources.items()]
    lines += [f"checked against: {entry.checked_against}"] if entry.checked_against else []
    lines += [f"conflicting source: {conflict}" for conflict in entry.conflicts]
    lines += [f"note: {entry.note}"] if entry.note else []
    columns = words("value", lambda row: row[0]), words("is", lambda row: _shown(row[1]))
    return [
        table(entry.name, columns, rows, "entry"),
        Section(text=[Paragraph(f"- {line}", hanging="  ") for line in lines]),
    ]


def _shown(value: object) -> FormattedValue:
    plain = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    elif isinstance(value, int):
        text = f"{value:,}"
    else:
        text = precise(value) if isinstance(value, float) else str(value)
    return FormattedValue(text, text if plain is None else plain)
