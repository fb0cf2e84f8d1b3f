"""Reader of GuideLLM's CSV reports of 2026: three header lines, one run per row."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers import guidellm
from optimizer.fitting.readers.guidellm import GuideLlmRun, TokenCountStats
from optimizer.fitting.readers.report import (
    Benchmark,
    BenchmarkFile,
    Reader,
    cell_value,
    find,
    measured,
    number,
)

Column = tuple[str, str, str]
Cells = Mapping[Column, str]

HEADER_LINES = 3
_STRATEGY: Column = ("Benchmark", "Strategy", "")
_DURATION: Column = ("Timings", "Duration", "Sec")
_COMPLETED: Column = ("Request Counts", "Successful", "")
_TTFT: Column = ("Time to First Token", "Successful ms", "Median")
_ITL: Column = ("Inter Token Latency", "Successful ms", "Mean")


def _recognises(report: BenchmarkFile) -> bool:
    return report.first_line.startswith("Run Info,") and ",Timings" in report.first_line


def _read(report: BenchmarkFile) -> Benchmark:
    """Read the rows.

    Raises:
        FitError: the file is cut short, or a required column is missing.
    """
    lines = list(csv.reader(io.StringIO(report.text)))
    if len(lines) <= HEADER_LINES:
        raise FitError(f"{report.name}: there are headers and no run; the file might be truncated")
    columns = [tuple(parts) for parts in zip(*lines[:HEADER_LINES], strict=False)]
    cells = []
    for number_, line in enumerate(lines[HEADER_LINES:], start=HEADER_LINES + 1):
        if len(line) != len(columns):
            raise FitError(
                f"{report.name}: line {number_} has {len(line)} cells under {len(columns)} headers; "
                "the file might be truncated"
            )
        cells.append((dict(zip(columns, line, strict=True)), f"{report.name}: line {number_}"))
    strategies = _strategies(cells)
    rows = [_row(row, strategy, place) for (row, place), strategy in zip(cells, strategies, strict=True)]
    first = cells[0][0]
    model = find(cell_value(first.get(("Run Info", "Backend", ""))), "model")
    date = (first.get(("Timings", "Start Time", "")) or "")[:10] or None
    return Benchmark(guidellm.runs(report, rows), "GuideLLM", model, date)


def _strategies(cells: Sequence[tuple[Cells, str]]) -> list[Mapping[str, Any]]:
    """Return the strategies from their names, or from the profile's plan."""
    names = [_cell(row, _STRATEGY, place) for row, place in cells]
    profile = cell_value(cells[0][0].get(("Run Info", "Profile", "")))
    profile = profile if isinstance(profile, dict) else {}
    kind = profile.get("type_") or profile.get("kind")
    found: list[Mapping[str, Any]] = []
    achieved = profile.get("measured_rates")
    offered: list[float] = []
    if kind == "sweep" and isinstance(achieved, list) and len(achieved) > len(guidellm.SWEEP_FIRST):
        offered = [0.0, 0.0, *guidellm.sweep_rates(achieved)]
    elif isinstance(profile.get("rate"), list):
        offered = profile["rate"]
    elif isinstance(profile.get("streams"), list):
        offered = profile["streams"]
    for i, (name, (_, place)) in enumerate(zip(names, cells, strict=True)):
        base, _, value = name.partition("@")
        key = "rate" if base in guidellm.STEADY_STRATEGIES else "streams"
        if base in {"synchronous", "throughput"}:
            limit = profile.get("max_concurrency")
            found.append(
                {"type_": base}
                | ({} if limit is None or base == "synchronous" else {"max_concurrency": limit})
            )
            continue
        planned = offered[i] if i < len(offered) else None
        given = cell_value(value) if value else planned
        found.append({"type_": base, key: number(given, f"{place}: the rate of the strategy {name!r}")})
    return found


def _row(row: Cells, strategy: Mapping[str, Any], place: str) -> GuideLlmRun:
    return GuideLlmRun(
        strategy,
        _number(row, _DURATION, place),
        int(_number(row, _COMPLETED, place)),
        measured(cell_value(row.get(_TTFT))),
        measured(cell_value(row.get(_ITL))),
        place,
        _spread(row, "Input Tokens", place),
        _spread(row, "Output Tokens", place),
    )


def _spread(row: Cells, name: str, place: str) -> TokenCountStats:
    group = ("Token Metrics", f"Successful {name}")
    found = cell_value(row.get((*group, "Percentiles")))
    ends = found if isinstance(found, list) and found else [None]
    return TokenCountStats(
        _number(row, (*group, "Mean"), place),
        _number(row, (*group, "Std Dev"), place),
        ends[0],
        ends[-1],
        _number(row, _COMPLETED, place),
    )


def _cell(row: Cells, column: Column, place: str) -> str:
    if column not in row:
        raise FitError(
            f"{place}: the column {' / '.join(column)} is missing; the report has a different version"
        )
    return row[column]


def _number(row: Cells, column: Column, place: str) -> float:
    return number(cell_value(_cell(row, column, place)), f"{place}: {' / '.join(column)}")


READER = Reader("GuideLLM CSV (2026)", _recognises, _read)
