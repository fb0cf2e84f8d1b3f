"""The load client against an emulated fleet: what it sends, measures and writes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import Run
from emulated import FLEET, Emulator, emulated

from optimizer import load_system, solve
from optimizer.fitting.readers.table import read_benchmark
from optimizer.fitting.runs import Arrivals
from optimizer.simulation.requests import Requests
from optimizer.simulation.summary import summarise
from rest_server.emulator.driver import MeasuredLoad, ServerLoad
from rest_server.emulator.measured import Course

DOCUMENT = FLEET.replace("arrivalRate: 0.1/s", "arrivalRate: 4/s")


@pytest.mark.slow
def test_drive_measures_what_it_sends(
    fleet: Emulator, fleet_document: Path, tmp_path: Path, run: Run
) -> None:
    answer = run("drive", fleet_document, fleet.url, "--requests", "30", "--report", tmp_path, "--json")
    assert answer.status == 0, answer.err
    eyes, talk = answer.json["pools"]
    assert (eyes["server"], talk["server"]) == ("eyes", "talk")
    # 10 ms an iteration, less the delay of first tokens on a busy machine; 200 ms a batch.
    assert talk["itlMs"]["mean"]["value"] > 8
    assert eyes["e2eMs"]["mean"]["value"] > 200
    assert talk["withinAll"]["value"] > 0.9
    assert [row["requests"] for row in answer.json["answers"]] == [30, 30]
    text = run("drive", fleet_document, fleet.url, "--requests", "30").out
    assert all(part in text for part in ("measured", "Answers", "Targets hold"))
    (path,) = tmp_path.iterdir()
    report = json.loads(path.read_text())
    assert (report["num_prompts"], len(report["output_lens"])) == (30, report["completed"])
    assert report["mean_itl_ms"] == pytest.approx(talk["itlMs"]["mean"]["value"], rel=0.1)
    (measured,) = read_benchmark(path).runs
    assert measured.rate_rps == pytest.approx(4 / report["data_parallel_size"])  # of an engine


@pytest.mark.slow
def test_drive_draws_a_ramp(fleet: Emulator, fleet_document: Path, tmp_path: Path, run: Run) -> None:
    flags = "--server", "talk", "--scale", "2", "--ramp", "6", "--requests", "60", "-o", tmp_path / "ramp.svg"
    answer = run("drive", fleet_document, fleet.url, *flags, "--json")
    assert answer.status == 0, answer.err
    assert [pool["server"] for pool in answer.json["pools"]] == ["talk"]
    picture = (tmp_path / "ramp.svg").read_text()
    assert all(text in picture for text in ("TTFT of talk", "ITL of talk"))


@pytest.mark.parametrize(("scale", "ramp"), [(1.0, None), (0.5, None), (0.5, 2.0), (3.0, 1.0)])
def test_ramp_has_the_rates_that_are_asked(scale: float, ramp: float | None) -> None:
    planned = Requests(np.ones(2000, int), np.ones(2000, int), np.arange(2000.0))  # 1,000/s
    times_ms = Course(scale, ramp).changed(planned).arrival_ms
    assert times_ms is not None
    gaps_ms = np.diff(times_ms)
    assert 1 / gaps_ms[0] == pytest.approx(scale, rel=0.01)
    assert 1 / gaps_ms[-1] == pytest.approx(scale if ramp is None else ramp, rel=0.01)


def test_few_requests_are_summarised_without_intervals() -> None:
    times_ms = np.arange(12.0)
    requests = Requests(np.full(12, 5), np.full(12, 3), times_ms)
    load = ServerLoad("s", "m", streams=True, rate_rps=1.0, requests=requests)
    done = MeasuredLoad(load, times_ms, times_ms + 2, times_ms + 6, np.full(12, 3.0), ({},) * 12)
    found = summarise([done.run])
    assert (found.ttft.mean.value, found.itl.mean.value, found.loss.value) == (2.0, 2.0, 0.0)
    assert np.isnan(found.ttft.mean.half_width)


@pytest.mark.slow
def test_drive_sends_a_trace(fleet: Emulator, fleet_document: Path, tmp_path: Path, run: Run) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{k / 20},{5 + k},3\n" for k in range(12))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert "--server: missing" in run("drive", fleet_document, fleet.url, "--trace", trace).err
    flags = "--trace", trace, "--server", "talk", "--report", tmp_path
    assert run("drive", fleet_document, fleet.url, *flags).status == 0
    report = json.loads((tmp_path / "talk.json").read_text())
    assert (report["input_lens"], report["output_lens"]) == ([*range(5, 17)], [3] * 12)


def test_users_wait_for_their_answers(
    fleet: Emulator, fleet_document: Path, tmp_path: Path, run: Run
) -> None:
    flags = "--server", "talk", "--concurrency", "2", "--requests", "30", "--report", tmp_path, "--json"
    answer = run("drive", fleet_document, fleet.url, *flags)
    assert answer.status == 0, answer.err
    assert answer.json["pools"][0]["loss"]["value"] == 0
    report = json.loads((tmp_path / "talk.json").read_text())
    assert (report["max_concurrency"], report["completed"]) == (2, 30)
    (measured,) = read_benchmark(tmp_path / "talk.json").runs
    assert measured.arrivals is Arrivals.CLOSED
    refused = run("drive", fleet_document, fleet.url, "--concurrency", "2", "--ramp", "2")
    assert "--concurrency: users have no rate; remove --ramp" in refused.err


@pytest.mark.slow
def test_drive_measures_in_the_time_of_the_model(fleet_document: Path, run: Run) -> None:
    with emulated(fleet_document, "--speed", "0.5") as slow:
        flags = "--server", "talk", "--scale", "2", "--requests", "20", "--json"
        (pool,) = run("drive", fleet_document, slow.url, *flags).json["pools"]
    # 10 ms an iteration, which take 20 ms of the machine's time.
    assert 8 < pool["itlMs"]["mean"]["value"] < 18


@pytest.mark.slow
def test_drive_names_what_is_wrong(fleet: Emulator, fleet_document: Path, tmp_path: Path, run: Run) -> None:
    assert "must look like" in run("drive", fleet_document, "localhost").err
    assert (
        "no fleet answers: connection refused; start it"
        in run("drive", fleet_document, "http://127.0.0.1:9").err
    )
    other = tmp_path / "other.yaml"
    other.write_text(DOCUMENT.replace("talk", "chatter").replace("eyes", "ears"))
    refused = run("drive", other, fleet.url)
    assert (refused.status, "none of the document's servers" in refused.err) == (2, True)


@pytest.mark.slow
def test_measured_latencies_are_near_the_simulated(fleet: Emulator, fleet_document: Path, run: Run) -> None:
    flags = "--requests", "1000", "--json"
    pairs = zip(
        run("drive", fleet_document, fleet.url, *flags).json["pools"],
        run("simulate", fleet_document, *flags).json["pools"],
        strict=True,
    )
    for (measured, simulated), metric, rel in zip(pairs, ("e2eMs", "itlMs"), (0.1, 0.05), strict=True):
        means = [pool[metric]["mean"]["value"] for pool in (measured, simulated)]
        assert means[0] == pytest.approx(means[1], rel=rel)


MIXED = """
accelerators:
  - {name: fast, type: fast, cost: 50, memSize: 80}
  - {name: slow, type: slow, cost: 40, memSize: 80}
count: [{type: fast, count: 1}, {type: slow, count: 1}]
models:
  - {name: chat, acc: fast, queueModel: continuous, maxBatchSize: 4, kvCapacity: 4000,
     perfParms: {alpha: 10.0, beta: 0.02, gamma: 0.0001}}
  - {name: chat, acc: slow, queueModel: continuous, maxBatchSize: 4, kvCapacity: 4000,
     perfParms: {alpha: 25.0, beta: 0.02, gamma: 0.0001}}
serviceClasses: [{name: I, priority: 1, modelTargets: [{model: chat, slo-itl: 60, slo-ttft: 1000}]}]
servers:
  - {name: talk, class: I, model: chat,
     currentAlloc: {load: {arrivalRate: 34/s, avgInTokens: 10, avgOutTokens: 15, outTokensCV: 0}}}
optimizer: {heterogeneous: true}
"""


@pytest.mark.slow
def test_pools_of_a_mixed_plan_get_their_loads(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED)
    (pools,) = solve(load_system(path)).allocations.values()
    planned = {pool.accelerator: pool.arrival_rate_rpm for pool in pools}
    assert planned.keys() == {"fast", "slow"}
    with emulated(path, "--route", "random", "--retries", "0") as fleet:
        answer = run("drive", path, fleet.url, "--requests", "200", "--json")
        metrics = fleet.ask("/metrics").text
    assert answer.status == 0, answer.err
    for pool, iteration_ms in zip(answer.json["pools"], (10, 25), strict=True):
        assert pool["itlMs"]["mean"]["value"] == pytest.approx(iteration_ms, rel=0.25)
        assert pool["itlMs"]["mean"]["value"] == pytest.approx(pool["itlMs"]["predictedMean"], rel=0.25)
    sent = re.findall(r"inferplan_router_replica_requests_total{.*} (\d+)", metrics)
    counts = dict(zip([one["accelerator"] for one in fleet.replicas], map(int, sent), strict=True))
    assert counts["fast"] / 200 == pytest.approx(planned["fast"] / sum(planned.values()), abs=0.1)
