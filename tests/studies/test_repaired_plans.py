"""Plans that are repaired until their pools keep their targets in simulation."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from optimizer.candidates import find_candidates
from optimizer.cli.main import main
from optimizer.generate import generate_document
from optimizer.jobs.effort import EffortOptions
from optimizer.jobs.simulating import repair_plan
from optimizer.pipeline import solve
from optimizer.plan import Plan, load_plan, verify
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System, load_system
from optimizer.studies.simulation.pools import pool_runs, simulate_pool
from optimizer.studies.simulation.repair import MAX_LENGTHENING, judged_pool
from optimizer.studies.simulation.simulation_document import RepairedPlan

SHORT = 2_000


def document(**server: object) -> dict[str, Any]:
    """One server on two accelerators, whose law the reference's queue takes for faster than it is."""
    load = {"load": {"arrivalRate": 4000, "avgInTokens": 2048, "avgOutTokens": 512}}
    profile = {"name": "m", "maxBatchSize": 64, "atTokens": 512, "queueModel": "reference"}
    return {
        "accelerators": [
            {"name": "A", "type": "A", "cost": 10},
            {"name": "B", "type": "B", "cost": 25},
        ],
        "models": [
            {**profile, "acc": "A", "perfParms": {"alpha": 6, "beta": 0.05, "gamma": 0.0001}},
            {**profile, "acc": "B", "perfParms": {"alpha": 4, "beta": 0.03, "gamma": 0.0001}},
        ],
        "serviceClasses": [
            {"name": "C", "modelTargets": [{"model": "m", "slo-itl": 20, "slo-ttft": 1000}]},
        ],
        "servers": [{"name": "s", "class": "C", "model": "m", "currentAlloc": load, **server}],
        "count": [{"type": "A", "count": 100}, {"type": "B", "count": 100}],
        "optimizer": {"unlimited": True},
    }


def system(**server: object) -> System:
    return load_system(document(**server))


@cache
def repaired() -> RepairedPlan:
    return repair_plan(system(), EffortOptions(requests=SHORT))


@pytest.mark.slow
def test_repair_adds_replicas_until_targets_are_met() -> None:
    found, first = repaired(), solve(system())
    assert found.cost_before_cents_per_h == first.total_cost_cents_per_h
    assert found.cost_after_cents_per_h == found.plan.total_cost_cents_per_h > found.cost_before_cents_per_h
    assert found.holds
    assert found.simulation.holds
    assert found.lost == ()
    assert found.repairs
    repair = found.repairs[0]
    assert (repair.server, repair.replicas_before) == ("s", first.allocations["s"][0].num_replicas)
    assert repair.missed or repair.overload
    (pool,) = found.plan.allocations["s"]
    last = next(item for item in found.repairs if item.accelerator == pool.accelerator)
    assert pool.num_replicas == last.replicas_after
    assert pool.cost_cents_per_h == pytest.approx(last.cost_after_cents_per_h)
    assert found.plan.rate_factors["s"][pool.accelerator] == last.rate_factor < 1


def test_one_replica_fewer_would_miss() -> None:
    plan = repaired().plan
    (run,) = pool_runs(system(), plan)
    count = run.pool.num_replicas
    fewer = run.pool.model_copy(update={"num_replicas": count - 1})
    less = plan.model_copy(update={"allocations": {"s": (fewer,)}})
    (busier,) = pool_runs(system(), less)
    assert judged_pool(run, Effort(SHORT)).beyond == ()
    assert judged_pool(busier, Effort(SHORT)).beyond


def test_repaired_plans_verify_with_their_own_factors_only() -> None:
    plan = repaired().plan
    assert verify(plan, system()) == []
    plain = plan.model_copy(update={"rate_factors": {}})
    assert any(".maxArrivalRateRpm is" in line for line in verify(plain, system()))
    (accelerator,) = (pool.accelerator for pool in plan.allocations["s"])
    for factors, said in (
        ({"s": {accelerator: plan.rate_factors["s"][accelerator] / 2}}, ".maxArrivalRateRpm is"),
        ({"s": {accelerator: 1.5}}, "not from 0 to less than 1"),
        ({"s": {accelerator: 0.0}}, "no rate meets the targets"),
        ({"s": {"X": 0.5}}, "which the system does not have"),
        ({"t": {accelerator: 0.5}}, "which the system does not have"),
    ):
        false = plan.model_copy(update={"rate_factors": factors})
        assert any(said in line for line in verify(false, system())), factors


def test_a_plan_without_repairs_is_the_document_that_it_was(tmp_path: Path) -> None:
    assert "rateFactors" not in solve(system()).to_json()
    path = tmp_path / "plan.json"
    path.write_text(repaired().plan.to_json())
    assert load_plan(path) == repaired().plan


def test_a_repair_repeats_to_the_byte() -> None:
    assert repair_plan(system(), EffortOptions(requests=SHORT)).to_json() == repaired().to_json()


def test_what_no_load_holds_is_rejected_and_named() -> None:
    tightened = system().with_rate_factors({("s", "A"): 0.0, ("s", "B"): 0.0})
    assert [item.reason for item in find_candidates(tightened).rejections()] == ["simulation_missed"] * 2
    plan = solve(tightened)
    assert plan.unserved[0].reason == "simulation_missed"
    assert verify(plan, system()) == []


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["None", "PriorityExhaustive"])
def test_targets_that_units_cannot_keep_are_named_as_lost(policy: str) -> None:
    made = system(accelerators=["A"]).with_options(unlimited=False, saturation_policy=policy)
    made = made.with_capacity({"A": solve(made).allocations["s"][0].num_replicas})
    found = repair_plan(made, EffortOptions(requests=SHORT))
    assert not found.holds
    assert verify(found.plan, made) == []
    (lost,) = found.lost
    assert (lost.server, lost.reason) == ("s", "capacity")
    assert lost.missed == found.repairs[-1].missed
    assert all(check.simulated.value > check.limit for check in lost.missed)
    if policy == "None":
        assert found.plan.allocations == {}
        assert lost.served_fraction == 0
    else:
        assert found.simulation.holds
        assert 0.5 < lost.served_fraction < 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_random_plans_hold_after_repair(seed: int) -> None:
    raw = generate_document(4, 6, 2, seed, 2.0)
    for profile in raw["models"]:
        decode, prefill = profile.pop("decodeParms"), profile.pop("prefillParms")
        profile["perfParms"] = {
            "alpha": decode["alpha"],
            "beta": 2 * prefill["delta"],
            "gamma": decode["beta"] / 512,
        }
        profile["queueModel"] = "reference"
    for unlimited in (True, False):
        made = load_system(raw).with_options(unlimited=unlimited)
        found = repair_plan(made, EffortOptions(requests=SHORT))
        assert found.repairs or not unlimited
        assert found.simulation.holds
        assert verify(found.plan, made) == []
        assert unlimited <= found.holds
        promised = {item.server for item in solve(made).unserved}
        assert {item.server for item in found.lost} == {
            item.server for item in found.plan.unserved
        } - promised


@pytest.mark.slow
def test_a_mixed_plan_is_repaired() -> None:
    made = system().with_options(unlimited=False, heterogeneous=True).with_capacity({"A": 12, "B": 40})
    found = repair_plan(made, EffortOptions(requests=SHORT))
    assert found.holds
    assert found.repairs
    assert verify(found.plan, made) == []


def test_a_figure_too_close_to_its_limit_is_simulated_for_longer() -> None:
    (run,) = pool_runs(system(), repaired().plan)
    pool = simulate_pool(run, Effort(SHORT))
    check = pool.targets[-1]
    measure = next(measure for measure, _ in run.targets if measure.label == check.target)
    targets = ((measure, check.simulated.value),)
    longer = judged_pool(replace(run, targets=targets), Effort(SHORT))
    assert longer.requests is not None
    assert longer.requests <= SHORT * MAX_LENGTHENING
    clear = judged_pool(replace(run, targets=((measure, 1e9),)), Effort(SHORT))
    assert clear.requests is None


def test_the_command_line_repairs_and_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "system.json", tmp_path / "plan.json"
    path.write_text(json.dumps(document()))
    assert main(["solve", str(path), "--repair"]) == 2
    assert "add --simulate" in capsys.readouterr().err
    assert main(["solve", str(path), "--simulate", "--repair", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Repaired: cost " in printed
    assert " replicas, not " in printed
    assert main(["solve", str(path), "--simulate", "--repair", "--json"]) == 0
    answer = RepairedPlan.model_validate_json(capsys.readouterr().out)
    assert answer == repair_plan(system(), EffortOptions())
    assert load_plan(out) == answer.plan
    assert isinstance(answer.plan, Plan)
