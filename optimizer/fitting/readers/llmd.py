"""Reader of llm-d-benchmark reports, version 0.2: one stage of any tool in a YAML or JSON file.

Source: `llmdbenchmark/analysis/benchmark_report/schema_v0_2.py`. The reports state the unit of each time, and
are the only ones that state the engines behind the address.
"""

from dataclasses import replace
from typing import Any

from optimizer.fitting.readers.paths import Table, all_at, find, measured, number_in, plain, record, text_at
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, day_of, having
from optimizer.fitting.record import RunRecord
from optimizer.fitting.runs import Arrivals

_FIGURES = "results/request_performance/aggregate"
_LOAD = "scenario/load/standardized"
_STATISTICS = {"mean": ["mean"], "deviation": ["stddev", "std"], "p10": ["p10"], "p90": ["p90"]}
TABLE: Table = {
    "offered_rps": plain(f"{_LOAD}/rate_qps"),
    "users": plain(f"{_LOAD}/concurrency"),
    "throughput_rps": plain(f"{_FIGURES}/throughput/request_rate/mean"),
    "tokens_rps": plain(f"{_FIGURES}/throughput/output_token_rate/mean"),
    "requested": plain(f"{_FIGURES}/requests/total"),
    "failed": plain(f"{_FIGURES}/requests/failures"),
    "incomplete": plain(f"{_FIGURES}/requests/incomplete"),
    "ttft_ms": measured("@units", f"{_FIGURES}/latency/time_to_first_token/mean"),
    "ttft_median_ms": measured("@units", f"{_FIGURES}/latency/time_to_first_token/p50"),
    "itl_ms": measured("@units", f"{_FIGURES}/latency/inter_token_latency/mean"),
    "tpot_ms": measured("@units", f"{_FIGURES}/latency/time_per_output_token/mean"),
    "latency_ms": measured("@units", f"{_FIGURES}/latency/request_latency/mean"),
    "cached_share": measured("@units", "results/**/vllm_prefix_cache_hit_rate/**/statistics/mean"),
    "turns": plain(f"{_LOAD}/multi_turn/max_turns/value"),
    **{
        f"{side}_{suffix}": plain(*(f"{_FIGURES}/requests/{name}_length/{key}" for key in keys))
        for side, name in (("prompt", "input"), ("output", "output"))
        for suffix, keys in _STATISTICS.items()
    },
}


def _read(report: BenchmarkFile) -> RunReport:
    """Read the run of a stage.

    Raises:
        FitError: a unit is unknown.
    """
    tree = report.tree
    tool, version = text_at(tree, f"{_LOAD}/tool"), find(tree, "version")
    result = _run(tree, report.name, tool or "")
    note = "the report does not state whether arrivals are even or Poisson: assumed "
    note += "even" if result.arrivals is Arrivals.CONSTANT else "Poisson"
    return RunReport(
        (result,),
        f"llm-d {version}{f' of {tool}' if tool else ''}",
        text_at(tree, "scenario/stack/*/standardized/model/name"),
        day_of(find(tree, "run/time/start")),
        (note,) if result.offered_rps not in {None, float("inf")} else (),
    )


def _run(tree: Any, place: str, tool: str) -> RunRecord:
    engines = [
        engine
        for engine in all_at(tree, "scenario/stack/*/standardized")
        if isinstance(engine, dict) and engine.get("kind", "inference_engine") == "inference_engine"
    ]
    roles = {str(engine.get("role")) for engine in engines}
    result = record(
        tree,
        TABLE,
        place,
        arrivals=Arrivals.CONSTANT if tool == "inference-perf" else Arrivals.POISSON,
        replicas=sum(map(_copies, engines)) if engines else None,
        split="scenario.stack[].role" if {"prefill", "decode"} <= roles else None,
    )
    sizes = [
        [number_in(find(one, f"accelerator/parallelism/{key}")) for key in ("tp", "pp")] for one in engines
    ]
    tensor, pipeline = sizes[0] if sizes and all(size == sizes[0] for size in sizes) else (None, None)
    lost = (result.failed or 0.0) + (result.incomplete or 0.0)
    return replace(
        result,
        fields={**result.fields, "replicas": "scenario.stack[].replicas"},
        completed=None if result.requested is None else result.requested - lost,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
    )


def _copies(engine: Any) -> float:
    """Return the number of engines of an entry; data-parallel ones with expert parallelism count as one."""
    replicas, copies, experts = (
        number_in(find(engine, path)) or 1.0
        for path in ("replicas", "accelerator/parallelism/dp", "accelerator/parallelism/ep")
    )
    return replicas * (copies if experts == 1 else 1.0)


READER = Reader("llm-d benchmark report 0.2", having(["scenario"], [f"{_FIGURES}/requests"]), _read)
