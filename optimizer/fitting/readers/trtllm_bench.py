"""Reader of `trtllm-bench --report_json`, which measures the engine without a server in front of it.

Source: `tensorrt_llm/bench/dataclasses/reporting.py`. All its times are in ms.
"""

from dataclasses import replace

from optimizer.fitting.readers.paths import Table, measured, plain, record, text_at
from optimizer.fitting.readers.report import BenchmarkFile, Reader, RunReport, having

TABLE: Table = {
    "offered_rps": plain("world_info/issue_rate"),
    "in_flight": plain("request_info/avg_num_concurrent_requests"),
    "users": plain("request_info/max_concurrency", "world_info/max_concurrency"),
    "requested": plain("request_info/num_requests"),
    "completed": plain("request_info/num_requests"),
    "prompt_mean": plain("request_info/avg_input_length"),
    "output_mean": plain("request_info/avg_output_length"),
    "throughput_rps": plain("performance/request_throughput_req_s"),
    "ttft_ms": measured("ms", "streaming_metrics/avg_ttft_ms"),
    "ttft_median_ms": measured("ms", "streaming_metrics/ttft_percentiles/p50"),
    "tpot_ms": measured("ms", "streaming_metrics/avg_tpot_ms"),
    "latency_ms": measured("ms", "performance/avg_request_latency_ms"),
    "accepted_tokens": plain("decoding_stats/acceptance_length/average"),
    "tensor_parallel": plain("world_info/tp_size"),
    "pipeline_parallel": plain("world_info/pp_size"),
}


def _read(report: BenchmarkFile) -> RunReport:
    """Read the run of a report."""
    changed = record(report.tree, TABLE, report.name)
    if not changed.offered_rps or changed.offered_rps >= MAX_RATE_RPS:
        changed = replace(changed, offered_rps=float("inf"))
    note = "trtllm-bench has no server in front: its TTFT lacks HTTP"
    model = text_at(report.tree, "engine/model", "engine/model_path")
    return RunReport((changed,), "trtllm-bench", model, notes=(note,))


MAX_RATE_RPS = 1e6
"""Stated rate at which all requests count as sent at once [requests/s]."""
READER = Reader("trtllm-bench", having(["request_info/num_requests"], ["performance"]), _read)
