"""Sections of fitted profiles, and of predictions compared with measurements."""

import math
from collections.abc import Callable, Sequence

from optimizer.fitting.parameters import PARAMETERS, Parameter
from optimizer.fitting.prediction import Predicted
from optimizer.fitting.profile import FittedProfile
from optimizer.kinds.replicas import Percentiles
from optimizer.quantities import quantity, significant
from optimizer.section import Column, FormattedValue, Paragraph, Section, name, table, titled_list


def fit_sections(profile: FittedProfile) -> list[Section]:
    """Return the sections of a fitted profile: verdict, parameters with intervals, errors and warnings."""
    heading = Paragraph(f"{profile.name} on {profile.acc_count} × {profile.accelerator}", "bold")
    return [
        Section(text=[heading, Paragraph(verdict(profile), "bold"), Paragraph(profile.provenance.summary)]),
        _law(profile),
        _errors(profile),
        *titled_list("Warnings", profile.fit.warnings, bullet="- "),
    ]


GOOD_ERROR, USABLE_ERROR = 0.1, 0.25
"""Largest relative error of ITL and TTFT at which a profile is good for planning, and at which it is usable.
"""
IDENTIFIED = 0.5
"""Largest relative half-width of its 95 % interval at which a parameter counts as identified."""
_LETTERS = {"alpha": "α", "beta": "β", "gamma": "γ"}


def verdict(profile: FittedProfile) -> str:
    """Summarise in one sentence how accurate a profile is, what it is good for, and what to measure next."""
    fit = profile.fit
    errors, of = (fit.errors, "fitted") if fit.held_out is None else (fit.held_out, "held-out")
    worst = max(errors.itl, errors.ttft)
    rates = [point.throughput_rps or point.rate_rps or 0.0 for point in profile.points if point.fitted]
    up_to = f" up to {quantity(max(rates), 2)} requests/s" if any(rates) else ""
    if worst > USABLE_ERROR:
        good = "Not good for planning yet"
    elif worst > GOOD_ERROR or fit.spoiled_by:
        good = f"Usable for planning{up_to} with a headroom of {max(worst, GOOD_ERROR):.0%}"
    else:
        good = f"Good for planning{up_to}"
    named = {"ITL": errors.itl, "TTFT": errors.ttft}
    if not any(point.itl_ms for point in profile.points):
        good, named = good.replace("planning", "planning prefill replicas"), {"TTFT": errors.ttft}
    within = (f"{name} within {max(math.ceil(100 * error), 1)}%" for name, error in named.items())
    accuracy = f"{' and '.join(within)} of {of} runs"
    contradicted = f"; {fit.spoiled_by}" if fit.spoiled_by else ""
    return f"{good}; {accuracy}{contradicted}; {_identified(profile)}."


def _identified(profile: FittedProfile) -> str:
    """Name the identified parameters among α, β and γ, and the runs that would identify the next one."""
    clear: list[Parameter] = []
    unclear: list[Parameter] = []
    for item in PARAMETERS:
        if item.key in _LETTERS:
            value = getattr(profile.iteration, item.name)
            low, high = profile.fit.intervals.get(item.key, (0.0, math.inf))
            is_shown = item.key in profile.fit.fitted_terms and high - low <= 2 * IDENTIFIED * value
            (clear if is_shown else unclear).append(item)
    letters = " and ".join(", ".join(_LETTERS[item.key] for item in clear).rsplit(", ", 1))
    if not unclear:
        return f"{letters} identified"
    missing = " and ".join(", ".join(_LETTERS[item.key] for item in unclear).rsplit(", ", 1))
    identified = f"{letters} identified, {missing} not" if clear else f"{missing} not identified"
    return f"{identified}: add {unclear[0].advice([point.run() for point in profile.points])}"


def _law(profile: FittedProfile) -> Section:
    values = {item.key: float(getattr(profile.iteration, item.name)) for item in PARAMETERS}
    ends = profile.fit.intervals
    columns = (
        name("parameter", lambda item: FormattedValue(_LETTERS.get(item.key, item.key), item.key)),
        Column("value", lambda item: values[item.key], form=quantity),
        Column("2.5 %", lambda item: ends[item.key][0] if item.key in ends else None, form=significant(2)),
        Column("97.5 %", lambda item: ends[item.key][1] if item.key in ends else None, form=significant(2)),
        name("from", lambda item: "runs" if item.key in profile.fit.fitted_terms else "prior", rank=1),
        name("unit", "unit", rank=2),
    )
    return table("Law", columns, [item for item in PARAMETERS if values[item.key]])


def _errors(profile: FittedProfile) -> Section:
    rows = [("fitted", profile.fit.errors)]
    if profile.fit.held_out is not None:
        rows.append(("held out", profile.fit.held_out))
    rows += [(f"without {shape}", errors) for shape, errors in profile.fit.left_out.items()]
    columns = (
        name("runs of", lambda row: row[0]),
        Column("runs", lambda row: row[1].runs, form="d", rank=2),
        Column("TTFT", lambda row: row[1].ttft or None, form=".1%"),
        Column("ITL", lambda row: row[1].itl or None, form=".1%"),
        Column("median TTFT", lambda row: row[1].ttft_median or None, form=".1%", rank=1),
        Column("median ITL", lambda row: row[1].itl_median or None, form=".1%", rank=1),
    )
    return table("Errors", columns, rows)


def prediction_sections(rows: Sequence[Predicted]) -> list[Section]:
    """Return the sections with predictions, their errors against measurements, and warnings."""
    numbered = list(enumerate(rows, start=1))
    columns = (
        Column("row", lambda item: item[0], form="d"),
        name("kind", lambda item: item[1].kind, rank=3),
        _time("TTFT", lambda row: row.ttft_ms),
        _time("p95 TTFT", lambda row: _p95(row.ttft_percentiles), rank=2),
        _time("ITL", lambda row: row.itl_ms),
        _time("p95 ITL", lambda row: _p95(row.itl_percentiles), rank=2),
        _time("throughput", lambda row: row.throughput_rps, "requests/s", rank=1),
        *(_error(heading, field, rank) for heading, field, rank in (
            ("TTFT", "ttft_ms", 0), ("ITL", "itl_ms", 0), ("throughput", "throughput_rps", 1),
        )),
    )  # fmt: skip
    warnings = [f"row {number}: {row.message}" for number, row in numbered if row.message]
    warnings += [
        f"row {number}: outside the measured range: {'; '.join(row.outside)}; add such a run to the fit"
        for number, row in numbered
        if row.outside
    ]
    section = table(f"Predictions ({len(rows)})", columns, numbered, "predictions")
    return [section, *titled_list("Warnings", warnings, bullet="- ")]


def _time(heading: str, of: Callable[[Predicted], float | None], unit: str = "ms", rank: int = 0) -> Column:
    """Return a column of times; times that are not finite are shown as missing."""

    def value(item: tuple[int, Predicted]) -> float | None:
        result = of(item[1])
        return None if result is None or not math.isfinite(result) else result

    return Column(heading, value, unit, quantity, rank)


def _error(heading: str, field: str, rank: int) -> Column:
    return Column(f"{heading} off", lambda item: item[1].errors.get(field), form="+.1%", rank=rank, none="")


def _p95(percentiles: Percentiles | None) -> float | None:
    return None if percentiles is None else percentiles.p95_ms
