"""Plans held against a simulation of their pools: figures, shares, targets, the same bytes for a seed."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config

from optimizer.cli.main import main
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs.requests import RequestError
from optimizer.jobs.simulating import SimulateOptions, simulate_plan
from optimizer.kinds.replicas import Replica, analyze_replicas
from optimizer.pipeline import solve
from optimizer.queueing.measures import TargetMeasure
from optimizer.render.pages import render_report
from optimizer.render.simulation_sections import simulation_csv, simulation_sections
from optimizer.render.simulation_text import simulation_effort
from optimizer.section import FormattedValue
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System, load_system
from optimizer.studies.report import make_report
from optimizer.studies.simulation.pools import pool_runs, simulate_pool
from optimizer.studies.simulation.simulation_document import SimulatedPool

ROOT = Path(__file__).parents[2]
SHORT = 2_000


def system(**server: object) -> System:
    """One server with a linear and one with an iteration law, in no want of units."""
    profile = {"acc": "A", "maxBatchSize": 32}
    load = {"load": {"arrivalRate": 600, "avgInTokens": 128, "avgOutTokens": 64}}
    return load_system({
        "accelerators": [{"name": "A", "type": "A", "cost": 10}],
        "models": [
            {"name": "m", **profile, "decodeParms": {"alpha": 6, "beta": 0.5},
             "prefillParms": {"gamma": 10, "delta": 0.01}},
            {
                "name": "i",
                **profile,
                "queueModel": "reference",
                "perfParms": {"alpha": 6, "beta": 0.02, "gamma": 0.0001},
            },
        ],
        "serviceClasses": [{"name": "C", "modelTargets": [
            {"model": "m", "slo-itl": 20, "slo-ttft": 200}, {"model": "i", "slo-itl": 20, "slo-ttft": 200},
        ]}],
        "servers": [
            {"name": "linear", "class": "C", "model": "m", "currentAlloc": load},
            {"name": "iteration", "class": "C", "model": "i", "currentAlloc": load, **server},
            {"name": "idle", "class": "C", "model": "m", "minNumReplicas": 1},
        ],
        "optimizer": {"unlimited": True},
    })  # fmt: skip


def test_simulated_pools_agree_with_their_queue_model() -> None:
    made = system()
    plan = solve(made)
    found = simulate_plan(made, SimulateOptions(), plan)
    assert [pool.server for pool in found.pools] == ["iteration", "linear"]
    assert found.offered_rps == pytest.approx(20.0)
    for pool in found.pools:
        planned = plan.allocations[pool.server][0]
        assert pool.rate_rps * pool.num_replicas * 60 == pytest.approx(planned.arrival_rate_rpm)
        assert pool.overload is None
        assert pool.itl is not None
        assert pool.itl.predicted_mean == planned.itl_ms
        assert pool.itl.mean.value == pytest.approx(planned.itl_ms, rel=0.15)
        assert pool.throughput_rps.value == pytest.approx(pool.rate_rps, rel=0.05)
        assert pool.goodput_rps == pytest.approx(pool.within_all.value * pool.rate_rps * pool.num_replicas)
        assert pool.within_ttft is not None
        assert pool.within_all.value <= pool.within_ttft.value
    linear = one_pool(made, "linear")  # which runs as the queue model means it
    assert linear.itl is not None
    assert linear.itl.mean.half_width is not None
    assert linear.itl.predicted_mean is not None
    assert abs(linear.itl.mean.value - linear.itl.predicted_mean) < 4 * linear.itl.mean.half_width


def one_pool(made: System, server: str) -> SimulatedPool:
    found = simulate_plan(made, SimulateOptions(requests=20000))
    return next(pool for pool in found.pools if pool.server == server)


def test_the_bytes_are_those_of_the_seed_however_many_work() -> None:
    made = system()
    plan = solve(made)
    request = made, SimulateOptions(requests=SHORT), plan
    alone = simulate_plan(*request).to_json()
    with parallel_config("sequential"):
        assert simulate_plan(*request).to_json() == alone
    assert simulate_plan(made, SimulateOptions(requests=SHORT, seed=2), plan).to_json() != alone


def test_a_pool_keeps_its_chances_when_others_change() -> None:
    made = system()
    whole = simulate_plan(made, SimulateOptions(requests=SHORT)).pools[1]
    other = made.with_load("iteration", arrival_rate_rpm=0.0)
    assert simulate_plan(other, SimulateOptions(requests=SHORT)).pools == (whole,)


def test_an_overloaded_pool_has_no_latencies_and_says_why() -> None:
    made = system()
    plan = solve(made)
    busy = made.with_load("linear", arrival_rate_rpm=600_000.0)
    pools = tuple(
        pool.model_copy(update={"arrival_rate_rpm": 6_000.0 * pool.num_replicas})
        for pool in plan.allocations["linear"]
    )
    loaded = plan.model_copy(update={"allocations": {"linear": pools}})
    found = simulate_plan(busy, SimulateOptions(requests=SHORT), loaded)
    (pool,) = found.pools
    assert pool.overload is not None
    assert "requests/s arrive" in pool.overload
    assert pool.ttft is None
    assert not found.holds
    assert not any(check.met for check in pool.targets)


def test_loss_of_a_limited_queue_is_checked_with_its_bound() -> None:
    pool = one_pool(system(maxQueueSize=0, maxBatchSize=4), "iteration")
    (check,) = [check for check in pool.targets if check.target == "loss"]
    assert check.simulated == pool.loss
    assert check.limit == 0.001
    assert check.met == (pool.loss.value <= 0.001)


def test_a_trace_takes_the_place_of_the_load(tmp_path: Path) -> None:
    made = system()
    rng = np.random.default_rng(3)
    rows = [
        f"{time:.6f},{prompt},{answer}"
        for time, prompt, answer in zip(
            np.cumsum(rng.exponential(0.1, SHORT)), rng.integers(1, 256, SHORT), rng.integers(1, 128, SHORT),
            strict=True,
        )
    ]  # fmt: skip
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows), encoding="utf-8")
    found = simulate_plan(made, SimulateOptions(trace=path, server="iteration"))
    (pool,) = found.pools
    assert pool.server == "iteration"
    assert pool.rate_rps * pool.num_replicas == pytest.approx(10.0, rel=0.05)
    assert (found.requests, found.traced) == (SHORT, True)
    assert f"{SHORT:,} requests of the trace, seed" in simulation_effort(found)
    with pytest.raises(RequestError, match="missing; the plan has 2 servers"):
        simulate_plan(made, SimulateOptions(trace=path))
    with pytest.raises(RequestError, match="'idle' has no pool with a load"):
        simulate_plan(made, SimulateOptions(trace=path, server="idle"))


def test_what_cannot_be_simulated_is_refused() -> None:
    made = system()
    with pytest.raises(RequestError, match="server: requires trace"):
        simulate_plan(made, SimulateOptions(server="linear"))
    plan = solve(made)
    other = plan.model_copy(update={"allocations": {"other": plan.allocations["linear"]}})
    with pytest.raises(SpecError, match="cannot run it in this system"):
        simulate_plan(made, SimulateOptions(), other)


def test_the_command_writes_tables_rows_and_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = str(ROOT / "specs/small"), str(tmp_path / "plan.json")
    simulate = ["simulate", path, "--requests", "1000", "--seed", "3"]
    assert main(simulate) == 0
    assert "Targets hold in" in capsys.readouterr().out
    for wrong, said in (
        (["solve", path, "--simulate", "--csv"], "--csv: holds one table; take --json"),
        (["simulate", path, "--server", "x"], "--server: requires --trace"),
    ):
        assert main(wrong) == 2
        assert said in capsys.readouterr().err
    assert main(["solve", path, "-o", plan]) == 0
    capsys.readouterr()
    found = simulate_plan(load_system(path), SimulateOptions(requests=1000, seed=3))
    for more in ([], ["--plan", plan]):
        assert main([*simulate, *more, "--json"]) == 0
        assert capsys.readouterr().out == found.to_json() + "\n"
    assert main([*simulate, "--csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 1 + len(found.pools)
    assert len({row.count(",") for row in rows}) == 1


@pytest.mark.slow
def test_solve_simulates_its_plan_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "specs/small")
    assert main(["solve", path, "--simulate", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    system = load_system(path)
    plan = solve(system)
    assert both["plan"] == json.loads(plan.to_json())
    assert both["simulation"] == json.loads(simulate_plan(system, SimulateOptions(), plan).to_json())
    assert main(["solve", path, "--simulate"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Allocations") < shown.index("Targets hold in")


# --- what was predicted --------------------------------------------------------------------------------


def continuous() -> System:
    """One server under the closed form, whose percentiles are known."""
    made = system()
    profiles = [
        profile.model_copy(update={"queue_model": "continuous"}) if profile.name == "i" else profile
        for profile in made.profiles.values()
    ]
    return replace(made, profiles={(profile.name, profile.accelerator): profile for profile in profiles})


@pytest.mark.slow
def test_simulated_percentiles_include_predictions() -> None:
    made = continuous()
    plan = solve(made)
    pool = one_pool(made, "iteration")
    planned = plan.allocations["iteration"][0]
    replica = Replica.model_validate({
        "maxBatch": planned.max_batch, "inTokens": 128, "outTokens": 64, "queueModel": "continuous",
        "perfParms": {"alpha": 6, "beta": 0.02, "gamma": 0.0001},
    })  # fmt: skip
    (alone,) = analyze_replicas([replica], [pool.rate_rps])
    assert pool.ttft is not None
    assert pool.e2e is not None
    assert pool.ttft.predicted_percentiles == alone.ttft_percentiles is not None
    assert pool.e2e.predicted_percentiles == alone.e2e_percentiles
    assert pool.e2e.predicted_mean == pytest.approx(alone.response_ms, rel=1e-12)
    assert pool.e2e.predicted_mean == pytest.approx(pool.e2e.mean.value, rel=0.05)
    assert pool.e2e.p95.value == pytest.approx(alone.e2e_percentiles.p95_ms, rel=0.1)  # type: ignore[union-attr]
    linear = one_pool(made, "linear")
    assert linear.ttft is not None
    assert linear.ttft.predicted_percentiles is None
    assert "predictedPercentiles" not in linear.model_dump_json(by_alias=True)


@pytest.mark.slow
def test_predicted_percentiles_are_columns_where_any_are_known() -> None:
    made = continuous()
    rows = list(csv.DictReader(simulation_csv(simulate_plan(made, SimulateOptions())).splitlines()))
    assert float(rows[0]["predictedP95TTFT"]) > 0
    assert rows[1]["predictedP95TTFT"] == ""
    (plain, *_) = csv.DictReader(simulation_csv(simulate_plan(system(), SimulateOptions())).splitlines())
    assert "predictedP95TTFT" not in plain


# --- verdicts ------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("times", "verdict", "met"),
    [(2.0, "held", True), (1.0001, "close", True), (0.9999, "close", False), (0.5, "missed", False)],
)
def test_a_target_within_the_interval_is_too_close_to_call(*, times: float, verdict: str, met: bool) -> None:
    made = system()
    (run, _) = pool_runs(made, solve(made))
    found = simulate_pool(run, Effort(SHORT))
    assert found.ttft is not None
    limit = found.ttft.mean.value * times
    pool = simulate_pool(replace(run, targets=((TargetMeasure("ttft"), limit),)), Effort(SHORT))
    (check,) = pool.targets
    assert (check.verdict, check.met) == (verdict, met)
    assert pool.verdict == verdict
    assert pool.holds == (verdict != "missed")
    assert pool.missed == ((check,) if verdict == "missed" else ())


# --- reports -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reports_show_a_requested_simulation() -> None:
    made = continuous()
    assert make_report(made).simulation is None
    assert "simulation" not in make_report(made).to_json()
    report = make_report(made, effort=Effort(SHORT))
    assert report.simulation == simulate_plan(made, SimulateOptions(requests=SHORT), report.plan)
    page = render_report(report, made, "markdown")
    assert "## Predicted and simulated" in page
    assert "Targets hold in 2 of 2 pools" in page
    pools = page.split("## Pools\n")[1].splitlines()
    (row,) = [line for line in pools if line.startswith("| iteration | A |")][:1]
    pool = report.simulation.pools[0]
    assert pool.ttft is not None
    assert pool.ttft.predicted_percentiles is not None
    assert f"| {pool.ttft.predicted_percentiles.p95_ms:,.0f} | {pool.ttft.p95.value:,.0f} ±" in row
    html = render_report(report, made, "html")
    assert '<section id="simulation">' in html


def test_a_report_says_which_targets_are_missed() -> None:
    made = system()
    missed = simulate_plan(made, SimulateOptions(requests=SHORT))
    check = missed.pools[0].targets[0].model_copy(update={"met": False, "verdict": "missed"})
    pool = missed.pools[0].model_copy(update={"targets": (check,)})
    headline, _, targets = simulation_sections(missed.model_copy(update={"pools": (pool, missed.pools[1])}))
    assert headline.text[0].text == (
        "Targets hold in 1 of 2 pools, 1 misses one; 100% of the requests are within the limits."
    )
    (row,) = targets.rows
    assert row[:3] == ("iteration", "A", "ITL")
    assert row[3] == FormattedValue("20 ms", 20)
    assert re.fullmatch(r"[\d.]+ ±[\d.]+ ms", row[4].text)
    assert row[6] == "missed"


@pytest.mark.slow
def test_the_report_command_simulates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = str(ROOT / "specs/small"), tmp_path / "page.html"
    assert main(["report", path, "--simulate", "--requests", "600", "--seed", "2", "-o", str(page)]) == 0
    assert "600 requests to one replica of each pool, seed 2" in page.read_text(encoding="utf-8")
    for command in ("report", "solve"):
        assert main([command, path, "--requests", "600"]) == 2
        assert "--requests: requires --simulate" in capsys.readouterr().err


def test_too_few_requests_of_a_shared_queue_name_the_server() -> None:
    shared = load_system(ROOT / "specs" / "shared-queue.yaml")
    with pytest.raises(AnalysisError, match=r"^premium: \d+ of the simulated requests, .* need 500"):
        simulate_plan(shared, SimulateOptions(requests=600))
