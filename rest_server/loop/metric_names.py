"""Names of the metrics that sources read: those of vLLM, of gateways, and of emulated batch servers.

A quantity has several alternatives, the newest first; the first one that a source has is used. An alternative
is one metric, or several that are summed. To support a new engine, add alternatives here.
"""

from collections.abc import Mapping

Alternatives = tuple[tuple[str, ...], ...]

COUNTERS: Mapping[str, Alternatives] = {
    "first_tokens": (("vllm:time_to_first_token_seconds_count",), ("batch_server_requests_completed_total",)),
    "rejected": (("vllm:admission_rejections_total",), ("batch_server_requests_rejected_total",)),
    "completed": (("vllm:request_success_total",), ("batch_server_requests_completed_total",)),
    "prompts": (("vllm:request_prompt_tokens_count",),),
    "prompt_tokens": (("vllm:request_prompt_tokens_sum",),),
    "answers": (("vllm:request_generation_tokens_count",),),
    "answer_tokens": (("vllm:request_generation_tokens_sum",),),
    "prefix_queries": (("vllm:prefix_cache_queries_total",),),
    "prefix_hits": (("vllm:prefix_cache_hits_total",),),
    "ttft_s": (("vllm:time_to_first_token_seconds_sum",), ("batch_server_latency_seconds_sum",)),
    "tokens": (
        ("vllm:inter_token_latency_seconds_count",),
        ("vllm:time_per_output_token_seconds_count",),
    ),
    "itl_s": (("vllm:inter_token_latency_seconds_sum",), ("vllm:time_per_output_token_seconds_sum",)),
}
"""Counter metrics of replicas, by field of `Counts`."""
GAUGES: Mapping[str, Alternatives] = {
    "waiting": (
        ("vllm:num_requests_waiting",),
        ("batch_server_requests_waiting", "batch_server_requests_running"),
    ),
    "running": (("vllm:num_requests_running",), ("batch_server_requests_running",)),
}
"""Gauge metrics of replicas. A batch server counts only completed requests, so requests in its batch count as
waiting.
"""
HISTOGRAMS: Mapping[str, Alternatives] = {
    "prompt_buckets": (("vllm:request_prompt_tokens_bucket",),),
    "answer_buckets": (("vllm:request_generation_tokens_bucket",),),
}
"""Histogram metrics of replicas, by field of `Counts`."""
GATEWAY_COUNTERS: Mapping[str, Alternatives] = {
    "arrived": (
        ("llm_d_epp_request_total",),
        ("inference_objective_request_total",),
        ("inference_model_request_total",),
    ),
    "prompts": (("llm_d_epp_request_input_tokens_count",), ("inference_objective_input_tokens_count",)),
    "prompt_tokens": (("llm_d_epp_request_input_tokens_sum",), ("inference_objective_input_tokens_sum",)),
    "answers": (("llm_d_epp_request_output_tokens_count",), ("inference_objective_output_tokens_count",)),
    "answer_tokens": (("llm_d_epp_request_output_tokens_sum",), ("inference_objective_output_tokens_sum",)),
}
"""Counter metrics of a gateway, which sees requests before any queue."""
GATEWAY_GAUGES: Mapping[str, Alternatives] = {
    "waiting": (
        ("llm_d_epp_flow_control_queue_size",),
        ("inference_extension_flow_control_queue_size",),
    ),
}
"""Gauge metrics of a gateway's queue, which is in addition to the queues of the replicas."""
STARTED = "process_start_time_seconds"
"""Gauge metric with the start of a replica's process, which the client libraries of Prometheus add."""


def chosen(table: Mapping[str, Alternatives], values: Mapping[str, float]) -> dict[str, float]:
    """Return the value of each quantity, from its first alternative that is present."""
    result = {}
    for name, alternatives in table.items():
        parts = next((parts for parts in alternatives if all(part in values for part in parts)), None)
        if parts is not None:
            result[name] = sum(values[part] for part in parts)
    return result
