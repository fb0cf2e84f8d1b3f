"""Reader of GuideLLM's HTML reports up to version 0.7, which contain the times.

Their runs are unlabelled. A sweep is recognised by its order: one request at a time, full throughput, then
rates evenly spaced between them; the report has the achieved rates only.
"""

import json
import math
import re
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers import guidellm
from optimizer.fitting.readers.guidellm import GuideLlmRun, TokenCountStats
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader, at, find, measured, number_at

_OF_SWEEP = 3
"""Minimum runs of a sweep."""


def _recognises(report: BenchmarkFile) -> bool:
    head = report.text[:4096].lstrip().lower()
    return head.startswith(("<!doctype html", "<html")) and "guidellm" in report.text.lower()


def _read(report: BenchmarkFile) -> Benchmark:
    """Read a report.

    Raises:
        FitError: the report is cut short, or is of a newer version, without means and medians.
    """
    if "window.benchmarks" not in report.text:
        if '"ttft_p95_ms"' in report.text:
            raise FitError(
                f"{report.name}: this HTML report of GuideLLM has 95th percentiles only, no median TTFT and "
                "no mean ITL; give the JSON or CSV of the same run"
            )
        raise FitError(f"{report.name}: no window.benchmarks in this HTML of GuideLLM; the file is cut short")
    items = _assigned(report, "benchmarks")
    details = _assigned(report, "workloadDetails")
    if not isinstance(items, list) or not items:
        raise FitError(f"{report.name}: the report has no benchmarks; the run was cut short")
    places = [f"{report.name}: benchmarks[{i}]" for i in range(len(items))]
    rates = [
        number_at(item, ("requestsPerSecond",), place) for item, place in zip(items, places, strict=True)
    ]
    kind = str(at(details, ("rateType",), f"{report.name}: workloadDetails"))
    strategies = _strategies(kind, rates, report)
    spreads = _spread(details, "prompts", report), _spread(details, "generations", report)
    rows = [
        _row(item, strategy, rate, place, spreads)
        for item, strategy, rate, place in zip(items, strategies, rates, places, strict=True)
    ]
    note = "runs are unlabelled: assumed to be a sweep in its usual order"
    notes = (note,) if kind == "synchronous" else ()
    return Benchmark(guidellm.runs(report, rows), "GuideLLM", _model(details), _day(report), notes)


def _assigned(report: BenchmarkFile, name: str) -> Any:
    """Return the JSON that a script assigns to a window property."""
    found = re.search(rf"window\.{name}\s*=\s*", report.text)
    if found is None:
        raise FitError(f"{report.name}: no window.{name} in this HTML of GuideLLM; the file is cut short")
    try:
        return json.JSONDecoder().raw_decode(report.text, found.end())[0]
    except json.JSONDecodeError as error:
        raise FitError(
            f"{report.name}: window.{name} is not valid JSON at line {error.lineno}; it may be cut short"
        ) from None


def _strategies(kind: str, rates: list[float], report: BenchmarkFile) -> list[dict[str, Any]]:
    if kind == "synchronous" and len(rates) >= _OF_SWEEP:
        first: list[dict[str, Any]] = [{"type_": name} for name in guidellm.SWEEP_FIRST]
        return [*first, *({"type_": "constant", "rate": rate} for rate in guidellm.sweep_rates(rates))]
    if kind in {"synchronous", "throughput"}:
        return [{"type_": kind}] * len(rates)
    if kind in guidellm.STEADY_STRATEGIES:
        return [{"type_": kind, "rate": rate} for rate in rates]
    raise FitError(
        f"{report.name}: runs of kind {kind!r} do not state the limit of requests in flight "
        "in this format; give the JSON or CSV of the run"
    )


def _row(
    item: Any,
    strategy: dict[str, Any],
    rate: float,
    place: str,
    spreads: tuple[TokenCountStats, TokenCountStats],
) -> GuideLlmRun:
    count = number_at(item, ("ttft", "count"), place)
    if rate == 0 or count == 0:
        raise FitError(f"{place}: nothing was completed; leave this run out")
    return GuideLlmRun(
        strategy,
        count / rate,
        int(count),
        measured(number_at(item, ("ttft", "median"), place)),
        measured(number_at(item, ("itl", "mean"), place)),
        place,
        *spreads,
    )


def _spread(details: Any, name: str, report: BenchmarkFile) -> TokenCountStats:
    place = f"{report.name}: workloadDetails.{name}"
    found = at(details, (name, "tokenDistributions", "statistics"), place)
    return TokenCountStats(
        number_at(found, ("mean",), place),
        math.sqrt(number_at(found, ("variance",), place)),
        number_at(found, ("min",), place),
        number_at(found, ("max",), place),
        number_at(found, ("count",), place),
    )


def _model(details: Any) -> str | None:
    """Return the model of the first prompt's request; the report itself does not name it."""
    samples = find(details, "prompts", "samples")
    first = samples[0] if isinstance(samples, list) and samples else ""
    found = re.search(r"'model': '([^']+)'", str(first))
    return found[1] if found else None


def _day(report: BenchmarkFile) -> str | None:
    from datetime import UTC, datetime

    found = re.search(r'"timestamp":\s*([0-9.]+)', report.text)
    return datetime.fromtimestamp(float(found[1]), UTC).date().isoformat() if found else None


READER = Reader("GuideLLM HTML", _recognises, _read)
