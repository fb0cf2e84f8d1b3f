"""Tables of a fitted profile, and of predictions beside what was measured."""

from collections.abc import Iterable, Sequence
from math import isfinite

from rich.console import Group, RenderableType

from optimizer.fitting.parameters import PARAMETERS
from optimizer.fitting.prediction import Predicted
from optimizer.fitting.profile import FittedProfile
from optimizer.kinds.replicas import Percentiles
from optimizer.quantities import quantity
from optimizer.render import columns
from optimizer.render.tables import Paragraph, Said, Table
from optimizer.spec.provenance import FitErrors


def fit_tables(profile: FittedProfile) -> Group:
    """Return a fitted profile as tables: the law with its errors, how well it holds, and what to mind."""
    parts: list[RenderableType] = [
        Paragraph(f"{profile.name} on {profile.acc_count} x {profile.accelerator}", "bold"),
        Paragraph(f"{profile.provenance.summary}\n"),
        _law(profile),
        _errors(profile),
    ]
    condition = profile.fit.condition_number
    parts.append(
        Paragraph(f"condition number {quantity(condition, 3)}: 1 is ideal, above 30 little is told apart\n")
    )
    if profile.fit.warnings:
        parts += [Paragraph("Mind", "bold yellow"), *_listed(profile.fit.warnings)]
    return Group(*parts)


def _law(profile: FittedProfile) -> Table:
    table = Table("Law", columns.FITTED_LAW, "law")
    for parameter in PARAMETERS:
        value = getattr(profile.iteration, parameter.name)
        error = getattr(profile.fit.standard_errors, parameter.name)
        if parameter.key in profile.fit.fitted_terms:
            table.add_row(
                parameter.key,
                Said(quantity(value), value),
                Said(quantity(error, 2), error),
                Said(f"{error / value:.0%}" if value else "-", error / value if value else None),
                parameter.unit,
            )
    return table


def _errors(profile: FittedProfile) -> Table:
    table = Table("Errors", columns.FIT_ERRORS, "errors")
    table.add_row("fitted", *_cells(profile.fit.errors))
    if profile.fit.held_out is not None:
        table.add_row("held out", *_cells(profile.fit.held_out))
    for shape, errors in profile.fit.left_out.items():
        table.add_row(f"without {shape}", *_cells(errors))
    return table


def _cells(errors: FitErrors) -> list[Said | int]:
    shares = (errors.ttft, errors.itl, errors.ttft_median, errors.itl_median)
    return [errors.runs, *(Said(f"{share:.1%}", share) for share in shares)]


def prediction_tables(rows: Sequence[Predicted]) -> Group:
    """Return predictions as a table, and how far they are from what was measured."""
    table = Table(f"Predictions ({len(rows)})", columns.PREDICTIONS, "predictions")
    for number, row in enumerate(rows, start=1):
        table.add_row(
            number,
            row.kind,
            _time(row.ttft_ms),
            _p95(row.ttft_percentiles),
            _time(row.itl_ms),
            _p95(row.itl_percentiles),
            _time(row.throughput_rps),
            *(_share(row.errors.get(name)) for name in ("ttft_ms", "itl_ms", "throughput_rps")),
        )
    parts: list[RenderableType] = [table]
    said = [f"row {number}: {row.message}" for number, row in enumerate(rows, start=1) if row.message]
    said += [
        f"row {number}: outside what was measured: {'; '.join(row.outside)}"
        for number, row in enumerate(rows, start=1)
        if row.outside
    ]
    if said:
        parts += [Paragraph("\nMind", "bold yellow"), *_listed(said)]
    return Group(*parts)


def _time(value: float | None) -> Said | None:
    return None if value is None or not isfinite(value) else Said(quantity(value), value)


def _p95(percentiles: Percentiles | None) -> Said | None:
    return None if percentiles is None else _time(percentiles.p95_ms)


def _share(value: float | None) -> Said | None:
    return None if value is None else Said(f"{value:+.1%}", value)


def _listed(lines: Iterable[str]) -> list[Paragraph]:
    return [Paragraph(line, indent="- ", hanging="  ") for line in lines]
