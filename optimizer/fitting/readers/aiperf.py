"""Reader of summaries of AIPerf and GenAI-Perf, `profile_export_aiperf.json` (AIPerf 0.8 to 1.5)."""

import math
from dataclasses import replace
from typing import Any

from optimizer.fitting.readers.paths import Table, all_at, find, measured, number_in, plain, record, text_at
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, day_of, having
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
    "prompt_mean": plain("input_sequence_length/avg", "usage_prompt_tokens/avg"),
    "prompt_deviation": plain("input_sequence_length/std"),
    "output_mean": plain("usage_completion_tokens/avg", "output_sequence_length/avg"),
    "text_tokens": plain("output_sequence_length/avg"),
    "output_deviation": plain("output_sequence_length/std"),
    "ttft_ms": measured("@unit", "time_to_first_token/avg"),
    "ttft_median_ms": measured("@unit", "time_to_first_token/p50"),
    "itl_ms": measured("@unit", "inter_token_latency/avg"),
    "latency_ms": measured("@unit", "request_latency/avg"),
    "client_delay_ms": measured("@unit", "credit_to_start_latency/p50"),
    "cached_tokens": plain("usage_prompt_cache_read_tokens/avg"),
    "cached_share": measured("@unit", "theoretical_prefix_cache_hit/avg"),
    "turns": plain("input_config/**/turn/mean"),
}
_LIMITS = ("input_config/**/benchmark_duration", "input_config/**/duration")
_NAMES = (
    "input_config/**/model_names/*", "input_config/**/models/items/*/name", "input_config/**/models/*/name",
    "input_config/**/models/*", "input_config/**/model/*",
)  # fmt: skip
_MODES = tuple(f"input_config/**/{key}" for key in ("request_rate_mode", "arrival_pattern", "type"))
_PROCESSES = ("constant", "poisson", "gamma", "concurrency")


def _read(report: BenchmarkFile) -> RunReport:
    """Read the run of a summary file.

    Raises:
        FitError: a unit is unknown.
    """
    value = report.tree
    tool = f"AIPerf {value.get('aiperf_version') or ''}".strip()
    model = text_at(value, *_NAMES)
    return RunReport((_run(value, report.name),), tool, model, day_of(value.get("start_time")))


def _run(value: Any, place: str) -> RunRecord:
    texts = (text.lower() for text in all_at(value, *_MODES) if isinstance(text, str))
    mode = next((text for text in texts if any(process in text for process in _PROCESSES)), "poisson")
    result = record(value, TABLE, place)
    urls = list(all_at(value, "input_config/**/urls/*"))
    errors = sum(number_in(item) or 0.0 for item in all_at(value, "error_summary/*/count"))
    smooth, streamed = result.arrival_cv, find(value, "input_config/**/streaming")
    return replace(
        result,
        arrivals=Arrivals.CONSTANT if "constant" in mode else Arrivals.POISSON,
        arrival_cv=1 / math.sqrt(smooth) if smooth and smooth > 0 and "gamma" in mode else None,
        failed=result.failed if result.failed is not None else errors,
        cancelled=value.get("was_cancelled") is True,
        timed=any(number_in(limit) for limit in all_at(value, *_LIMITS)),
        hint=f"{len(urls)} urls" if len(urls) > 1 else None,
        unusable="answers were not streamed (endpoint.streaming)" if streamed is False else None,
    )


READER = Reader("AIPerf", having(["input_config"], ["request_throughput"]), _read)
