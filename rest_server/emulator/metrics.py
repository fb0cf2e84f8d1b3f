"""Metrics of an emulated replica under the names of vLLM, kept as plain numbers."""

from bisect import bisect_left
from collections.abc import Sequence

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
"""Bounds of the buckets of vLLM's histograms."""


class Histogram:
    """A histogram of Prometheus."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> list[str]:
        """Return the samples in Prometheus's text format."""
        found, total = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append(f'{name}_bucket{{{labels},le="{bound}"}} {total}')
        return [*found, f"{name}_sum{{{labels}}} {self._sum}", f"{name}_count{{{labels}}} {total}"]


class TokenMetrics:
    """Counters and histograms of a replica with tokens."""

    def __init__(self) -> None:
        self.prompt_tokens = self.generation_tokens = 0
        self.succeeded = dict.fromkeys(("stop", "length", "abort"), 0)
        self.rejected = 0
        self.histograms = {
            "time_to_first_token_seconds": Histogram(FIRST_S),
            "inter_token_latency_seconds": Histogram(TOKEN_S),
            "request_time_per_output_token_seconds": Histogram(TOKEN_S),
            "e2e_request_latency_seconds": Histogram(REQUEST_S),
            "request_decode_time_seconds": Histogram(REQUEST_S),
            "request_prompt_tokens": Histogram(TOKENS),
            "request_generation_tokens": Histogram(TOKENS),
        }
        first, token, *_ = self.histograms.values()
        self.observe_first, self.observe_token = first.observe, token.observe

    def complete(self, reason: str, prompt: int, made: int, e2e_s: float, decode_s: float) -> None:
        """Count a complete request."""
        self.succeeded[reason] += 1
        self.prompt_tokens += prompt
        seen = self.histograms
        seen["e2e_request_latency_seconds"].observe(e2e_s)
        seen["request_decode_time_seconds"].observe(decode_s)
        seen["request_prompt_tokens"].observe(prompt)
        seen["request_generation_tokens"].observe(made)
        if made > 1:
            seen["request_time_per_output_token_seconds"].observe(decode_s / (made - 1))

    def text(self, model: str, gauges: dict[str, float], preemptions: int) -> bytes:
        """Return all metrics in Prometheus's text format."""
        label = f'model_name="{model}",engine="0"'
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{label}}} {value}"]
        counters = {
            "prompt_tokens_total": self.prompt_tokens,
            "generation_tokens_total": self.generation_tokens,
            "num_preemptions_total": preemptions,
            "prefix_cache_queries_total": 0,
            "prefix_cache_hits_total": 0,
        }
        for name, count in counters.items():
            lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}{{{label}}} {count}"]
        lines.append("# TYPE vllm:request_success_total counter")
        for reason, count in self.succeeded.items():
            lines.append(f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {count}')
        lines.append("# TYPE vllm:admission_rejections_total counter")
        lines.append(
            f'vllm:admission_rejections_total{{{label},reason="max_num_queued_reqs"}} {self.rejected}'
        )
        for name, histogram in self.histograms.items():
            lines.append(f"# TYPE vllm:{name} histogram")
            lines += histogram.lines(f"vllm:{name}", label)
        return ("\n".join(lines) + "\n").encode()
