"""Reports of every format become runs; what is cut short, empty or of another tool ends in one line."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors import FitError
from optimizer.fitting.readers.report import Benchmark
from optimizer.fitting.readers.table import parse_benchmark, read_benchmark
from optimizer.fitting.runs import Arrivals
from optimizer.simulation.lengths import LengthDistribution


def distribution(
    mean: float, median: float, count: int = 100, low: float = 1, high: float = 1
) -> dict[str, Any]:
    deviation = (high - low) / math.sqrt(12)
    return {"mean": mean, "median": median, "std_dev": deviation, "min": low, "max": high, "count": count}


def guidellm_run(strategy: dict[str, Any], *, newer: bool = False) -> dict[str, Any]:
    """Return a run as GuideLLM 0.3 (or 0.5 and later) writes it; lengths of 128 … 384 and 32 … 96 tokens."""
    users = strategy.get("max_concurrency") or 512 if strategy["type_"] == "throughput" else 1
    metrics = {
        "time_to_first_token_ms": {"successful": distribution(31, 30, 100 * users)},
        "inter_token_latency_ms": {"successful": distribution(9, 8.9)},
        "prompt_token_count": {"successful": distribution(256, 256, low=128, high=384)},
        "output_token_count": {"successful": distribution(64, 64, low=32, high=96)},
    }
    settings = {"config" if newer else "args": {"strategy": strategy}}
    return settings | {
        "type_": "generative_benchmark", "start_time": 1.76e9, "end_time": 1.76e9 + 60, "duration": 60.0,
        "worker": {"backend_model": "org/model"}, "metrics": metrics,
    }  # fmt: skip


CONSTANT = {"type_": "constant", "rate": 5.5, "initial_burst": True, "max_concurrency": None}


def guidellm_json(*, newer: bool = False) -> str:
    strategies: list[dict[str, Any]] = [
        {"type_": "synchronous"},
        {"type_": "throughput", "max_concurrency": 64},
        CONSTANT,
    ]
    runs = [guidellm_run(strategy, newer=newer) for strategy in strategies]
    extra = {"metadata": {"guidellm_version": "0.5.0"}, "config": {}} if newer else {}
    return json.dumps({"benchmarks": runs} | extra)


@pytest.mark.parametrize("newer", [False, True])
def test_guidellm_json_of_both_years(newer: bool) -> None:  # noqa: FBT001  a parameter
    found = parse_benchmark("r.json", guidellm_json(newer=newer))
    alone, full, rated = found.runs
    assert (alone.max_in_flight, full.max_in_flight, rated.max_in_flight) == (1, 64, 512)
    assert (alone.arrivals, rated.arrivals, rated.rate_rps, rated.burst) == (
        Arrivals.CLOSED, Arrivals.CONSTANT, 5.5, 5,
    )  # fmt: skip
    assert rated.measured == pytest.approx((30, 9, 100 / 60))
    assert rated.prompts.distribution is LengthDistribution.UNIFORM
    assert rated.prompts.mean == pytest.approx(256)
    assert rated.prompts.lengths().variation == pytest.approx(0.5)
    assert rated.duration_s == 60
    assert found.date == "2025-10-09"
    assert found.tool == ("GuideLLM 0.5.0" if newer else "GuideLLM")


def sweep_rows() -> list[dict[str, Any]]:
    """Return rows of GuideLLM's CSV of 2025 as the recorded sweeps keep them, with what is read."""
    quantiles = "[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"
    rows = []
    for name, strategy in (
        ("synchronous", {"type_": "synchronous"}),
        ("throughput", {"type_": "throughput", "max_concurrency": None}),
        ("constant@5.50", CONSTANT),
    ):
        row: dict[str, Any] = {"Type": "generative_benchmark", "Run Id": "1", "Name": name}
        row |= {"Start Time": "2025-10-19 19:37:13", "Duration": 60.0}
        row["Successful Requests"] = 51_200 if name == "throughput" else 100
        row |= {
            "Successful Time to first token ms median": 30.0,
            "Successful Inter token latency ms mean": 9.0,
        }
        for what, low, high in (("Prompt", 128, 384), ("Output", 32, 96)):
            column = f"Successful {what} token count"
            row |= {f"{column} mean": (low + high) / 2, f"{column} std dev": (high - low) / math.sqrt(12)}
            row[f"{column} {quantiles}"] = [low, *[0] * 9, high]
        row["Args"] = json.dumps({"strategy": strategy})
        row["Worker"] = json.dumps({"backend_model": "org/model"})
        rows.append(row)
    return rows


def as_csv(rows: list[dict[str, Any]]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(
        {key: json.dumps(value) if isinstance(value, list) else value for key, value in row.items()}
        for row in rows
    )
    return text.getvalue()


@pytest.mark.parametrize("form", ["json", "csv"])
def test_guidellm_rows_of_2025_and_the_recorded_sweeps(form: str) -> None:
    text = json.dumps(sweep_rows()) if form == "json" else as_csv(sweep_rows())
    found = parse_benchmark(f"r.{form}", text)
    assert [run.max_in_flight for run in found.runs] == [1, 512, 512]
    assert (found.runs[2].rate_rps, found.runs[2].burst) == (5.5, 5)
    assert found.model == "org/model"
    assert found.date == "2025-10-19"
    assert found.runs[2].answers.mean == 64


def guidellm_csv_2026(strategy: str = "constant@5.50") -> str:
    columns = {
        ("Run Info", "Profile", ""): '{"type_": "async"}',
        ("Run Info", "Backend", ""): '{"model": "org/model"}',
        ("Benchmark", "Strategy", ""): strategy,
        ("Timings", "Start Time", ""): "2026-02-07 10:00:00",
        ("Timings", "Duration", "Sec"): "60",
        ("Request Counts", "Successful", ""): "100",
        ("Time to First Token", "Successful ms", "Median"): "30",
        ("Inter Token Latency", "Successful ms", "Mean"): "9",
    }
    for what, low, high in (("Input Tokens", 128, 384), ("Output Tokens", 32, 96)):
        columns["Token Metrics", f"Successful {what}", "Mean"] = str((low + high) / 2)
        columns["Token Metrics", f"Successful {what}", "Std Dev"] = str((high - low) / math.sqrt(12))
        columns["Token Metrics", f"Successful {what}", "Percentiles"] = f'"[{low}, 1, {high}]"'
    heads = [",".join(parts) for parts in zip(*columns, strict=True)]
    cells = (value.replace('"', '""') if value.startswith("{") else value for value in columns.values())
    line = ",".join(f'"{cell}"' if cell.startswith("{") else cell for cell in cells)
    return "\n".join([*heads, line, ""])


def test_guidellm_csv_of_2026() -> None:
    (run,) = parse_benchmark("r.csv", guidellm_csv_2026()).runs
    assert (run.rate_rps, run.burst, run.duration_s) == (5.5, 0, 60)
    assert run.measured == pytest.approx((30, 9, 100 / 60))
    assert run.prompts.lengths().variation == pytest.approx(0.5)


def vllm(**changes: Any) -> str:
    value = {
        "date": "20260105-101112", "model_id": "org/model", "num_prompts": 200, "request_rate": 4.0,
        "burstiness": 1.0, "max_concurrency": None, "duration": 50.0, "completed": 200,
        "total_input_tokens": 200 * 512, "total_output_tokens": 200 * 128, "request_throughput": 4.0,
        "median_ttft_ms": 30.0, "mean_itl_ms": 9.0, "mean_tpot_ms": 9.1,
    }  # fmt: skip
    return json.dumps(value | changes)


def test_vllm_bench_without_details() -> None:
    found = parse_benchmark("r.json", vllm())
    (run,) = found.runs
    assert (run.arrivals, run.rate_rps, run.requests, run.duration_s) == (Arrivals.POISSON, 4, 200, None)
    assert (run.prompts.mean, run.prompts.distribution, run.answers.mean) == (
        512,
        LengthDistribution.FIXED,
        128,
    )
    assert run.measured == (30, 9, 4)
    assert found.date == "2026-01-05"
    assert not found.remarks
    (other,) = parse_benchmark("r.json", vllm(total_input_tokens=200 * 512 + 5_010)).runs
    assert (other.prompts.cv, other.prompts.assumed, other.answers.assumed) == (0.3, True, False)
    for each, differ in ((929.6, True), (938.4, True), (999.7, False), (1536.8, False), (128.05, False)):
        (near,) = parse_benchmark("r.json", vllm(total_output_tokens=200 * each)).runs
        assert near.answers.assumed is differ, each
    (named,) = parse_benchmark(
        "r.json", vllm(total_input_tokens=200 * 512 + 5_010, dataset_name="sharegpt")
    ).runs
    assert named.prompts.cv == pytest.approx(1.2)
    assert not named.prompts.assumed
    (bursts,) = parse_benchmark("r.json", vllm(burstiness=0.25)).runs
    assert bursts.cv == pytest.approx(2.0)


CLOSED = {
    "request_rate": "inf", "max_concurrency": 32, "request_throughput": 25.0, "duration": 8.0,
    "mean_tpot_ms": 9.0, "mean_ttft_ms": 137.0, "output_throughput": 3200.0,
}  # fmt: skip
"""32 requests of 1,280 ms in flight: 137 ms to the first of 128 tokens, and 9 ms for each other one."""


def test_rates_that_need_more_users_than_there_are() -> None:
    wrong = {"request_throughput": 50.0, "output_throughput": 6400.0}
    found = parse_benchmark("r.json", vllm(**CLOSED | wrong))
    (run,) = found.runs
    assert (run.measured.throughput_rps, run.max_in_flight) == (25, 32)
    assert any("25 requests/s are used" in remark for remark in found.remarks)


def test_tokens_per_second_correct_a_count_of_output_tokens() -> None:
    found = parse_benchmark("r.json", vllm(**CLOSED, total_output_tokens=200 * 64))
    (run,) = found.runs
    assert (run.answers.mean, run.max_in_flight) == (128, 32)
    assert any("128 a request, which its times confirm, and 64 are stated" in one for one in found.remarks)
    (kept,) = parse_benchmark("r.json", vllm(**CLOSED | {"output_throughput": 1600.0})).runs
    assert kept.answers.mean == 128


def test_vllm_bench_with_details_and_a_limit_in_flight() -> None:
    lengths = {"input_lens": [256, 768] * 100, "output_lens": [128] * 200}
    load = {"request_rate": "inf", "max_concurrency": 32, "request_throughput": 27.0, "duration": 200 / 27}
    text = vllm(**lengths, **load)
    found = parse_benchmark("r.json", text)
    (run,) = found.runs
    assert (run.arrivals, run.rate_rps, run.max_in_flight) == (Arrivals.CLOSED, None, 32)
    assert run.prompts.mean == 512
    assert run.prompts.cv == pytest.approx(0.5)
    assert found.remarks == []


def test_vllm_bench_with_appended_results() -> None:
    """`--append-result` writes one result a line (vllm/benchmarks/serve.py, 2026)."""
    text = vllm() + "\n" + vllm(request_rate=8.0)
    assert [run.rate_rps for run in parse_benchmark("r.json", text).runs] == [4, 8]
    assert [run.rate_rps for run in parse_benchmark("r.json", vllm() + vllm(request_rate=8.0)).runs] == [4, 8]
    with pytest.raises(FitError, match=r"r\.json: not valid JSON at line 2"):
        parse_benchmark("r.json", text[:-9])


def test_vllm_bench_with_ramp_up_is_rejected() -> None:
    """`--ramp-up-strategy` adds three keys, and leaves request_rate at inf."""
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 9, "request_rate": "inf"}
    found = parse_benchmark("r.json", vllm(**ramp))
    assert found.runs == ()
    assert "is left out: the rate rises from 1 to 9 requests/s" in found.remarks[0]
    assert "measure each rate in a separate run" in found.remarks[0]


def inference_perf(**load: Any) -> str:
    return json.dumps(
        {
            "load_summary": {"count": 300, "requested_rate": 5.0, "achieved_rate": 4.9} | load,
            "successes": {
                "count": 300,
                "latency": {
                    "time_to_first_token": {"mean": 0.04, "median": 0.03},
                    "inter_token_latency": {"mean": 0.009},
                },
                "throughput": {"requests_per_sec": 4.8},
                "prompt_len": {"mean": 512.0, "p10": 512.0, "p90": 512.0},
                "output_len": {"mean": 128.0},
            },
            "failures": {"count": 0},
        }
    )


def test_inference_perf_gives_seconds() -> None:
    (run,) = parse_benchmark("stage_0.json", inference_perf()).runs
    assert (run.arrivals, run.rate_rps, run.requests) == (Arrivals.CONSTANT, 5, 300)
    assert run.measured == pytest.approx((30, 9, 4.8))


def test_inference_perf_config_states_arrivals_model_and_limit(tmp_path: Path) -> None:
    stage = tmp_path / "stage_0_lifecycle_metrics.json"
    stage.write_text(inference_perf())
    load = "load: {type: poisson, num_workers: 4, worker_max_concurrency: 100}\nserver: {model_name: org/m}\n"
    (tmp_path / "config.yaml").write_text(load)
    found = read_benchmark(stage)
    (run,) = found.runs
    assert (found.model, run.arrivals, run.rate_rps, run.max_in_flight) == ("org/m", Arrivals.POISSON, 5, 400)
    assert not any("assumed even" in note for note in found.remarks)
    (tmp_path / "config.yaml").write_text("load: [")
    with pytest.raises(FitError, match=r"config\.yaml"):
        read_benchmark(stage)


def test_inference_perf_2026_token_counts() -> None:
    """Keys of `summarize_requests` (inference_perf/reportgen/base.py, 2026), a stage of a concurrency."""
    report = json.loads(inference_perf(concurrency=32, send_duration=60.0, schedule_delay={"mean": 0.001}))
    done = report["successes"]
    done["throughput"]["requests_per_sec"] = 32 / (0.03 + 127 * 0.009)
    del done["prompt_len"]
    done["prompt_tokens"] = {
        "total": 153600.0,
        "cached": 0.0,
        "uncached": 153600.0,
        "mean": 500.0,
        "p10": 400.0,
    }
    done["prompt_tokens"]["p90"] = 600.0
    done["output_tokens"] = {"total": 38400.0, "mean": 128.0}
    (run,) = parse_benchmark("stage_1.json", json.dumps(report)).runs
    assert (run.arrivals, run.max_in_flight, run.rate_rps) == (Arrivals.CLOSED, 32, None)
    assert run.prompts.mean == 500
    assert run.prompts.cv == pytest.approx(200 / 0.8 / math.sqrt(12) / 500)


def test_summary_over_stages_is_rejected() -> None:
    with pytest.raises(FitError, match=r"give the stage_N_lifecycle_metrics\.json files"):
        parse_benchmark("summary.json", inference_perf(requested_rate=None))


def aiperf(**settings: Any) -> str:
    def metric(unit: str, **values: float) -> dict[str, Any]:
        return {"unit": unit} | values

    return json.dumps(
        {
            "aiperf_version": "0.13.0",
            "request_throughput": metric("requests/sec", avg=4.0),
            "time_to_first_token": metric("ms", avg=33.0, p50=30.0),
            "inter_token_latency": metric("ms", avg=9.0),
            "input_sequence_length": metric("tokens", avg=512.0, std=0.0),
            "output_sequence_length": metric("tokens", avg=128.0, std=12.0),
            "request_count": metric("requests", avg=200.0),
            "start_time": "2026-03-01T10:00:00",
            "input_config": {"endpoint": {"model_names": ["org/model"]}, "loadgen": settings},
        }
    )


def test_aiperf_with_a_concurrency_and_with_a_rate() -> None:
    report = json.loads(aiperf(concurrency=16))
    report["request_throughput"]["avg"] = 16 / (0.033 + 127 * 0.009)
    (closed,) = parse_benchmark("p.json", json.dumps(report)).runs
    assert (closed.arrivals, closed.max_in_flight, closed.requests) == (Arrivals.CLOSED, 16, 200)
    found = parse_benchmark("p.json", aiperf(request_rate=4.0, request_rate_mode="constant"))
    assert (found.runs[0].arrivals, found.runs[0].rate_rps) == (Arrivals.CONSTANT, 4)
    assert found.runs[0].measured == pytest.approx((30, 9, 4))
    assert (found.model, found.tool, found.date) == ("org/model", "AIPerf 0.13.0", "2026-03-01")
    # `arrival_smoothness` (AIPerf 0.13): the shape of the gamma times between arrivals.
    settings = {"request_rate": 4.0, "arrival_pattern": "gamma", "arrival_smoothness": 0.25}
    (bursts,) = parse_benchmark("p.json", aiperf(**settings)).runs
    assert bursts.arrivals is Arrivals.POISSON
    assert bursts.cv == pytest.approx(2.0)


def test_aiperf_units_warm_ups_and_addresses() -> None:
    report = json.loads(aiperf(warmup={"concurrency": 2}, concurrency=16))
    report["request_throughput"]["avg"] = 16 / (0.033 + 127 * 0.009)
    report["time_to_first_token"] = {"unit": "Seconds", "avg": 0.033, "p50": 0.03}
    report["input_config"] = {"endpoint": report["input_config"]["endpoint"], "phases": [
        {"name": "heat", "concurrency": 2, "exclude_from_results": True},
        {"name": "profiling", "concurrency": 16},
    ]}  # fmt: skip
    (run,) = parse_benchmark("p.json", json.dumps(report)).runs
    assert (run.max_in_flight, run.measured.ttft_ms) == (16, 30)
    report["input_config"]["endpoint"]["urls"] = ["http://a", "http://b"]
    with pytest.raises(FitError, match=r"names 2 urls: give --replicas 2"):
        parse_benchmark("p.json", json.dumps(report))


POINTS = (
    "in_tokens,out_tokens,lengths,arrivals,rate_rps,duration_s,max_in_flight,ttft_ms,itl_ms\n"
    "512,128,fixed,constant,5,60,512,30,9\n"
    "512,128,uniform,closed,,60,1,25,7\n"
    "512,128,lognormal,poisson,5,,,,\n"
)


def test_guidellm_warm_up_is_noted() -> None:
    """Keys of GuideLLM 0.5 and later: `warmup_duration`, and `rampup_duration` of a strategy."""
    strategy = {"type_": "throughput", "max_concurrency": 64, "rampup_duration": 5.0}
    warm = guidellm_run(strategy, newer=True) | {"warmup_duration": 12.0}
    notes = parse_benchmark("r.json", json.dumps({"benchmarks": [warm], "config": {}})).notes
    assert len(notes) == 2
    assert "warm-up" in notes[0]
    assert "rampup_duration" in notes[1]


def test_plain_points() -> None:
    rated, alone, steady = parse_benchmark("p.csv", POINTS).runs
    assert (rated.rate_rps, rated.duration_s, rated.measured.itl_ms) == (5, 60, 9)
    assert alone.is_alone
    assert steady.is_steady
    assert steady.prompts.distribution is LengthDistribution.LOGNORMAL


ALL: dict[str, str] = {
    "guidellm.json": guidellm_json(),
    "guidellm-0.5.json": guidellm_json(newer=True),
    "rows.json": json.dumps(sweep_rows()),
    "rows.csv": as_csv(sweep_rows()),
    "columns.csv": guidellm_csv_2026(),
    "vllm.json": vllm(),
    "stage.json": inference_perf(),
    "aiperf.json": aiperf(concurrency=16),
    "points.csv": POINTS,
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.97])
def test_truncated_files_are_partially_read_or_rejected(name: str, share: float) -> None:
    text = ALL[name]
    found, message = read_or_refused(name, text[: int(share * len(text))])
    if found is None:
        assert message.startswith(name)
        assert "\n" not in message
        assert 20 < len(message) < 400
    else:
        assert name.endswith(".csv"), "JSON that ends early is no report"
        assert len(found.runs) <= len(parse_benchmark(name, text).runs)


def read_or_refused(name: str, text: str) -> tuple[Benchmark | None, str]:
    try:
        return parse_benchmark(name, text), ""
    except FitError as error:
        return None, str(error)


@pytest.mark.parametrize("name", ALL)
def test_empty_files_are_rejected(name: str) -> None:
    with pytest.raises(FitError, match=f"{name}: the file is empty"):
        parse_benchmark(name, " \n")


@pytest.mark.parametrize(
    "text", ["hello", "{}", "[]", "[1, 2]", '{"benchmarks": 3}', "a,b\n1,2\n", "<html></html>", "null", '"x"']
)
def test_unknown_files_are_rejected_with_known_formats(text: str) -> None:
    with pytest.raises(
        FitError, match=r"known are GuideLLM \(JSON, .* CSV of points with the columns in_tokens"
    ):
        parse_benchmark("x.json", text)


@pytest.mark.parametrize("other", [{"num_prompts": 3}, {"x": 1}, {}])
def test_mixed_results_are_rejected(other: dict[str, Any]) -> None:
    for rows in (sweep_rows(), [json.loads(vllm())]):
        with pytest.raises(FitError, match=r"r.json: \[\d\].*separately"):
            parse_benchmark("r.json", json.dumps([*rows, other]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("512,128,fixed,constant,,60,512,30,9", "rate_rps is missing"),
        ("512,128,fixed,closed,,60,,30,9", "need max_in_flight"),
        ("512,128,fixed,closed,3,60,8,30,9", "have no rate_rps"),
        ("512,128,odd,constant,5,60,512,30,9", "lengths must be fixed, uniform, lognormal, not 'odd'"),
        ("512,x,fixed,constant,5,60,512,30,9", "out_tokens must be more than 0"),
        ("512,128,fixed,constant,-5,60,512,30,9", "rate_rps must be more than 0"),
        ("512,128,fixed,constant,5,nan,512,30,9", "duration_s must be more than 0"),
        ("512,128,fixed,constant,5,60,1.5,30,9", "max_in_flight must be an integer"),
        ("512,128,fixed,constant,5,60", "not 9 cells"),
        ("512,128,fixed,constant,5,60,512,30,9,9", "not 9 cells"),
    ],
)
def test_invalid_points_are_rejected_with_their_line(change: str, message: str) -> None:
    header = POINTS.splitlines()[0]
    with pytest.raises(FitError, match=f"p.csv: line 2: .*{message}"):
        parse_benchmark("p.csv", f"{header}\n{change}\n")


@pytest.mark.parametrize("script", ["window.benchmarks = [];", 'window.runInfo = {"ttft_p95_ms": 1};'])
def test_guidellm_html_asks_for_json(script: str) -> None:
    with pytest.raises(FitError, match=r"GuideLLM in HTML cannot be fitted.*give the JSON of the same run"):
        parse_benchmark("r.html", f"<!doctype html><title>GuideLLM</title><script>{script}</script>")


def test_each_format_has_exactly_one_reader() -> None:
    from optimizer.fitting.readers.report import BenchmarkFile
    from optimizer.fitting.readers.table import READERS

    for name, text in ALL.items():
        takers = [reader.name for reader in READERS if reader.recognises(BenchmarkFile(name, text))]
        assert len(takers) == 1, (name, takers)
    assert isinstance(parse_benchmark("p.csv", POINTS), Benchmark)
