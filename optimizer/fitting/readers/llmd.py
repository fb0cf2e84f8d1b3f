"""Reader of reports of llm-d-benchmark, versions 0.1 to 0.2.1: a stage of any tool in a file, YAML or JSON.

Source: `llmdbenchmark/analysis/benchmark_report/schema_v0_2.py`. The reports state the unit of each time, and
are the only ones that state the engines behind the address.
"""

import re
from dataclasses import replace
from typing import Any

from optimizer.fitting.readers.paths import Table, find, find_all, number_of, plain, record, share, time
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, day_of
from optimizer.fitting.record import RunRecord
from optimizer.fitting.runs import Arrivals

_METRICS = ("results/request_performance/aggregate", "metrics")
"""Where versions 0.2 and 0.1 have their figures."""
_LOAD = "scenario/load/standardized"


def _args(*keys: str) -> list[str]:
    """Return the places of a setting of the tool."""
    return [f"scenario/load/args/{key}" for key in keys]


_STATISTICS = {"mean": ["mean"], "deviation": ["stddev", "std"], "p10": ["p10"], "p90": ["p90"]}


def _paths(inner: str) -> list[str]:
    return [f"{metrics}/{inner}" for metrics in _METRICS]


TABLE: Table = {
    "offered_rps": plain(f"{_LOAD}/rate_qps", *_args("rate", "request_rate", "request-rate")),
    "users": plain(
        f"{_LOAD}/concurrency", *_args("concurrency", "max_concurrency", "max-concurrency")
    ),
    "throughput_rps": plain(*_paths("throughput/request_rate/mean"), *_paths("throughput/requests_per_sec")),
    "requested": plain(*_paths("requests/total")),
    "failed": plain(*_paths("requests/failures")),
    "incomplete": plain(*_paths("requests/incomplete")),
    "duration_s": plain("metrics/time/duration"),
    "ttft_ms": time("@units", *_paths("latency/time_to_first_token/mean")),
    "ttft_median_ms": time("@units", *_paths("latency/time_to_first_token/p50")),
    "itl_ms": time("@units", *_paths("latency/inter_token_latency/mean")),
    "tpot_ms": time("@units", *_paths("latency/time_per_output_token/mean")),
    "latency_ms": time("@units", *_paths("latency/request_latency/mean")),
    "cached_share": share("@units", "results/**/vllm_prefix_cache_hit_rate/**/statistics/mean"),
    "turns": plain(f"{_LOAD}/multi_turn/max_turns/value"),
    **{
        f"{kind}_{suffix}": plain(*(path for key in keys for path in _paths(f"requests/{name}_length/{key}")))
        for kind, name in (("prompt", "input"), ("output", "output"))
        for suffix, keys in _STATISTICS.items()
    },
}  # fmt: skip
_ENGINE = ("scenario/stack/*/standardized", "scenario/host/accelerator/*")
_TYPES = ("scenario", "host", "type", "*")
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?")


def _recognises(report: BenchmarkFile) -> bool:
    value = report.tree
    return isinstance(value, dict) and "scenario" in value and find(value, *_paths("requests")) is not None


def _read(report: BenchmarkFile) -> RunReport:
    """Read a stage.

    Raises:
        FitError: a unit is unknown.
    """
    tree = report.tree
    tool, version = find(tree, f"{_LOAD}/tool", "scenario/load/name"), find(tree, "version")
    model = find(tree, "scenario/stack/*/standardized/model/name", "scenario/model/name")
    found = _run(tree, report.name, str(tool or ""))
    note = "the report does not state whether arrivals are even or Poisson: assumed "
    note += "even" if found.arrivals is Arrivals.CONSTANT else "Poisson"
    return RunReport(
        (found,),
        f"llm-d {version}{f' of {tool}' if tool else ''}",
        model if isinstance(model, str) else None,
        day_of(find(tree, "run/time/start", "metrics/time/start")),
        (note,) if found.offered_rps not in {None, float("inf")} else (),
    )


def _run(tree: Any, place: str, tool: str) -> RunRecord:
    engines = [
        engine
        for path in _ENGINE
        for engine in find_all(tree, path.split("/"))
        if isinstance(engine, dict) and engine.get("kind", "inference_engine") == "inference_engine"
    ]
    roles = {str(engine.get("role")) for engine in engines} | set(find_all(tree, _TYPES))
    counts = [number_of(engine.get("replicas")) or 1.0 for engine in engines]
    found = record(
        tree,
        TABLE,
        place,
        arrivals=Arrivals.CONSTANT if tool == "inference-perf" else Arrivals.POISSON,
        replicas=sum(counts) if engines else None,
        split="scenario.stack[].role" if {"prefill", "decode"} <= roles else None,
    )
    parallel = [find(engine, "accelerator/parallelism", "parallelism") for engine in engines]
    sizes = [[number_of(find(one, key)) for key in ("tp", "pp")] for one in parallel]
    tensor, pipeline = sizes[0] if sizes and all(size == sizes[0] for size in sizes) else (None, None)
    lost = (found.failed or 0.0) + (found.incomplete or 0.0)
    return replace(
        found,
        fields={**found.fields, "replicas": "scenario.stack[].replicas"},
        completed=None if found.requested is None else found.requested - lost,
        duration_s=None
        if found.throughput_rps
        else found.duration_s or _seconds(find(tree, "run/time/duration")),
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
    )


def _seconds(text: Any) -> float | None:
    """Return the seconds of an ISO 8601 duration."""
    found = _DURATION.fullmatch(str(text or ""))
    if found is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


READER = Reader("llm-d benchmark report", _recognises, _read)
