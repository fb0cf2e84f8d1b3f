"""Identities of a run's figures: one decision and one sentence for each contradiction, in all formats."""

import contextlib
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors import FitError
from optimizer.fitting.loads import as_replayed
from optimizer.fitting.notes import sentences
from optimizer.fitting.options import Stated
from optimizer.fitting.readers.table import parse_benchmark
from optimizer.fitting.record import RunRecord, TokenStats
from optimizer.fitting.runs import Arrivals, BenchmarkRun

DATA = Path(__file__).parents[1] / "data" / "benchmarks"
SOUND = RunRecord(
    "r.json", prompt=TokenStats(500.0, 100.0), output=TokenStats(101.0, 20.0), users=8.0,
    throughput_rps=8 / 1.05, ttft_ms=50.0, ttft_median_ms=48.0, itl_ms=10.1, tpot_ms=10.0,
    latency_ms=1050.0, requested=200.0, completed=200.0, failed=0.0,
)  # fmt: skip
"""Eight users, requests of 1,050 ms: 50 ms to the first token and 100 gaps of 10 ms."""


def replayed(stated: Stated | None = None, **changes: Any) -> tuple[BenchmarkRun | None, str]:
    found = as_replayed(replace(SOUND, **changes), stated or Stated())
    return found.run, " ".join(sentences(found.notes))


def test_a_sound_run_says_nothing() -> None:
    run, text = replayed()
    assert text == ""
    assert run is not None
    assert run.measured == (48.0, 10.0, 8 / 1.05)
    assert (run.arrivals, run.max_in_flight, run.requests) == (Arrivals.CLOSED, 8, 200)


@pytest.mark.parametrize(
    ("changes", "itl_ms", "words"),
    [
        ({"itl_ms": 26.0}, 10.0, "2.6 tokens arrive per chunk (speculative decoding, or a stream in lumps)"),
        ({"itl_ms": 26.0, "accepted_tokens": 2.6}, 10.0, "2.6 tokens arrive per chunk (specul"),
        ({"itl_ms": 26.0, "latency_ms": None}, 10.0, "from TPOT, 10 ms, not from the gaps between chunks"),
        ({"itl_ms": 26.0, "latency_ms": None}, 10.0, "--percentile-metrics ttft,tpot,itl,e2el"),
        ({"itl_ms": 4.9, "tpot_ms": 4.9}, 10.0, "is 0.49 of what request latency and TTFT say, 10 ms"),
        ({"itl_ms": 12.9}, 10.0, ""),
        ({"itl_ms": 7.1}, 10.0, ""),
        ({"itl_ms": 10.4, "exact_itl": True}, 10.4, ""),
        ({"itl_ms": 10.6, "exact_itl": True}, 10.0, ""),
        ({"itl_ms": 12.0, "latency_ms": None, "throughput_rps": None}, 12.0, ""),
        ({"itl_ms": None}, 10.0, ""),
        ({"ttft_ms": None, "itl_ms": None, "tpot_ms": None, "tpot_median_ms": 9.9, "latency_ms": None,
          "output": TokenStats(101.0, 0.0)}, 9.9, "the median TPOT stands for the mean ITL"),
        ({"ttft_median_ms": None}, 10.0, "the mean, 50 ms, stands for it"),
        ({"asked_tokens": 200.0}, 10.0, "counts 200 tokens a request as asked for; 101 came"),
        ({"cached_share": 0.57}, 10.0, "57% of prompt tokens came from the prefix cache: β is that of"),
        ({"turns": 4.0}, 10.0, "conversations of 4 turns"),
        ({"tokens_rps": 900.0}, 10.0, ""),
        ({"tokens_rps": 900.0, "duration_s": 26.25}, 10.0, "are 118.1 a request, and 101 are stated"),
        ({"latency_ms": None, "tpot_ms": None, "itl_ms": 26.0}, 10.0,
         "speculative decoding, or a stream in lumps); ITL is taken from rate, users and TTFT, 10 ms"),
        ({"itl_ms": 1.0, "tpot_ms": 10.0}, 10.0, "TTFT say, 10 ms; tokens were probably not all counted"),
        ({"duration_s": 52.5, "users": 4.0}, 10.0, "is not the 200 completed: 3.81 requests/s"),
        ({"duration_s": 52.5}, 10.0, "completed: 26.25 s are used, because the other figures"),
        ({"duration_s": 52.5, "tokens_rps": 101 * 8 / 1.05}, 10.0, "completed: 26.25 s are used"),
        ({"duration_s": 39.4, "tokens_rps": 101 * 8 / 1.05, "latency_ms": None, "itl_ms": 10.0}, 10.0,
         "completed: 26.25 s are used, because the other figures agree"),
        ({"itl_ms": 10.6, "latency_ms": None}, 10.0, "would be in flight: 10 ms from TPOT are used"),
        ({"itl_ms": 26.0, "tpot_ms": 10.6, "latency_ms": None}, 10.0, "10 ms from rate, users and TTFT are"),
        ({"itl_ms": None, "tpot_ms": 10.1, "latency_ms": None}, 10.1, ""),
        ({"text_tokens": 80.0}, 10.0, "the server counts 101 output tokens a request, and the"),
        ({"text_tokens": 51.0, "itl_ms": 20.0}, 20.0, "counts 101 tokens a request as asked for; 51 came"),
        ({"text_tokens": 51.0, "tpot_ms": 20.0}, 20.0, "counts 101 tokens a request as asked for; 51 came"),
        ({"text_tokens": 100.0}, 10.0, ""),
    ],
)  # fmt: skip
def test_time_per_token(changes: dict[str, Any], itl_ms: float, words: str) -> None:
    run, text = replayed(**changes)
    assert run is not None
    assert run.measured.itl_ms == pytest.approx(itl_ms)
    assert words in text
    if not words:
        assert text == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ttft_median_ms": -1.75e12}, "its median TTFT is -1,750,000,000,000 ms"),
        ({"itl_ms": float("nan")}, "its mean ITL is nan ms"),
        ({"latency_ms": 2e9}, "its mean latency is 2,000,000,000 ms"),
        ({"completed": 0.0, "failed": 96.0, "requested": 96.0}, "nothing was completed, 96 of 96 requests"),
        ({"duration_s": 0.0}, "its duration is 0 s"),
        ({"ttft_ms": 1050.0}, "its mean TTFT, 1,050 ms, is not below its mean latency, 1,050 ms"),
        ({"ttft_median_ms": 80.0}, "its median TTFT, 80 ms, is far above its mean, 50 ms"),
        ({"ttft_ms": 0.05, "ttft_median_ms": 0.048, "itl_ms": 0.01, "tpot_ms": 0.01, "latency_ms": 1.05},
         "no engine reaches its 0.01 ms a token: its times are probably in s instead of ms"),
        ({"ttft_ms": 5e4, "ttft_median_ms": 4.8e4, "itl_ms": 1e4, "tpot_ms": 1e4, "latency_ms": 1.05e6},
         "its requests last 1,050,000 ms in a run of 26.25 s: the unit is another one"),
        ({"ttft_ms": 0.5, "ttft_median_ms": 0.48}, "its TTFT, 0.48 ms, is far below its 10 ms a token"),
        ({"users": None}, "neither a request rate nor a concurrency is stated"),
        ({"offered_rps": 0.0}, "its offered rate is 0 requests/s"),
        ({"output": TokenStats()}, "its output tokens are not stated"),
        ({"prompt": TokenStats(-5.0)}, "its mean prompt has -5 tokens"),
        ({"cancelled": True, "completed": 29.0, "requested": None}, "was cancelled after 29 requests"),
        ({"failed": 84.0, "requested": 284.0, "throughput_rps": 3.2},
         "84 of 284 requests failed, so that 3.36 of 8 users were in flight"),
        ({"requested": 284.0, "failed": None, "offered_rps": 4.0, "users": None}, "84 of 284"),
        ({"unusable": "a trace"}, "a trace"),
    ],
)  # fmt: skip
def test_runs_that_are_left_out(changes: dict[str, Any], words: str) -> None:
    run, text = replayed(**changes)
    assert run is None
    assert text.startswith("r.json is left out: ")
    assert words in text


@pytest.mark.parametrize(
    ("changes", "load", "words"),
    [
        ({"failed": 2.0}, (None, 8, 0.0), ""),
        ({"failed": 12.0, "requested": 212.0, "throughput_rps": 6.0}, (None, 6, 0.0),
         "12 of 212 requests failed; in flight is taken from rate times latency, 6.3"),
        ({"failed": 84.0, "requested": 284.0}, (None, 8, 0.0), "in flight is taken from rate times"),
        ({"throughput_rps": 5.1}, (None, 6, 110.9), "5.36 were in flight, of 7.8"),
        ({"throughput_rps": 7.0, "completed": 24.0, "requested": 24.0}, (None, 8, 0.0), ""),
        ({"throughput_rps": 1.9, "completed": 40.0, "requested": 40.0}, (None, 3, 510.8), "replayed with 2."),
        ({"throughput_rps": 9.0}, (None, 8, 0.0), "9.45 in flight, more than the 8 users"),
        ({"offered_rps": 5.0, "users": None}, (5.0, None, 0.0), ""),
        ({"offered_rps": 5.0, "users": None, "failed": 10.0, "requested": 210.0}, (5 / 1.05, None, 0.0),
         "10 of 210 requests failed; the rate is that of the others"),
        ({"offered_rps": 18.0, "users": None, "sent_rps": 9.0, "client_delay_ms": 19.9}, (None, 8, 0.0),
         "the client sent 9 of 18 requests/s (delay 0.0199 s): replayed with 8 in flight"),
        ({"offered_rps": 18.0, "users": None, "sent_rps": 9.0, "client_delay_ms": 0.4}, (18.0, None, 0.0),
         ""),
        ({"users": float("inf"), "offered_rps": float("inf")}, (float("inf"), None, 0.0), ""),
        ({"duration_s": 52.5, "cooldown_s": -26.25, "timed": True}, (None, 8, 0.0),
         "its window ends 26.2 s after the run: 26.25 s count"),
    ],
)  # fmt: skip
def test_the_load_as_it_was(changes: dict[str, Any], load: tuple[Any, ...], words: str) -> None:
    run, text = replayed(**changes)
    assert run is not None
    assert run.rate_rps == (None if load[0] is None else pytest.approx(load[0]))
    assert run.max_in_flight == load[1]
    assert run.think_ms == pytest.approx(load[2], rel=0.01)
    assert words in text
    if not words:
        assert text == ""


def test_times_that_are_not_stated_are_told() -> None:
    run, text = replayed(ttft_ms=None, ttft_median_ms=None, itl_ms=None, tpot_ms=None, latency_ms=None)
    assert run is not None
    assert run.measured[:2] == (None, None)
    assert "no time per token is stated" in text
    assert "no time to first token is stated" in text
    assert (
        replayed(users=-1.0, offered_rps=float("inf"))[0] == replayed(users=None, offered_rps=float("inf"))[0]
    )


def test_replicas_share_the_load() -> None:
    run, text = replayed(replicas=4.0, fields={"replicas": "decode_replicas"})
    assert run is not None
    assert (run.max_in_flight, run.requests) == (2, 50)
    assert run.measured.throughput_rps == pytest.approx(2 / 1.05)
    assert "4 replicas (decode_replicas): rates and users are divided by 4; cards of one replica" in text
    run, text = replayed(Stated(replicas=2), replicas=4.0)
    assert run is not None
    assert (run.max_in_flight, "2 replicas (--replicas)" in text) == (4, True)
    assert replayed(Stated(replicas=1), hint="4xL40S")[1] == ""
    assert replayed(Stated(cards=4), hint="4xL40S")[1] == ""
    assert replayed(hint="4xL40S", tensor_parallel=4.0)[1] == ""
    with pytest.raises(
        FitError, match=r"r\.json names num_gpus 4: give --replicas 4 for 4 engines of one card"
    ):
        replayed(hint="num_gpus 4", tensor_parallel=1.0)
    with pytest.raises(FitError, match=r"r\.json names 4xL40S: give --replicas 4 .* or --cards 4"):
        replayed(hint="4xL40S")
    with pytest.raises(FitError, match=r"separate engines \(disagg\).*--replicas N"):
        replayed(split="disagg")


def test_decisions_of_a_kind_are_told_once_with_all_runs() -> None:
    notes = [
        note
        for name in ("a.json: [0]", "a.json: [1]", "b.json")
        for note in as_replayed(replace(SOUND, source=name, itl_ms=26.0), Stated()).notes
    ]
    (text,) = sentences(notes)
    assert text.startswith("a.json: [0]: 2.6 tokens arrive per chunk")
    assert text.endswith("; likewise [1], b.json")


# --- formats ----------------------------------------------------------------------------------------------


def sglang(**changes: Any) -> str:
    """Return a line as SGLang 0.5 writes it; 2024 had neither request_throughput nor means."""
    return json.dumps(
        {
            "backend": "sglang", "request_rate": float("inf"), "max_concurrency": 8, "duration": 26.25,
            "completed": 200, "total_input_tokens": 100_000, "total_output_tokens": 20_200,
            "total_output_tokens_retokenized": 20_150, "mean_e2e_latency_ms": 1050.0, "mean_ttft_ms": 50.0,
            "median_ttft_ms": 48.0, "mean_tpot_ms": 10.0, "mean_itl_ms": 10.0, "concurrency": 8.0,
            "server_info": {"model_path": "org/m", "tp_size": 4, "dp_size": 1, "version": "0.5.6"},
        }
        | changes
    )  # fmt: skip


def test_sglang_states_cards_replicas_and_retokenised_answers() -> None:
    found = parse_benchmark("b.jsonl", sglang() + "\n" + sglang(max_concurrency=8))
    assert (found.model, found.cards, len(found.runs)) == ("org/m", 4, 2)
    assert found.tool == "SGLang bench_serving 0.5.6"
    assert found.runs[0].measured == pytest.approx((48.0, 10.0, 200 / 26.25))
    split: dict[str, Any] = {"server_info": {"prefill": [{}], "decode": [{}]}}
    with pytest.raises(FitError, match="prefill and decode ran on separate engines"):
        parse_benchmark("b.jsonl", sglang(**split))
    (early,) = parse_benchmark(
        "b.jsonl", sglang(total_output_tokens_retokenized=10_100, mean_itl_ms=20.2)
    ).runs
    assert early.answers.mean == pytest.approx(50.5)
    assert early.measured.itl_ms == pytest.approx(1000 / 49.5)
    (random,) = parse_benchmark("b.jsonl", sglang(total_output_tokens_retokenized=10_100)).runs
    assert random.answers.mean == 101
    assert random.measured.itl_ms == pytest.approx(10.0)
    (attention,) = parse_benchmark(
        "b.jsonl", sglang(server_info={"tp_size": 8, "dp_size": 8, "enable_dp_attention": True})
    ).runs
    assert attention.max_in_flight == 8
    lists = {"input_lens": [500] * 200 + [3000] * 20, "output_lens": [101] * 200 + [0] * 20}
    (detailed,) = parse_benchmark("b.jsonl", sglang(**lists)).runs
    assert detailed.prompts.mean == 500
    for name, value in (("gpu_count", 4), ("tag", "2 replicas"), ("num_pods", "3")):
        with pytest.raises(FitError, match="engines of one card, or --cards"):
            parse_benchmark("b.jsonl", sglang(server_info=None, **{name: value}))
    (half,) = parse_benchmark("b.jsonl", sglang(server_info={"tp_size": 4, "dp_size": 2})).runs
    assert half.max_in_flight == 4


def test_inferencex_states_seconds_and_lengths_as_asked_for() -> None:
    text = json.dumps(
        {
            "hw": "h200", "tp": 8, "ep": 1, "dp_attention": "false", "conc": "16", "model": "org/m",
            "isl": 1000, "osl": 1000, "mean_ttft": 0.05, "median_ttft": 0.048, "mean_tpot": 0.01,
            "mean_itl": 0.01, "mean_e2el": 0.05 + 899 * 0.01, "tput_per_gpu": 572.0,
        }
    )  # fmt: skip
    found = parse_benchmark("agg_bmk.json", text)
    (run,) = found.runs
    assert (found.tool, found.cards, run.max_in_flight, run.requests) == ("InferenceX", 8, 16, 160)
    assert (run.answers.mean, run.measured.ttft_ms) == (900, 48.0)
    assert run.measured.itl_ms == pytest.approx(10.0)
    assert any("uniform from 0.8" in note for note in found.remarks)
    agentic = {
        "hw": "b200-x4", "conc": 8, "tp": 4, "num_gpus": 4, "num_requests_successful": 200,
        "request_metrics": {
            "qps": {"mean": 200 / 26.25},
            "tokens": {"input": {"mean": 500.0}, "output_actual": {"mean": 101.0}},
            "latency": {"ttft": {"mean": 0.05, "p50": 0.048}, "e2el": {"mean": 1.05}, "itl": {"mean": 0.01}},
            "cache": {"theoretical_cache_hit_rate": 0.9},
        },
    }  # fmt: skip
    found = parse_benchmark("agg_agentic.json", json.dumps(agentic))
    assert found.runs[0].measured == pytest.approx((48.0, 10.0, 200 / 26.25))
    assert "90% of prompt tokens came from the prefix cache" in " ".join(found.remarks)
    medians = {"hw": "b200", "conc": 4, "isl": 1024, "osl": 1024, "median_ttft": 0.05, "median_tpot": 0.008}
    (run,) = parse_benchmark("agg.json", json.dumps(medians)).runs
    assert run.measured == (50.0, 8.0, None)


LLMD = """\
version: '0.2'
run: {time: {start: '2026-03-01T10:00:00Z', duration: PT1M0.5S}}
scenario:
  load: {standardized: {tool: vllm-benchmark, rate_qps: RATE, concurrency: USERS, stage: 0}}
  stack:
  - standardized:
      kind: inference_engine
      role: ROLE
      replicas: 2
      accelerator: {count: 8, model: H100, parallelism: {tp: 4, pp: 2, dp: 1}}
      model: {name: org/m}
  - standardized: {kind: generic, tool: scheduler}
results:
  request_performance:
    aggregate:
      latency:
        time_to_first_token: {mean: 0.05, p50: 0.048, units: s}
        inter_token_latency: {mean: 10.2, units: ms/token}
        request_latency: {mean: 1.05, units: s}
      requests:
        total: 204
        failures: 1
        incomplete: 3
        input_length: {mean: 500.0, stddev: 100.0, units: count}
        output_length: {mean: 101.0, p10: 80.0, p90: 120.0, units: count}
      throughput: {request_rate: {mean: 7.6, units: queries/s}}
"""


def test_llmd_reports_state_units_replicas_and_cards() -> None:
    text = LLMD.replace("RATE", ".inf").replace("USERS", "8").replace("ROLE", "replica")
    found = parse_benchmark("stage.yaml", text)
    (run,) = found.runs
    assert (found.model, found.cards, found.date) == ("org/m", 8, "2026-03-01")
    assert (run.arrivals, run.max_in_flight, run.completed) == (Arrivals.CLOSED, 4, 100)
    assert run.measured == pytest.approx((48.0, 10.0, 3.8))
    assert "2 replicas (scenario.stack[].replicas)" in " ".join(found.remarks)
    rated = text.replace("rate_qps: .inf", "rate_qps: 8.0").replace("concurrency: 8", "concurrency: .inf")
    (run,) = parse_benchmark("stage.yaml", rated).runs
    assert (run.arrivals, run.rate_rps, run.max_in_flight) == (Arrivals.POISSON, 4.0, None)
    with pytest.raises(FitError, match="the unit 'fortnights' is unknown; known are ms"):
        parse_benchmark("stage.yaml", text.replace("units: s}", "units: fortnights}"))

    (split,) = parse_benchmark("stage.yaml", text.replace("dp: 1", "dp: 4")).runs
    assert (split.max_in_flight, split.completed) == (1, 25)
    (wide,) = parse_benchmark("stage.yaml", text.replace("dp: 1", "dp: 4, ep: 16")).runs
    assert wide.max_in_flight == 4


def test_guidellm_yaml_and_newer_strategies() -> None:
    def dist(mean: float) -> str:
        return f"{{successful: {{mean: {mean}, median: {mean}, std_dev: 0.0, count: 60}}}}"

    text = f"""\
metadata: {{guidellm_version: 0.6.0}}
benchmarks:
- config: {{strategy: {{type_: concurrent, streams: 4}}, backend: {{model: org/m}}}}
  duration: 63.0
  start_time: 1767225600.0
  metrics:
    request_totals: {{successful: 60, errored: 0, incomplete: 4, total: 64}}
    time_to_first_token_ms: {dist(50)}
    inter_token_latency_ms: {dist(10)}
    request_latency: {dist(4.05)}
    prompt_token_count: {dist(500)}
    output_token_count: {dist(401)}
- config: {{strategy: {{type_: trace, time_scale: 1.0}}}}
  duration: 60.0
  metrics: {{}}
"""
    found = parse_benchmark("benchmarks.yaml", text)
    (run,) = found.runs
    assert (run.max_in_flight, run.duration_s, run.measured.itl_ms) == (4, 63.0, 10.0)
    (note,) = found.remarks
    assert note == (
        "benchmarks.yaml: benchmarks[1] is left out: the strategy 'trace' cannot be replayed; known are "
        "synchronous, throughput, concurrent, constant, poisson"
    )


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ('{"results": {"inter_token_latency_s": {}, "ttft_s": {}}}', "llmperf"),
        ('{"metrics": {"http_req_duration": {}}}', "k6"),
        ("MLPerf Results Summary\nSamples per second: 3\n", "MLPerf"),
        ("Type,Name,Request Count,Failure Count\n", "locust"),
        ("Metric,avg,min,max\nTTFT,1,2,3\n", "AIPerf's CSV"),
        ('{"version": "0.1", "scenario": {"host": {}}, "metrics": {"requests": {}}}', "llm-d's version 0.1"),
        ('{"metadata": {}, "metrics": {"request_latency": {}}}\n' * 2, "single requests"),
        ('{"records": {"ttft": {"avg": 3}}}', "AIPerf before 0.2"),
    ],
)
def test_known_formats_that_are_not_read_are_refused_in_one_line(text: str, tool: str) -> None:
    with pytest.raises(
        FitError, match=f"a report of {tool} cannot be fitted: .*known are GuideLLM"
    ) as refused:
        parse_benchmark("x.json", text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 1e308])
def test_odd_numbers_of_a_setup_are_ignored(odd: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for change in ({"server_info": {"tp_size": odd}}, {"request_throughput": odd, "num_prompts": 220}):
            parse_benchmark("b.jsonl", sglang(**change))
        parse_benchmark("b.jsonl", sglang(input_lens=[odd, 500, 500], output_lens=[101, 101, 101]))
        agg = {"hw": "h", "conc": odd, "isl": 9, "osl": 9, "median_ttft": 0.05, "median_tpot": 0.008}
        parse_benchmark("agg.json", json.dumps(agg))
    text = LLMD.replace("RATE", ".inf").replace("USERS", "8").replace("ROLE", "replica")
    assert parse_benchmark("s.yaml", text.replace("tp: 4", "tp: .nan")).cards is None


@pytest.mark.few(1)
@pytest.mark.parametrize("odd", ["null", '"x"', "-1", "NaN", "Infinity"])
def test_odd_values_end_in_runs_or_in_words(odd: str) -> None:
    """Numbers of a report in turn are replaced."""
    for path in sorted(DATA.glob("*/[!e]*.json*")):
        text = path.read_text(encoding="utf-8").splitlines()[0]
        numbers = list(re.finditer(r"(?<=:)-?[0-9.e+]+(?=[,}])", text))
        for found in numbers[:: max(len(numbers) // 10, 1)]:
            with contextlib.suppress(FitError):
                parse_benchmark(path.name, text[: found.start()] + odd + text[found.end() :])
