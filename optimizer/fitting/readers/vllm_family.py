"""Reader of `vllm bench serve` and its descendants: SGLang, TensorRT-LLM and InferenceX.

All write one flat JSON object for each run: alone, in a list, or one per line. Sources:
`vllm/benchmarks/serve.py` (0.6 to 0.25), SGLang `bench_serving.py`, TensorRT-LLM `benchmark_serving.py`,
InferenceX `utils/process_result.py`.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optimizer.errors import FitError
from optimizer.fitting.checks import MAX_TOKENS
from optimizer.fitting.readers.paths import Path, Table, find, measured, number_in, plain, record, text_at
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, day_of
from optimizer.fitting.record import RunRecord, TokenStats

_MARKS = (("total_input_tokens", "total_output_tokens", "completed"), ("conc", "hw"))
_OF_INFERENCEX = "hw"
_AGENTIC = "request_metrics"


def _time(metric: str, statistic: str = "mean", percentile: str = "mean") -> tuple[Path, ...]:
    """Return the paths of a time: in ms in the benchmarks, and in seconds in InferenceX."""
    names = dict.fromkeys((f"{statistic}_{metric}", f"{percentile}_{metric}"))
    nested = f"{_AGENTIC}/latency/{metric}/{percentile}"
    return measured("ms", *(f"{name}_ms" for name in names)) + measured("s", *names, nested)


TABLE: Table = {
    "offered_rps": plain("request_rate"),
    "throughput_rps": plain("request_throughput", "mean_qps", f"{_AGENTIC}/qps/mean"),
    "tokens_rps": plain("output_throughput", f"{_AGENTIC}/throughput/output/tokens_per_second"),
    "users": plain("max_concurrency", "conc"),
    "in_flight": plain("concurrency"),
    "requested": plain("num_prompts", "num_requests_total"),
    "completed": plain("completed", "num_requests_successful"),
    "failed": plain("failed"),
    "duration_s": plain("duration"),
    "prompt_total": plain("total_input_tokens"),
    "prompt_mean": plain("mean_input_tokens", f"{_AGENTIC}/tokens/input/mean"),
    "output_total": plain("total_output_tokens"),
    "output_mean": plain("mean_output_tokens_actual", f"{_AGENTIC}/tokens/output_actual/mean"),
    "ttft_ms": _time("ttft"),
    "ttft_median_ms": _time("ttft", "median", "p50"),
    "tpot_ms": _time("tpot"),
    "tpot_median_ms": _time("tpot", "median", "p50"),
    "itl_ms": _time("itl"),
    "latency_ms": _time("e2el") + _time("e2e_latency"),
    "cached_share": plain("server_gpu_cache_hit_rate", "theoretical_cache_hit_rate",
                          f"{_AGENTIC}/cache/theoretical_cache_hit_rate"),
    "accepted_tokens": plain("spec_decode_acceptance_length", "accept_length",
                             "avg_decoded_tokens_per_iter/mean", "avg_decoded_tokens_per_iter"),
    "replicas": plain("decode_replicas", "replicas", "num_replicas", "data_parallel_size", "dp_size", "dp",
                      "server_info/dp_size"),
    "tensor_parallel": plain("tensor_parallel_size", "tp_size", "tp", "server_info/tp_size"),
    "pipeline_parallel": plain("pipeline_parallel_size", "pp_size", "pp", "server_info/pp_size"),
}  # fmt: skip
_SPLIT = ("disagg", "prefill_replicas", "num_prefill_gpu", "server_info/prefill")
"""Fields that are set (not empty, 0 or false) if prefill and decode run on separate engines."""
_HINT = re.compile(
    r"\b[2-9]\d?\s?[x×]\s?[A-Za-z]+-?\d+\w*|\b[2-9]\d?[-_ ]?(replica|gpu|pod|instance)s\b", re.IGNORECASE
)
"""Pattern of text that names several accelerators or engines, such as `4xL40S`; `8x7B` is part of a model
name.
"""
_COUNTED = re.compile(r"(num_|n_)?(gpu|pod|instance|engine|node)s?(_count)?", re.IGNORECASE)
"""Pattern of field names that might contain a number of engines."""
NOMINAL = 0.9, 0.2 / math.sqrt(12)
"""Mean and standard deviation of InferenceX's lengths, relative to the stated length: uniform from 0.8 to 1.
"""
CONVERSATIONS = {"input": 1.2, "output": 0.9}
"""Coefficients of variation of the lengths of ShareGPT's conversations as vLLM and SGLang sample them."""
_NAMES = ("model_id", "tokenizer_id", "model", "backend", "endpoint_type", "date", "image")
PROMPTS_A_USER = 10
"""Number of requests per user in a run of InferenceX (`--num-prompts`)."""


def _is_run(row: Any) -> bool:
    return isinstance(row, dict) and any(all(mark in row for mark in marks) for marks in _MARKS)


def _recognises(report: BenchmarkFile) -> bool:
    return any(_is_run(row) for row, _ in report.rows)


def _read(report: BenchmarkFile) -> RunReport:
    """Read one result, or several as a list or as written by `--append-result`.

    Raises:
        FitError: an object has a wrong type.
    """
    for row, place in report.rows:
        if not _is_run(row):
            raise FitError(
                f"{place}: this is not a result of {READER.name}, unlike the others; pass them separately"
            )
    first = report.rows[0][0]
    notes = dict.fromkeys(note for row, _ in report.rows for note in _notes(row))
    return RunReport(
        tuple(_run(row, place) for row, place in report.rows),
        _tool(first),
        text_at(first, "model_id", "server_info/model_path", "model"),
        day_of(first.get("date")),
        tuple(notes),
    )


def _tool(row: Mapping[str, Any]) -> str:
    if _OF_INFERENCEX in row:
        return "InferenceX"
    if "server_info" in row or "total_output_tokens_retokenized" in row:
        version = find(row, "server_info/version")
        return f"SGLang bench_serving{f' {version}' if version else ''}"
    return "TensorRT-LLM benchmark_serving" if "avg_decoded_tokens_per_iter" in row else "vllm bench serve"


def _notes(row: Mapping[str, Any]) -> list[str]:
    if _OF_INFERENCEX in row:
        return [] if "isl" not in row else [
            "InferenceX states lengths as asked for: assumed uniform from 0.8 of them, ten requests a user"
        ]  # fmt: skip
    return []


def _run(row: Mapping[str, Any], place: str) -> RunRecord:
    rate, burstiness = number_in(row.get("request_rate")), number_in(row.get("burstiness"))
    uneven = rate and math.isfinite(rate) and burstiness and 0 < burstiness != 1
    result = record(
        row if not find(row, "server_info/enable_dp_attention") else {**row, "dp_size": 1},
        TABLE,
        place,
        hint=_hint(row),
        split=next((name for name in _SPLIT if _is_on(find(row, name))), None),
        arrival_cv=1 / math.sqrt(burstiness or 1.0) if uneven else None,
        unusable=_unusable(row),
    )
    lengths = {
        name: _lengths(row, name, getattr(result, attribute))
        for name, attribute in (("input", "prompt"), ("output", "output"))
    }
    came = number_in(row.get("total_output_tokens_retokenized"))
    requested = result.requested
    if requested is None and result.completed is None and result.users:
        requested = PROMPTS_A_USER * result.users
    return replace(
        result,
        prompt=lengths["input"],
        output=lengths["output"],
        text_tokens=came / result.completed if came and result.completed else None,
        requested=requested,
    )


def _unusable(row: Mapping[str, Any]) -> str | None:
    if row.get("ramp_up_strategy") is not None:
        return (
            f"the rate rises from {row.get('ramp_up_start_rps')} to {row.get('ramp_up_end_rps')} requests/s "
            "(ramp_up_strategy); measure each rate in a separate run"
        )
    rate = row.get("request_rate")
    return (
        None if rate is None or number_in(rate) is not None else f"request_rate {rate!r} cannot be replayed"
    )


def _is_on(value: Any) -> bool:
    number = number_in(value)
    return number > 0 if number is not None else bool(value) and str(value).lower() != "false"


def _hint(row: Mapping[str, Any]) -> str | None:
    counts = (
        f"{key} {row[key]}" for key in row if _COUNTED.fullmatch(key) and (number_in(row[key]) or 0) > 1
    )
    texts = (value for key, value in row.items() if isinstance(value, str) and key not in _NAMES)
    matches = (_HINT.search(text) for text in texts)
    return next(counts, None) or next((match[0] for match in matches if match), None)


def _lengths(row: Mapping[str, Any], name: str, stated: TokenStats) -> TokenStats:
    """Return length statistics; the spread is that of single requests, the requested range, or `NOMINAL`."""
    given, came = row.get(f"{name}_lens"), row.get("output_lens")
    if isinstance(given, list) and isinstance(came, list):
        # Failed requests have a prompt but no output.
        pairs = zip(map(number_in, given), map(number_in, came), strict=False)
        kept = [one for one, answer in pairs if one and answer and 0 < one < MAX_TOKENS]
        if kept:
            return TokenStats(float(np.mean(kept)), float(np.std(kept)))
    nominal = number_in(row.get("isl" if name == "input" else "osl"))
    if stated.mean is None and nominal is not None:
        return TokenStats(NOMINAL[0] * nominal, NOMINAL[1] * nominal)
    ratio, most = number_in(row.get("random_range_ratio")), number_in(row.get(f"random_{name}_len"))
    if stated.mean and ratio is not None and 0 <= ratio <= 1 and most:
        # vLLM draws from 1 - r to 1 + r of the length, SGLang from r to 1 of it; the mean distinguishes them.
        around = abs(stated.mean / most - 1) < abs(stated.mean / most - (1 + ratio) / 2)
        return stated._replace(deviation=(ratio if around else (1 - ratio) / 2) * most / math.sqrt(3))
    named = (str(row.get(key)).lower() for key in ("dataset_name", "dataset_path"))
    return stated.with_cv(CONVERSATIONS[name]) if any("sharegpt" in text for text in named) else stated


READER = Reader("vllm bench serve (also SGLang, TensorRT-LLM, InferenceX)", _recognises, _read)
