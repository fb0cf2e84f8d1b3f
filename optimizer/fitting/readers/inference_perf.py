"""Reader of inference-perf reports: one stage per file (`stage_N_lifecycle_metrics.json`)."""

import math
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader, at, measured, number, number_at
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts

MS_PER_S = 1000.0


def _recognises(report: BenchmarkFile) -> bool:
    value = report.json
    return (
        isinstance(value, dict) and "successes" in value and ("load_summary" in value or "failures" in value)
    )


def _read(report: BenchmarkFile) -> Benchmark:
    """Read a stage.

    Raises:
        FitError: it sums up several stages, or a required value is missing.
    """
    place = report.name
    load, done = at(report.json, ("load_summary",), place), at(report.json, ("successes",), place)
    count = int(number_at(done, ("count",), place))
    if count == 0:
        raise FitError(f"{place}: successes.count is 0; nothing was completed")
    rate, users = load.get("requested_rate"), load.get("concurrency")
    if rate is None and users is None:
        raise FitError(
            f"{place}: load_summary.requested_rate is missing, as where stages are summed up; "
            "give the stage_N_lifecycle_metrics.json files"
        )
    latency = at(done, ("latency",), place)
    run = BenchmarkRun(
        _counts(done, ("prompt_len", "prompt_tokens"), place),
        _counts(done, ("output_len", "output_tokens"), place),
        Arrivals.CLOSED if users is not None else Arrivals.CONSTANT,
        rate_rps=None if users is not None else _positive(rate, f"{place}: load_summary.requested_rate"),
        requests=int(number(load.get("count", count), f"{place}: load_summary.count")),
        max_in_flight=None if users is None else int(_positive(users, f"{place}: load_summary.concurrency")),
        measured=RunMeasurements(
            _ms(latency, "time_to_first_token", "median"),
            _ms(latency, "inter_token_latency", "mean") or _ms(latency, "time_per_output_token", "mean"),
            measured((done.get("throughput") or {}).get("requests_per_sec")),
        ),
        completed=count,
        source=place,
    )
    note = "the report does not state whether arrivals are even or Poisson: assumed even"
    return Benchmark((run,), "inference-perf", None, None, () if users is not None else (note,))


def _positive(value: Any, place: str) -> float:
    found = number(value, place)
    if found == 0:
        raise FitError(f"{place} is 0; no requests were sent")
    return found


def _ms(latency: Any, name: str, statistic: str) -> float | None:
    found = latency.get(name) if isinstance(latency, dict) else None
    value = measured(found.get(statistic)) if isinstance(found, dict) else None
    return None if value is None else value * MS_PER_S


def _counts(done: Any, names: tuple[str, ...], place: str) -> TokenCounts:
    """Return the lengths from their mean and their 10th and 90th percentiles."""
    found = next((done[name] for name in names if isinstance(done.get(name), dict)), None)
    if found is None:
        raise FitError(f"{place}: successes.{names[0]} is missing; the report is incomplete")
    mean = number_at(found, ("mean",), f"{place}: successes.{names[0]}")
    low, high = found.get("p10"), found.get("p90")
    if isinstance(low, int | float) and isinstance(high, int | float) and high > low:
        return TokenCounts.of(mean, (high - low) / 0.8 / math.sqrt(12))
    return TokenCounts.of(mean, 0.0)


READER = Reader("inference-perf", _recognises, _read)
