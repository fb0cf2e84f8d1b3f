"""Metrics of an emulated replica under the names that vLLM uses, kept as plain numbers."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

FIRST_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip
TOKENS = tuple(float(step * 10**power) for power in range(6) for step in (1, 2, 5))
"""Upper bounds of the buckets of vLLM's token histograms."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HISTOGRAMS: dict[str, tuple[Sequence[float], str]] = {
    "time_to_first_token_seconds": (FIRST_S, "Time to first token in model time."),
    "inter_token_latency_seconds": (TOKEN_S, "Time between tokens in model time."),
    "request_time_per_output_token_seconds": (
        TOKEN_S,
        "Mean time between the tokens of a request in model time.",
    ),
    "e2e_request_latency_seconds": (REQUEST_S, "Time to the last token in model time."),
    "request_queue_time_seconds": (REQUEST_S, "Time in the queue in model time."),
    "request_prefill_time_seconds": (REQUEST_S, "Time from the queue to the first token in model time."),
    "request_decode_time_seconds": (REQUEST_S, "Time from the first to the last token in model time."),
    "request_inference_time_seconds": (REQUEST_S, "Time from the queue to the last token in model time."),
    "request_prompt_tokens": (TOKENS, "Prompt lengths of complete requests."),
    "request_generation_tokens": (TOKENS, "Output lengths of complete requests."),
}
"""Bounds of the buckets of each histogram, and its description."""
_TRANSFERS: dict[str, tuple[Sequence[float], str]] = {
    "nixl_xfer_time_seconds": (
        (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0),
        "Time of a KV cache on the link in model time.",
    ),
    "nixl_bytes_transferred": (tuple(2.0 ** (10 + i) for i in range(1, 25, 2)), "Size of a KV cache."),
}
"""Histograms of vLLM's NIXL connector, which hands over KV caches."""
_TEXTS = {
    "num_requests_running": "Requests in the batch.",
    "num_requests_waiting": "Requests in the queue.",
    "kv_cache_usage_perc": "Used share of the KV cache, from 0 to 1.",
    "prompt_tokens_total": "Prompt tokens of complete requests.",
    "generation_tokens_total": "Generated tokens.",
    "num_preemptions_total": "Preemptions.",
    "prefix_cache_queries_total": "Prompt tokens looked up in the prefix cache; 0 without shared prefixes.",
    "prefix_cache_hits_total": "Prompt tokens found in the prefix cache.",
    "request_success_total": "Complete requests by the reason of their end.",
    "admission_rejections_total": "Requests rejected by a full queue.",
    "external_prefix_cache_queries_total": "Prompt tokens looked up at prefill replicas.",
    "external_prefix_cache_hits_total": "Prompt tokens whose KV cache came from prefill replicas.",
    "nixl_num_failed_transfers_total": "KV caches that were lost before their handover.",
}


def labels(**values: str) -> str:
    """Return labels in Prometheus' text format."""
    pairs = ((name, value.translate(_ESCAPES)) for name, value in values.items())
    return ",".join(f'{name}="{value}"' for name, value in pairs)


def family(name: str, metric_type: str, text: str, samples: Mapping[str, float]) -> list[str]:
    """Return a metric as lines of Prometheus' text format.

    Args:
        name: name of the metric.
        metric_type: counter or gauge.
        text: its description.
        samples: values by labels.
    """
    head = [f"# HELP {name} {text}", f"# TYPE {name} {metric_type}"]
    return head + [f"{name}{{{labelled}}} {value}" for labelled, value in samples.items()]


class Histogram:
    """A Prometheus histogram."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._edges = [*map(str, bounds), "+Inf"]
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    @property
    def mean(self) -> float:
        """Mean of all values; 0 without any."""
        count = sum(self._counts)
        return self._sum / count if count else 0.0

    def observe(self, value: float) -> None:
        """Add a value to the histogram."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self, name: str, text: str, labelled: str) -> list[str]:
        """Return the histogram as lines of Prometheus' text format.

        Args:
            name: name of the metric.
            text: its description.
            labelled: labels of the metric, as text.
        """
        lines, total = [f"# HELP {name} {text}", f"# TYPE {name} histogram"], 0
        for bound, count in zip(self._edges, self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{labelled},le="{bound}"}} {total}')
        return [*lines, f"{name}_sum{{{labelled}}} {self._sum}", f"{name}_count{{{labelled}}} {total}"]


class TokenMetrics:
    """Counters and histograms of a replica with tokens."""

    def __init__(self) -> None:
        self.prompt_tokens = self.generation_tokens = 0
        self.prefix_queries = self.prefix_hits = 0
        self.succeeded = dict.fromkeys(("stop", "length", "abort"), 0)
        self.rejected = 0
        self.histograms = {name: Histogram(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
        first, token, *_ = self.histograms.values()
        self.observe_first, self.observe_token = first.observe, token.observe

    @property
    def more_counters(self) -> Mapping[str, int]:
        """Further counters, by metric."""
        return {}

    @property
    def mean_token_ms(self) -> float:
        """Mean time between tokens so far [ms]; 0 before the second token."""
        return 1000 * self.histograms["inter_token_latency_seconds"].mean

    def complete(self, reason: str, prompt: int, made: int, times_s: Sequence[float]) -> None:
        """Count a complete request.

        Args:
            reason: reason why its output ended.
            prompt: number of prompt tokens.
            made: number of output tokens.
            times_s: times [s] of its arrival, of first joining the batch, and of its first and last token.
        """
        sent_s, scheduled_s, first_s, last_s = times_s
        self.succeeded[reason] += 1
        self.prompt_tokens += prompt
        values = {
            "e2e_request_latency_seconds": last_s - sent_s,
            "request_queue_time_seconds": scheduled_s - sent_s,
            "request_prefill_time_seconds": first_s - scheduled_s,
            "request_decode_time_seconds": last_s - first_s,
            "request_inference_time_seconds": last_s - scheduled_s,
            "request_prompt_tokens": prompt,
            "request_generation_tokens": made,
        }
        if made > 1:
            values["request_time_per_output_token_seconds"] = (last_s - first_s) / (made - 1)
        for name, value in values.items():
            self.histograms[name].observe(value)

    def text(self, model: str, gauges: Mapping[str, float], preemptions: int) -> bytes:
        """Return all metrics of the replica in Prometheus' text format.

        Args:
            model: name of the model.
            gauges: values of the gauges, by metric.
            preemptions: number of preemptions so far.
        """
        label = labels(model_name=model, engine="0")
        lines: list[str] = []
        for name, value in gauges.items():
            lines += family(f"vllm:{name}", "gauge", _TEXTS[name], {label: value})
        counters = {
            **self.more_counters,
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generation_tokens,
            "num_preemptions_total": preemptions,
            "prefix_cache_queries_total": self.prefix_queries,
            "prefix_cache_hits_total": self.prefix_hits,
        }
        for name, count in counters.items():
            lines += family(f"vllm:{name}", "counter", _TEXTS[name], {label: count})
        reasons = {f'{label},finished_reason="{reason}"': count for reason, count in self.succeeded.items()}
        rejections = {f'{label},reason="max_num_queued_reqs"': self.rejected}
        for name, samples in (("request_success", reasons), ("admission_rejections", rejections)):
            lines += family(f"vllm:{name}_total", "counter", _TEXTS[f"{name}_total"], samples)
        for name, histogram in self.histograms.items():
            lines += histogram.family(f"vllm:{name}", (_HISTOGRAMS | _TRANSFERS)[name][1], label)
        return ("\n".join(lines) + "\n").encode()


class TransferMetrics(TokenMetrics):
    """Counters and histograms of a prefill or decode replica, also those of vLLM's NIXL connector."""

    def __init__(self) -> None:
        super().__init__()
        self.failed_transfers = self.queried = self.received = 0
        self.histograms |= {name: Histogram(bounds) for name, (bounds, _) in _TRANSFERS.items()}

    @property
    def more_counters(self) -> Mapping[str, int]:
        """Counters of the connector, by metric."""
        return {
            "external_prefix_cache_queries_total": self.queried,
            "external_prefix_cache_hits_total": self.received,
            "nixl_num_failed_transfers_total": self.failed_transfers,
        }

    def receive(self, seconds: float, size: float, tokens: int) -> None:
        """Count a KV cache of some prompt tokens that the replica has received.

        Args:
            seconds: time on the link [s].
            size: size of the KV cache [bytes].
            tokens: number of prompt tokens.
        """
        self.queried += tokens
        self.received += tokens
        self.histograms["nixl_xfer_time_seconds"].observe(seconds)
        self.histograms["nixl_bytes_transferred"].observe(size)
