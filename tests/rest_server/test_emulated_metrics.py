"""A real Prometheus finds and scrapes an emulated fleet, and answers what autoscalers and dashboards ask."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from emulated import Emulator
from patience import until
from prometheus_runs import asked, needs_prometheus, scraping

pytestmark = needs_prometheus
SENT = 12
EXTRAPOLATION = 0.1
"""Error of `increase`, which extrapolates to the ends of its window."""
WINDOW = "10m"
ARRIVALS = (
    f"sum(increase(vllm:time_to_first_token_seconds_count[{WINDOW}])) + (sum(vllm:num_requests_waiting) "
    f"- (sum(vllm:num_requests_waiting offset {WINDOW}) or vector(0))) "
    f"+ (sum(increase(vllm:admission_rejections_total[{WINDOW}])) or vector(0))"
)
"""Arrivals that overload does not hide: first tokens, growth of the queues, and rejections."""
DASHBOARD = (
    "histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[1m])))",
    "histogram_quantile(0.95, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket[1m])))",
    "histogram_quantile(0.95, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[1m])))",
    "sum(rate(vllm:request_success_total[1m])) by (finished_reason)",
    "sum(rate(vllm:generation_tokens_total[1m]))",
    "sum(rate(vllm:request_generation_tokens_sum[1m])) / sum(rate(vllm:request_generation_tokens_count[1m]))",
    "sum(vllm:kv_cache_usage_perc) by (instance)",
    "sum(vllm:num_requests_running) by (server)",
    "sum(rate(batch_server_latency_seconds_count[1m])) by (server)",
    "inferplan_router_replica_healthy",
)
"""Queries in the form of vLLM's own dashboards, and of the other servers of a fleet."""


@pytest.fixture(scope="module")
def prometheus(fleet: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Prometheus that discovers the replicas."""
    job = {
        "job_name": "fleet",
        "http_sd_configs": [{"url": f"{fleet.url}/emulator/targets", "refresh_interval": "1s"}],
        "static_configs": [{"targets": [fleet.url.removeprefix("http://")]}],
    }
    with scraping(tmp_path_factory.mktemp("prometheus"), job, len(fleet.replicas) + 1) as url:
        yield url


def value(url: str, query: str) -> float:
    rows = asked(url, query)
    return float(rows[0]["value"][1]) if rows else 0.0


def is_answered(url: str, query: str) -> bool:
    return bool(asked(url, query))


@pytest.mark.slow
def test_prometheus_counts_what_was_sent(fleet: Emulator, prometheus: str) -> None:
    body = {"model": "chat", "prompt": "one two three", "max_tokens": 9, "ignore_eos": True}
    assert {row["metric"]["server"] for row in asked(prometheus, "vllm:num_requests_running")} == {"talk"}
    with ThreadPoolExecutor(SENT) as pool:
        answers = list(pool.map(lambda _: fleet.ask("/v1/completions", body).status, range(SENT)))
    done = answers.count(200)
    fleet.ask("/predict", {})
    until(lambda: value(prometheus, "sum(vllm:request_success_total)") == done, 0.1)
    assert value(prometheus, "sum(vllm:generation_tokens_total)") == 9 * done
    assert value(prometheus, "sum(vllm:inter_token_latency_seconds_count)") == 8 * done
    until(lambda: value(prometheus, "sum(batch_server_requests_completed_total)") == 1, 0.1)
    # A full replica rejects, and the router tries the other one: both count the arrival.
    rejected = value(prometheus, "sum(vllm:admission_rejections_total)")
    until(lambda: abs(value(prometheus, ARRIVALS) / (done + rejected) - 1) < EXTRAPOLATION, 0.1)
    for query in DASHBOARD:
        until(partial(is_answered, prometheus, query), 0.1)


def test_metrics_pass_the_linter_but_for_names_of_vllm_and_llm_d(fleet: Emulator) -> None:
    urls = [fleet.url, *(one["url"] for one in fleet.replicas)]
    for url in urls:
        found = subprocess.run(
            ["promtool", "check", "metrics"], input=fleet.ask("/metrics", url=url).text, text=True,
            capture_output=True, check=False,
        )  # fmt: skip
        complaints = [
            line
            for line in found.stderr.splitlines()
            if "should not contain ':'" not in line
            and not (line.startswith("llm_d_epp_") and "abbreviated units" in line)
        ]
        assert complaints == []
