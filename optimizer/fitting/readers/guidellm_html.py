"""Runs in GuideLLM's HTML reports up to version 0.7, as trees like those of its JSON.

The runs are unlabelled. A sweep is recognised by its order: one request at a time, full throughput, then
rates evenly spaced between them; the report has the achieved rates only.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers.guidellm_plans import STEADY, SWEEP_FIRST, sweep_rates
from optimizer.fitting.readers.paths import find, number_of
from optimizer.fitting.readers.report import BenchmarkFile

_KINDS = {"prompt": "prompts", "output": "generations"}
NOTE = "runs are unlabelled: assumed to be a sweep in its usual order"


def is_html(report: BenchmarkFile) -> bool:
    """Return whether a file is an HTML report of GuideLLM."""
    head = report.text[:4096].lstrip().lower()
    return head.startswith(("<!doctype html", "<html")) and "guidellm" in report.text.lower()


def html_runs(report: BenchmarkFile) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the runs with their places.

    Raises:
        FitError: the report is cut short, of a newer version, or does not state the load.
    """
    runs, details, info = (_assigned(report, name) for name in ("benchmarks", "workloadDetails", "runInfo"))
    rates = [number_of(find(run, "requestsPerSecond")) or 0.0 for run in runs]
    counts = [number_of(find(run, "ttft/count")) or 0.0 for run in runs]
    lengths = {f"{kind}_token_count": {"successful": _lengths(details, _KINDS[kind])} for kind in _KINDS}
    model = re.search(r"'model': '([^']+)'", str(find(details, "prompts/samples/*")))
    strategies = _strategies(str(find(details, "rateType")), rates, report.name)
    for i, (run, strategy) in enumerate(zip(runs, strategies, strict=True)):
        times = {"time_to_first_token_ms": find(run, "ttft"), "inter_token_latency_ms": find(run, "itl")}
        tree = {
            "metrics": {name: {"successful": value} for name, value in times.items()} | lengths,
            "duration": counts[i] / rates[i] if rates[i] else None,
            "config": {"strategy": strategy, "backend": {"model": model[1] if model else None}},
            "start_time": find(info, "timestamp"),
            "note": NOTE if strategies[0] == {"type_": SWEEP_FIRST[0]} else None,
        }
        yield tree, f"{report.name}: benchmarks[{i}]"


def _assigned(report: BenchmarkFile, name: str) -> Any:
    """Return the JSON that a script assigns to a window property."""
    found = re.search(rf"window\.{name}\s*=\s*", report.text)
    if found is None:
        raise FitError(
            f"{report.name}: no window.{name} in this HTML of GuideLLM: it is truncated, or newer than 0.7, "
            "with no median TTFT and no mean ITL; give the JSON or CSV of the same run"
        )
    try:
        return json.JSONDecoder().raw_decode(report.text, found.end())[0]
    except json.JSONDecodeError as error:
        raise FitError(
            f"{report.name}: window.{name} is not valid JSON at line {error.lineno}; it might be truncated"
        ) from None


def _lengths(details: Any, name: str) -> dict[str, Any]:
    found = find(details, f"{name}/tokenDistributions/statistics") or {}
    return {**found, "std_dev": math.sqrt(number_of(found.get("variance")) or 0.0)}


def _strategies(kind: str, rates: Sequence[float], name: str) -> list[dict[str, Any]]:
    """Return the strategy of each run."""
    first = [{"type_": one} for one in SWEEP_FIRST]
    if kind == SWEEP_FIRST[0] and len(rates) > len(first):
        return [*first, *({"type_": "constant", "rate": rate} for rate in sweep_rates(rates))]
    if kind in STEADY or kind in SWEEP_FIRST:
        return [{"type_": kind, "rate": rate} for rate in rates]
    raise FitError(
        f"{name}: runs of kind {kind!r} do not state the limit of requests in flight in this format; "
        "give the JSON or CSV of the run"
    )
