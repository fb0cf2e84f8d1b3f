"""Reader of GuideLLM's CSV reports of 2025, and of the same rows as JSON: one run per row."""

import csv
import io
from collections.abc import Mapping
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

_TTFT, _ITL = "Successful Time to first token ms median", "Successful Inter token latency ms mean"
_QUANTILES = "[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"


def _recognises(report: BenchmarkFile) -> bool:
    return _is_json(report) or (report.first_line.startswith("Type,Run Id") and _TTFT in report.first_line)


def _is_json(report: BenchmarkFile) -> bool:
    value = report.json
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) for row in value)
        and any("Run Id" in row and "Successful Requests" in row for row in value)
    )


def _read(report: BenchmarkFile) -> Benchmark:
    """Read the rows.

    Raises:
        FitError: a row is incomplete or of another kind.
    """
    if _is_json(report):
        found = [(row, f"{report.name}: [{i}]") for i, row in enumerate(report.json)]
    else:
        found = [
            (dict(row), f"{report.name}: line {number_}")
            for number_, row in enumerate(csv.DictReader(io.StringIO(report.text)), start=2)
        ]
    if not found:
        raise FitError(f"{report.name}: there is a header and no run; the file might be truncated")
    rows = [_row(row, place) for row, place in found]
    first = found[0][0]
    model = find(cell_value(first.get("Worker")), "backend_model")
    date = str(first.get("Start Time") or "")[:10] or None
    return Benchmark(guidellm.runs(report, rows, bursts=True), "GuideLLM", model, date)


def _row(row: Mapping[str, Any], place: str) -> GuideLlmRun:
    name = row.get("Name")
    if not isinstance(name, str) or "Duration" not in row:
        raise FitError(f"{place}: this is not a GuideLLM run, unlike the others; pass the reports separately")
    duration = _number(row, "Duration", place)
    return GuideLlmRun(
        _strategy(row, name, place),
        duration,
        int(_number(row, "Successful Requests", place)),
        measured(cell_value(row.get(_TTFT))),
        measured(cell_value(row.get(_ITL))),
        f"{place} ({name})",
        _spread(row, "Prompt", place),
        _spread(row, "Output", place),
    )


def _strategy(row: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    """Return the strategy from the arguments of the run, or otherwise from its name."""
    given = find(cell_value(row.get("Args")), "strategy")
    if isinstance(given, dict):
        return given
    kind, _, rate = name.partition("@")
    if not rate:
        return {"type_": kind}
    value = number(cell_value(rate), f"{place}: the rate in {name!r}")
    return {"type_": kind, "streams": value} if kind == "concurrent" else {"type_": kind, "rate": value}


def _spread(row: Mapping[str, Any], name: str, place: str) -> TokenCountStats:
    column = f"Successful {name} token count"
    quantiles = cell_value(row.get(f"{column} {_QUANTILES}"))
    ends = quantiles if isinstance(quantiles, list) and quantiles else [None]
    return TokenCountStats(
        _number(row, f"{column} mean", place),
        _number(row, f"{column} std dev", place),
        ends[0],
        ends[-1],
        _number(row, "Successful Requests", place),
    )


def _number(row: Mapping[str, Any], column: str, place: str) -> float:
    return number(cell_value(row.get(column)), f"{place}: {column!r}")


READER = Reader("GuideLLM CSV (2025)", _recognises, _read)
