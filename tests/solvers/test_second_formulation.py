"""The exact choice against a second MILP, solved by CBC, and against the known answers."""

import json
from pathlib import Path

import pytest
from oracles import RATE_UNIT_RPM, check_plan, read_case, solve_with_cbc
from slow_cases import mostly_slow, seeds

from optimizer import Plan, System, load_system, solve, verify
from optimizer.generate import generate_system

CASES = [f"case{number:02d}" for number in range(30)]


def assert_equal_to_cbc(plan: Plan, system: System) -> None:
    best = solve_with_cbc(read_case(system))
    assert [level.name for level in plan.levels] == list(best)
    for level in plan.levels:
        slack = RATE_UNIT_RPM * len(system.servers) if level.name.endswith("rate") else 1e-6
        assert level.value == pytest.approx(float(best[level.name]), rel=1e-9, abs=slack), level.name
        assert level.gap == 0, level.name
    assert plan.status == "optimal"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", mostly_slow(CASES, 4))
def test_the_choice_matches_cbc_on_random_reference_systems(name: str, reference: Path) -> None:
    """Each within its capacities, also where the request says unlimited; nobody is served in part."""
    request = json.loads((reference / "optimizer" / f"{name}.json").read_text())["request"]
    system = load_system(request).with_options(
        unlimited=False, milp_solver=True, saturation_policy="None", heterogeneous=False
    )
    plan = solve(system)
    assert_equal_to_cbc(plan, system)
    assert plan.allocations.keys() | {item.server for item in plan.unserved} == set(system.servers)
    assert verify(plan, system) == []
    assert check_plan(plan.model_dump(mode="json", by_alias=True), system) == []


@pytest.mark.slow
@pytest.mark.parametrize("tightness", [0.9, 1.2, 2.0])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_the_choice_equals_cbc_on_generated_fleets(seed: int, tightness: float) -> None:
    system = generate_system(servers=20, accelerators=9, types=3, seed=seed, tightness=tightness)
    assert_equal_to_cbc(solve(system), system)


# --- known answers ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "capacities", "total_cost"),
    [  # shared/reference/README.md, "Known answers"
        ("small", "unlimited", 35_924.5),
        ("small", "limited", 41_857.75),
        ("large", "unlimited", 18_205.0),
        ("large", "limited", 26_300.5),
    ],
)
def test_the_sample_systems_have_their_known_answers(
    name: str, capacities: str, total_cost: float, specs: Path
) -> None:
    system = load_system(specs / name).with_options(
        unlimited=capacities == "unlimited", saturation_policy="None"
    )
    plan = solve(system)
    assert plan.total_cost_cents_per_h == pytest.approx(total_cost, abs=1e-6)
    assert plan.objective == pytest.approx(1.1 * total_cost, abs=1e-6)  # nothing runs yet: all is started
    assert (plan.status, plan.complete, plan.gap) == ("optimal", True, 0.0)
    assert [level.gap for level in plan.levels] == [0.0] * len(plan.levels)
    assert verify(plan, system) == []
    assert check_plan(plan.model_dump(mode="json", by_alias=True), system) == []
