"""Plans held against a simulation of their pools: figures, shares, targets, the same bytes for a seed."""

import json
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config

from optimizer.cli.main import main
from optimizer.errors import AnalysisError, SpecError
from optimizer.jobs import RequestError, SimulateRequest, simulate_plan, solve
from optimizer.spec.system import System, load_system
from optimizer.studies.simulation.document import SimulatedPool

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
            {"name": "i", **profile, "perfParms": {"alpha": 6, "beta": 0.02, "gamma": 0.0001}},
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


def test_every_pool_with_a_load_is_simulated_and_agrees_with_its_queue() -> None:
    made = system()
    plan = solve(made)
    found = simulate_plan(SimulateRequest(made, plan))
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


def test_the_linear_law_is_run_as_the_queue_model_means_it() -> None:
    made = system()
    pool = one_pool(made, "linear")
    assert pool.ttft is not None
    assert pool.itl is not None
    assert pool.ttft.predicted_mean is not None
    half_width = pool.itl.mean.half_width
    assert half_width is not None
    assert pool.itl.predicted_mean is not None
    assert abs(pool.itl.mean.value - pool.itl.predicted_mean) < 4 * half_width


def one_pool(made: System, server: str) -> SimulatedPool:
    found = simulate_plan(SimulateRequest(made, requests=20_000))
    return next(pool for pool in found.pools if pool.server == server)


def test_the_bytes_are_those_of_the_seed_however_many_work() -> None:
    made = system()
    plan = solve(made)
    request = SimulateRequest(made, plan, requests=SHORT)
    alone = simulate_plan(request).to_json()
    with parallel_config("sequential"):
        assert simulate_plan(request).to_json() == alone
    assert simulate_plan(SimulateRequest(made, plan, requests=SHORT, seed=2)).to_json() != alone


def test_a_pool_keeps_its_chances_when_others_change() -> None:
    made = system()
    whole = simulate_plan(SimulateRequest(made, requests=SHORT)).pools[1]
    other = made.with_load("iteration", arrival_rate_rpm=0.0)
    assert simulate_plan(SimulateRequest(other, requests=SHORT)).pools == (whole,)


def test_an_overloaded_pool_has_no_latencies_and_says_why() -> None:
    made = system()
    plan = solve(made)
    busy = made.with_load("linear", arrival_rate_rpm=600_000.0)
    pools = tuple(
        pool.model_copy(update={"arrival_rate_rpm": 6_000.0 * pool.num_replicas})
        for pool in plan.allocations["linear"]
    )
    loaded = plan.model_copy(update={"allocations": {"linear": pools}})
    found = simulate_plan(SimulateRequest(busy, loaded, requests=SHORT))
    (pool,) = found.pools
    assert pool.overload is not None
    assert "requests/s come" in pool.overload
    assert pool.ttft is None
    assert not found.holds
    assert not any(check.met for check in pool.targets)


def test_a_limited_queue_loses_requests_and_the_loss_is_held_to_its_bound() -> None:
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
    found = simulate_plan(SimulateRequest(made, trace=path, server="iteration"))
    (pool,) = found.pools
    assert pool.server == "iteration"
    assert pool.rate_rps * pool.num_replicas == pytest.approx(10.0, rel=0.05)
    with pytest.raises(RequestError, match="missing; the plan has 2 servers"):
        simulate_plan(SimulateRequest(made, trace=path))
    with pytest.raises(RequestError, match="'idle' has no pool with a load"):
        simulate_plan(SimulateRequest(made, trace=path, server="idle"))


def test_what_cannot_be_simulated_is_refused() -> None:
    made = system()
    with pytest.raises(RequestError, match="names whose requests"):
        simulate_plan(SimulateRequest(made, server="linear"))
    with pytest.raises(AnalysisError, match="500 or more"):
        simulate_plan(SimulateRequest(made, requests=10))
    plan = solve(made)
    other = plan.model_copy(update={"allocations": {"other": plan.allocations["linear"]}})
    with pytest.raises(SpecError, match="cannot run it in this system"):
        simulate_plan(SimulateRequest(made, other))


def test_the_command_writes_tables_rows_and_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "specs/small")
    assert main(["simulate", path, "--requests", "1000", "--seed", "3"]) == 0
    table = capsys.readouterr().out
    assert "pools keep their targets" in table
    assert main(["solve", path, "--simulate", "--csv"]) == 2
    assert "--csv: holds one table; take --json" in capsys.readouterr().err
    assert main(["simulate", path, "--requests", "1000", "--seed", "3", "--json"]) == 0
    found = simulate_plan(SimulateRequest(load_system(path), requests=1000, seed=3))
    assert capsys.readouterr().out == found.to_json() + "\n"
    assert main(["simulate", path, "--requests", "1000", "--seed", "3", "--csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 1 + len(found.pools)
    assert len({row.count(",") for row in rows}) == 1


def test_the_command_takes_a_plan_and_says_flags_in_what_it_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = str(ROOT / "specs/small"), tmp_path / "plan.json"
    assert main(["solve", path, "-o", str(plan)]) == 0
    assert main(["simulate", path, "--plan", str(plan), "--requests", "600", "--json"]) == 0
    capsys.readouterr()
    assert main(["simulate", path, "--server", "x"]) == 2
    assert "--server: names whose requests --trace holds" in capsys.readouterr().err


def test_solve_simulates_its_plan_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "specs/small")
    assert main(["solve", path, "--simulate", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    system = load_system(path)
    plan = solve(system)
    assert both["plan"] == json.loads(plan.to_json())
    assert both["simulation"] == json.loads(simulate_plan(SimulateRequest(system, plan)).to_json())
    assert main(["solve", path, "--simulate"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Allocations") < shown.index("pools keep their targets")
