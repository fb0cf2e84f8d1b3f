"""Reader of GuideLLM's JSON reports, of 2025 (`args`) and of 2026 (`config`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers import guidellm
from optimizer.fitting.readers.guidellm import GuideLlmRun, TokenCountStats
from optimizer.fitting.readers.report import (
    Benchmark,
    BenchmarkFile,
    Reader,
    at,
    find,
    measured,
    number,
    number_at,
)


def _recognises(report: BenchmarkFile) -> bool:
    value = report.json
    return (
        isinstance(value, dict)
        and isinstance(value.get("benchmarks"), list)
        and ("args" in value or "config" in value or "metadata" in value or _is_of_2025(value["benchmarks"]))
    )


def _is_of_2025(benchmarks: list[Any]) -> bool:
    return any(isinstance(item, dict) and "metrics" in item for item in benchmarks) or not benchmarks


def _read(report: BenchmarkFile) -> Benchmark:
    """Read a report.

    Raises:
        FitError: the report has no runs, or a required value is missing.
    """
    benchmarks = report.json["benchmarks"]
    if not benchmarks:
        raise FitError(f"{report.name}: the report has no benchmarks; the run was cut short")
    rows = [_row(item, f"{report.name}: benchmarks[{i}]") for i, item in enumerate(benchmarks)]
    version = find(report.json, "metadata", "guidellm_version")
    return Benchmark(
        guidellm.runs(report, rows, bursts=True),
        f"GuideLLM {version}" if version else "GuideLLM",
        _model(benchmarks[0]),
        _day(benchmarks[0]),
        tuple(dict.fromkeys(note for item in benchmarks for note in _notes(item))),
    )


def _notes(item: Any) -> Iterator[str]:
    """Yield the aspects of a run that cannot be replayed."""
    warmup = _first(
        item, (("warmup_duration",), ("config", "warmup", "percent"), ("config", "warmup", "value"))
    )
    if measured(warmup) is not None:
        yield "the report excludes a warm-up: runs are assumed to start with an empty server"
    if measured(_first(item, (("config", "strategy", "rampup_duration"),))) is not None:
        yield "the client ramped up (rampup_duration): runs are assumed to start at their full rate"


def _row(item: Any, place: str) -> GuideLlmRun:
    metrics = at(item, ("metrics",), place)
    duration = number(_first(item, (("duration",), ("run_stats", "duration"))) or _span(item, place), place)
    return GuideLlmRun(
        _strategy(item, place),
        duration,
        int(number_at(metrics, ("time_to_first_token_ms", "successful", "count"), place)),
        measured(number_at(metrics, ("time_to_first_token_ms", "successful", "median"), place)),
        measured(_first(metrics, (("inter_token_latency_ms", "successful", "mean"),))),
        place,
        _spread(item, "prompt_token_count", place),
        _spread(item, "output_token_count", place),
    )


def _strategy(item: Any, place: str) -> Mapping[str, Any]:
    found = _first(item, (("args", "strategy"), ("config", "strategy"), ("scheduler", "strategy")))
    if not isinstance(found, dict):
        raise FitError(f"{place}: strategy is missing; the report is incomplete or of another tool")
    return found


def _span(item: Any, place: str) -> float:
    return number_at(item, ("end_time",), place) - number_at(item, ("start_time",), place)


def _spread(item: Any, name: str, place: str) -> TokenCountStats:
    found = at(item, ("metrics", name, "successful"), place)
    return TokenCountStats(
        number_at(found, ("mean",), f"{place}: {name}"),
        float(found.get("std_dev") or 0.0),
        found.get("min"),
        found.get("max"),
        float(found.get("count") or 0.0),
    )


def _first(value: Any, paths: tuple[tuple[str, ...], ...]) -> Any:
    """Return the value at the first path that has one, None if there is none."""
    found = (find(value, *path) for path in paths)
    return next((inner for inner in found if inner is not None), None)


def _model(item: Any) -> str | None:
    found = _first(item, (("worker", "backend_model"), ("config", "backend", "model"), ("backend", "model")))
    return found if isinstance(found, str) and found else None


def _day(item: Any) -> str | None:
    from datetime import UTC, datetime

    start = _first(item, (("start_time",), ("run_stats", "start_time")))
    if not isinstance(start, int | float) or not 0 < start < 4e9:
        return None
    return datetime.fromtimestamp(start, UTC).date().isoformat()


READER = Reader("GuideLLM JSON", _recognises, _read)
