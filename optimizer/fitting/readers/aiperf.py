"""Reader of summaries of AIPerf and GenAI-Perf, `profile_export_aiperf.json` (AIPerf 0.8 to 1.5)."""

import math
from dataclasses import replace
from typing import Any

from optimizer.fitting.readers.paths import Table, find, find_all, number_of, plain, record, share, time
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, day_of
from optimizer.fitting.record import RunRecord
from optimizer.fitting.runs import Arrivals

TABLE: Table = {
    "offered_rps": plain("input_config/**/request_rate", "input_config/**/rate"),
    "users": plain("input_config/**/concurrency"),
    "throughput_rps": plain("request_throughput/avg"),
    "tokens_rps": plain("output_token_throughput/avg"),
    "in_flight": plain("effective_concurrency/avg"),
    "arrival_cv": plain(
        "input_config/**/arrival_smoothness", "input_config/**/smoothness", "input_config/**/vllm_burstiness"
    ),
    "completed": plain("request_count/avg"),
    "failed": plain("error_request_count/avg"),
    "duration_s": plain("benchmark_duration/avg"),
    "prompt_mean": plain("input_sequence_length/avg"),
    "prompt_deviation": plain("input_sequence_length/std"),
    "output_mean": plain("output_sequence_length/avg"),
    "output_deviation": plain("output_sequence_length/std"),
    "ttft_ms": time("@unit", "time_to_first_token/avg"),
    "ttft_median_ms": time("@unit", "time_to_first_token/p50"),
    "itl_ms": time("@unit", "inter_token_latency/avg"),
    "latency_ms": time("@unit", "request_latency/avg"),
    "client_delay_ms": time("@unit", "credit_to_start_latency/p50"),
    "cached_tokens": plain("usage_prompt_cache_read_tokens/avg"),
    "cached_share": share("@unit", "theoretical_prefix_cache_hit/avg"),
    "turns": plain("input_config/**/turn/mean"),
}
_LIMITS = ("input_config/**/benchmark_duration", "input_config/**/duration")
_NAMES = (
    "input_config/**/model_names/*", "input_config/**/models/items/*/name", "input_config/**/models/*/name",
    "input_config/**/models/*", "input_config/**/model/*",
)  # fmt: skip
_MODES = ("request_rate_mode", "arrival_pattern", "type")


def _recognises(report: BenchmarkFile) -> bool:
    value = report.tree
    return (
        isinstance(value, dict)
        and isinstance(value.get("time_to_first_token"), dict)
        and "input_config" in value
    )


def _read(report: BenchmarkFile) -> RunReport:
    """Read a summary.

    Raises:
        FitError: a unit is unknown.
    """
    value = report.tree
    version = value.get("aiperf_version")
    names = (name for path in _NAMES for name in find_all(value, path.split("/")))
    model = next((name for name in names if isinstance(name, str)), None)
    tool = f"AIPerf {version}" if version else "AIPerf"
    return RunReport((_run(value, report.name),), tool, model, day_of(value.get("start_time")))


def _run(value: Any, place: str) -> RunRecord:
    mode = _mode(value)
    limits = (number_of(limit) for path in _LIMITS for limit in find_all(value, path.split("/")))
    limit = next((limit for limit in limits if limit), None)
    found = record(value, TABLE, place)
    errors = sum(number_of(item) or 0.0 for item in find_all(value, ["error_summary", "*", "count"]))
    smooth = found.arrival_cv
    changes: dict[str, Any] = {
        "arrivals": Arrivals.CONSTANT if "constant" in mode else Arrivals.POISSON,
        "arrival_cv": 1 / math.sqrt(smooth) if smooth and smooth > 0 and "gamma" in mode else None,
        "failed": found.failed if found.failed is not None else errors,
        "cancelled": value.get("was_cancelled") is True,
        "timed": limit is not None,
    }
    if find(value, "input_config/**/streaming") is False:
        changes["unusable"] = "answers were not streamed (endpoint.streaming)"
    return replace(found, **changes)


def _mode(value: Any) -> str:
    """Return the name of the arrival process."""
    kinds = ("constant", "poisson", "gamma", "concurrency")
    texts = (text for name in _MODES for text in find_all(value, ["input_config", "**", name]))
    found = (text.lower() for text in texts if isinstance(text, str))
    return next((text for text in found if any(kind in text for kind in kinds)), "poisson")


READER = Reader("AIPerf", _recognises, _read)
