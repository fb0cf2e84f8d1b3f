"""Reader of GuideLLM's HTML reports up to version 0.7, which contain the times.

Their runs are unlabelled. A sweep is recognised by its order: one request at a time, full throughput, then
rates evenly spaced between them; the report has the achieved rates only.
"""

import json
import math
import re
from dataclasses import replace
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.lengths import with_shared_lengths
from optimizer.fitting.readers import guidellm_plans
from optimizer.fitting.readers.guidellm import IN_FLIGHT
from optimizer.fitting.readers.paths import Table, find, number_of, plain, record, time
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, day_of
from optimizer.fitting.record import RunRecord, TokenStats
from optimizer.fitting.runs import Arrivals

TABLE: Table = {
    "completed": plain("ttft/count"),
    "throughput_rps": plain("requestsPerSecond"),
    "ttft_median_ms": time("ms", "ttft/median"),
    "itl_ms": time("ms", "itl/mean"),
}
_OF_SWEEP = 3
"""Minimum runs of a sweep."""


def _recognises(report: BenchmarkFile) -> bool:
    head = report.text[:4096].lstrip().lower()
    return head.startswith(("<!doctype html", "<html")) and "guidellm" in report.text.lower()


def _read(report: BenchmarkFile) -> RunReport:
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
        raise FitError(f"{report.name}: no window.benchmarks in this HTML of GuideLLM; the file is truncated")
    items = _assigned(report, "benchmarks")
    details = _assigned(report, "workloadDetails")
    if not isinstance(items, list) or not items:
        raise FitError(f"{report.name}: the report has no benchmarks; the run was interrupted")
    lengths = {
        "prompt": _lengths(details, "prompts", report.name),
        "output": _lengths(details, "generations", report.name),
    }
    runs = [
        record(item, TABLE, f"{report.name}: benchmarks[{i}]", exact_itl=True, timed=True, **lengths)
        for i, item in enumerate(items)
    ]
    kind = str(find(details, "rateType"))
    if kind == "synchronous" and len(runs) < _OF_SWEEP:
        kind = "alone"
    note = "runs are unlabelled: assumed to be a sweep in its usual order"
    start = re.search(r'"timestamp":\s*([0-9.]+)', report.text)
    loaded = [_loaded(run, load) for run, load in zip(runs, _loads(kind, runs, report.name), strict=True)]
    return RunReport(
        tuple(with_shared_lengths(loaded)),
        "GuideLLM",
        _model(details),
        day_of(float(start[1])) if start else None,
        (note,) if kind == "synchronous" else (),
    )


def _assigned(report: BenchmarkFile, name: str) -> Any:
    """Return the JSON that a script assigns to a window property."""
    found = re.search(rf"window\.{name}\s*=\s*", report.text)
    if found is None:
        raise FitError(f"{report.name}: no window.{name} in this HTML of GuideLLM; the file is truncated")
    try:
        return json.JSONDecoder().raw_decode(report.text, found.end())[0]
    except json.JSONDecodeError as error:
        raise FitError(
            f"{report.name}: window.{name} is not valid JSON at line {error.lineno}; it might be truncated"
        ) from None


def _loads(kind: str, runs: list[RunRecord], name: str) -> list[dict[str, Any]]:
    """Return the load of each run."""
    alone, full = {"users": 1.0}, {"users": float(IN_FLIGHT)}
    rates = [run.throughput_rps or 0.0 for run in runs]
    if kind == "synchronous":
        return [alone, full, *({"offered_rps": rate, **full} for rate in guidellm_plans.sweep_rates(rates))]
    if kind in {"alone", "throughput"}:
        return [alone if kind == "alone" else full for _ in runs]
    if kind in guidellm_plans.STEADY:
        return [{"offered_rps": rate, "arrivals": guidellm_plans.STEADY[kind], **full} for rate in rates]
    raise FitError(
        f"{name}: runs of kind {kind!r} do not state the limit of requests in flight "
        "in this format; give the JSON or CSV of the run"
    )


def _loaded(run: RunRecord, load: dict[str, Any]) -> RunRecord:
    """Return a run with its load and its duration, which the report states by the rate."""
    count, rate = run.completed, run.throughput_rps
    duration = count / rate if count and rate else None
    return replace(run, **{"arrivals": Arrivals.CONSTANT, **load}, duration_s=duration, throughput_rps=None)


def _lengths(details: Any, name: str, place: str) -> TokenStats:
    path = f"{name}/tokenDistributions/statistics"
    mean, variance, least, most = (
        number_of(find(details, f"{path}/{key}")) for key in ("mean", "variance", "min", "max")
    )
    if mean is None or variance is None:
        raise FitError(f"{place}: workloadDetails.{path.replace('/', '.')} is incomplete")
    return TokenStats(mean, math.sqrt(variance), least, most)


def _model(details: Any) -> str | None:
    """Return the model of the first prompt's request; the report itself does not name it."""
    found = re.search(r"'model': '([^']+)'", str(find(details, "prompts/samples/*")))
    return found[1] if found else None


READER = Reader("GuideLLM HTML", _recognises, _read)
