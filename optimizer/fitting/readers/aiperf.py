"""Reader of summaries of AIPerf and GenAI-Perf, `profile_export_aiperf.json`."""

import math
from collections.abc import Iterator
from typing import Any

from optimizer.errors import FitError
from optimizer.fitting.readers.report import Benchmark, BenchmarkFile, Reader, at, measured, number, number_at
from optimizer.fitting.runs import Arrivals, BenchmarkRun, RunMeasurements, TokenCounts

_TO_MS = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "us": 1e-3, "ns": 1e-6}


def _recognises(report: BenchmarkFile) -> bool:
    value = report.json
    return (
        isinstance(value, dict)
        and isinstance(value.get("time_to_first_token"), dict)
        and "input_config" in value
    )


def _read(report: BenchmarkFile) -> Benchmark:
    """Read a summary.

    Raises:
        FitError: a required value is missing.
    """
    value, place = report.json, report.name
    settings = at(value, ("input_config",), place)
    rate, users = _setting(settings, "request_rate", "rate"), _setting(settings, "concurrency")
    mode = str(_text(settings, "request_rate_mode", "arrival_pattern", "type") or "poisson").lower()
    completed = int(number_at(value, ("request_count", "avg"), place))
    if completed == 0:
        raise FitError(f"{place}: request_count is 0; nothing was completed")
    if rate is None and users is None:
        raise FitError(f"{place}: input_config says neither a request rate nor a concurrency")
    duration = _setting(settings, "benchmark_duration", "duration")
    run = BenchmarkRun(
        _counts(value, "input_sequence_length", place),
        _counts(value, "output_sequence_length", place),
        Arrivals.CLOSED if rate is None else (Arrivals.CONSTANT if "constant" in mode else Arrivals.POISSON),
        rate_rps=rate,
        requests=None if duration is not None else completed,
        duration_s=duration,
        arrival_cv=_spread(settings) if rate is not None and "gamma" in mode else None,
        max_in_flight=None if users is None else max(int(users), 1),
        measured=RunMeasurements(
            _ms(value, "time_to_first_token", "p50", place),
            _ms(value, "inter_token_latency", "avg", place),
            measured((value.get("request_throughput") or {}).get("avg")),
        ),
        completed=completed,
        source=place,
    )
    version = value.get("aiperf_version")
    models = _found(settings, "model_names", "models")
    return Benchmark(
        (run,),
        f"AIPerf {version}" if version else "AIPerf",
        str(models[0]) if isinstance(models, list) and models and isinstance(models[0], str) else None,
        str(value.get("start_time") or "")[:10] or None,
    )


def _spread(settings: Any) -> float | None:
    """Return the coefficient of variation of gamma interarrival times from their smoothness."""
    smoothness = _setting(settings, "arrival_smoothness", "smoothness", "vllm_burstiness")
    return None if smoothness is None else 1 / math.sqrt(smoothness)


def _values(settings: Any, name: str) -> Iterator[Any]:
    """Yield all values of a key anywhere in the settings, except in a warm-up phase."""
    if isinstance(settings, dict):
        if settings.get("name") == "warmup":
            return
        if settings.get(name) is not None:
            yield settings[name]
        for inner in settings.values():
            yield from _values(inner, name)
    elif isinstance(settings, list):
        for inner in settings:
            yield from _values(inner, name)


def _found(settings: Any, *names: str) -> Any:
    return next((value for name in names for value in _values(settings, name)), None)


def _setting(settings: Any, *names: str) -> float | None:
    numbers = (measured(value) for name in names for value in _values(settings, name))
    return next((value for value in numbers if value is not None), None)


def _text(settings: Any, *names: str) -> str | None:
    kinds = ("constant", "poisson", "gamma", "concurrency")
    texts = (value for name in names for value in _values(settings, name) if isinstance(value, str))
    return next((text for text in texts if any(kind in text.lower() for kind in kinds)), None)


def _ms(value: Any, name: str, statistic: str, place: str) -> float | None:
    metric = value.get(name)
    if not isinstance(metric, dict):
        return None
    unit = str(metric.get("unit", "ms"))
    if unit not in _TO_MS:
        raise FitError(f"{place}: {name}.unit {unit!r} is not a unit of time; known are {', '.join(_TO_MS)}")
    found = measured(metric.get(statistic))
    return None if found is None else found * _TO_MS[unit]


def _counts(value: Any, name: str, place: str) -> TokenCounts:
    metric = at(value, (name,), place)
    deviation = metric.get("std") if isinstance(metric, dict) else None
    return TokenCounts.of(
        number_at(metric, ("avg",), f"{place}: {name}"),
        0.0 if deviation is None else number(deviation, f"{place}: {name}.std"),
    )


READER = Reader("AIPerf", _recognises, _read)
