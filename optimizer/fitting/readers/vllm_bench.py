"""Reader of results of `vllm bench serve`, with or without details of each request."""

import math
from typing import Any

import numpy as np

from optimizer.errors import FitError
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader, measured, number, number_at
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts

_MARKS = ("num_prompts", "request_throughput", "total_input_tokens")
_NO_LIMIT = "inf"


def _recognises(report: BenchmarkFile) -> bool:
    value = report.json
    rows = value if isinstance(value, list) else [value]
    return any(isinstance(row, dict) and all(mark in row for mark in _MARKS) for row in rows)


def _read(report: BenchmarkFile) -> Benchmark:
    """Read one result, or several as a list or as written by `--append-result`.

    Raises:
        FitError: a required value is missing.
    """
    value = report.json
    rows = value if isinstance(value, list) else [value]
    places = [f"{report.name}: [{i}]" for i in range(len(rows))] if isinstance(value, list) else [report.name]
    notes: list[str] = []
    runs = tuple(_run(row, place, notes) for row, place in zip(rows, places, strict=True))
    date = str(rows[0].get("date") or "").partition("-")[0]
    day = f"{date[:4]}-{date[4:6]}-{date[6:8]}" if len(date) == 8 and date.isdigit() else None
    return Benchmark(runs, "vllm bench serve", rows[0].get("model_id"), day, tuple(dict.fromkeys(notes)))


def _run(row: Any, place: str, notes: list[str]) -> BenchmarkRun:
    if not isinstance(row, dict) or not all(mark in row for mark in _MARKS):
        raise FitError(
            f"{place}: this is not a result of vllm bench serve, unlike the others; pass them separately"
        )
    completed = int(number_at(row, ("completed",), place))
    if completed == 0:
        raise FitError(f"{place}: completed is 0; the benchmark reached no server")
    if row.get("ramp_up_strategy") is not None:
        raise FitError(
            f"{place}: the rate rises from {row.get('ramp_up_start_rps')} to {row.get('ramp_up_end_rps')} "
            "requests/s (ramp_up_strategy); measure each rate in a separate run"
        )
    rate, limit = _rate(row, place), row.get("max_concurrency")
    in_flight = None if limit is None else max(int(number(limit, f"{place}: max_concurrency")), 1)
    burstiness = number(row.get("burstiness", 1.0), f"{place}: burstiness")
    closed = rate is None and in_flight is not None
    return BenchmarkRun(
        _counts(row, "input", completed, place, notes),
        _counts(row, "output", completed, place, notes),
        Arrivals.CLOSED if closed else Arrivals.POISSON,
        rate_rps=math.inf if rate is None and not closed else rate,
        requests=int(number_at(row, ("num_prompts",), place)),
        max_in_flight=in_flight,
        arrival_cv=None if burstiness in {0.0, 1.0} or rate is None else 1 / math.sqrt(burstiness),
        measured=RunMeasurements(
            measured(row.get("median_ttft_ms")),
            measured(row.get("mean_itl_ms")) or measured(row.get("mean_tpot_ms")),
            measured(row.get("request_throughput")),
        ),
        completed=completed,
        source=place,
    )


def _rate(row: Any, place: str) -> float | None:
    """Return the offered rate; None if requests are sent without waiting."""
    rate = row.get("request_rate")
    if rate == _NO_LIMIT or rate is None or rate == math.inf:
        return None
    try:
        value = float(rate)
    except (TypeError, ValueError):
        value = math.nan
    if not value > 0:
        raise FitError(f"{place}: request_rate must be 'inf' or a number > 0, not {rate!r}")
    return None if value == math.inf else value


def _counts(row: Any, which: str, completed: int, place: str, notes: list[str]) -> TokenCounts:
    given = row.get(f"{which}_lens")
    given = given if isinstance(given, list) else []
    kept = [value for value in given if isinstance(value, int | float) and value > 0]
    if kept:
        return TokenCounts.of(float(np.mean(kept)), float(np.std(kept)))
    notes.append("no lengths of single requests (--save-detailed): assumed equal")
    return TokenCounts.of(number_at(row, (f"total_{which}_tokens",), place) / completed, 0.0)


READER = Reader("vllm bench serve", _recognises, _read)
