"""The exact choice against a second MILP, solved by CBC, and against the known answers."""

import json
from pathlib import Path

import pytest
from builders import Json, running
from oracles import RATE_UNIT_RPM, check_plan, read_case, solve_with_cbc
from slow_cases import mostly_slow

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


@pytest.mark.parametrize("name", mostly_slow(CASES, 15))
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


@pytest.mark.parametrize("tightness", [0.9, 1.2, 2.0])
@pytest.mark.parametrize("seed", mostly_slow(range(3), 1))
def test_the_choice_equals_cbc_on_generated_fleets(seed: int, tightness: float) -> None:
    system = generate_system(servers=20, accelerators=9, types=3, seed=seed, tightness=tightness)
    assert_equal_to_cbc(solve(system), system)


# --- known answers ---------------------------------------------------------------------------------------


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


# Two of the reference's random systems, written in its figures (shared/reference/optimizer), so that
# something is compared where the reference is not at hand.


def short_system(
    accelerators: list[tuple[str, str, float, int]],
    models: list[tuple[str, str, int, int, float, float, float, float]],
    servers: list[Json],
    units: dict[str, int],
    service: Json,
) -> System:
    """Return a system from rows of figures; every batch limit was found at 512 tokens."""
    return load_system(
        {
            "accelerators": [
                dict(zip(("name", "type", "cost", "multiplicity"), row, strict=True)) for row in accelerators
            ],
            "models": [
                {
                    "name": name,
                    "acc": acc,
                    "accCount": count,
                    "maxBatchSize": batch,
                    "atTokens": 512,
                    "decodeParms": {"alpha": alpha, "beta": beta},
                    "prefillParms": {"gamma": gamma, "delta": delta},
                }
                for name, acc, count, batch, alpha, beta, gamma, delta in models
            ],
            "serviceClasses": [service],
            "servers": servers,
            "count": [{"type": kind, "count": count} for kind, count in units.items()],
            "optimizer": {"unlimited": False, "milpSolver": True},
        }
    )


def placed_server(
    model: str, rate: float, tokens: tuple[int, int], least: int, current: Json, **more: object
) -> Json:
    load = {"arrivalRate": rate, "avgInTokens": tokens[0], "avgOutTokens": tokens[1]}
    body = {"name": f"Class0-{model}", "class": "Class0", "model": model, "minNumReplicas": least}
    return body | {"currentAlloc": current | {"load": load}} | more


def case_22() -> System:
    return short_system(
        [
            ("2xAIU2", "AIU2", 7.5, 2),
            ("2xMI250", "MI250", 92.0, 2),
            ("G2", "G2", 23.0, 1),
            ("H100", "H100", 75.0, 1),
            ("L4", "L4", 6.0, 1),
            ("MI250", "MI250", 46.0, 1),
        ],
        [
            ("llama3_8b", "2xAIU2", 1, 25, 92.36, 4.21, 738.88, 0.1315625),
            ("llama3_8b", "2xMI250", 1, 25, 5.72, 0.26, 45.76, 0.008125),
            ("llama3_8b", "G2", 1, 19, 10.78, 0.49, 86.24, 0.0153125),
            ("llama3_8b", "H100", 1, 16, 7.7, 0.35, 61.6, 0.0109375),
            ("llama3_8b", "L4", 4, 4, 86.2, 3.93, 689.6, 0.1228125),
            ("llama3_8b", "MI250", 1, 25, 8.08, 0.37, 64.64, 0.0115625),
            ("llama_13b", "2xAIU2", 1, 51, 143.79, 6.21, 1150.32, 0.1940625),
            ("llama_13b", "G2", 1, 38, 16.78, 0.73, 134.24, 0.0228125),
            ("llama_13b", "MI250", 1, 51, 12.58, 0.54, 100.64, 0.016875),
        ],
        [
            placed_server("llama3_8b", 128.1, (0, 256), 1, {}, keepAccelerator=True),
            placed_server("llama_13b", 53.1, (1024, 32), 2, running("H100", 5, 375.0)),
        ],
        {"AIU2": 256, "G2": 64, "H100": 0, "L4": 0, "MI250": 64},
        {
            "name": "Class0",
            "priority": 10,
            "modelTargets": [{"model": "llama3_8b"}, {"model": "llama_13b", "slo-itl": 20}],
        },
    )


def case_15() -> System:
    return short_system(
        [
            ("2xG2", "G2", 46.0, 2),
            ("2xMI300X", "MI300X", 130.0, 2),
            ("4xA100", "A100", 160.0, 4),
            ("4xMI250", "MI250", 184.0, 4),
            ("G2", "G2", 23.0, 1),
            ("L4", "L4", 6.0, 1),
            ("L40S", "L40S", 32.0, 1),
            ("MI250", "MI250", 46.0, 1),
        ],
        [
            ("granite_13b", "2xG2", 1, 38, 12.11, 0.24, 96.88, 0.0075),
            ("granite_13b", "2xMI300X", 1, 76, 5.49, 0.11, 43.92, 0.0034375),
            ("granite_13b", "4xA100", 1, 32, 10.29, 0.21, 82.32, 0.0065625),
            ("granite_13b", "4xMI250", 1, 51, 6.43, 0.13, 51.44, 0.0040625),
            ("granite_13b", "G2", 1, 38, 17.15, 0.34, 137.2, 0.010625),
            ("granite_13b", "L4", 2, 9, 137.2, 2.73, 1097.6, 0.0853125),
            ("granite_13b", "L40S", 1, 19, 47.86, 0.95, 382.88, 0.0296875),
            ("granite_13b", "MI250", 1, 51, 12.86, 0.26, 102.88, 0.008125),
            ("llama3_8b", "2xG2", 1, 19, 7.61, 0.35, 60.88, 0.0109375),
            ("llama3_8b", "2xMI300X", 1, 38, 3.45, 0.16, 27.6, 0.005),
            ("llama3_8b", "4xA100", 1, 16, 6.47, 0.3, 51.76, 0.009375),
            ("llama3_8b", "4xMI250", 1, 25, 4.04, 0.18, 32.32, 0.005625),
            ("llama3_8b", "G2", 1, 19, 10.78, 0.49, 86.24, 0.0153125),
            ("llama3_8b", "L4", 4, 4, 86.2, 3.93, 689.6, 0.1228125),
            ("llama3_8b", "MI250", 1, 25, 8.08, 0.37, 64.64, 0.0115625),
            ("llama_70b", "2xG2", 2, 6, 16.12, 4.16, 128.96, 0.13),
            ("llama_70b", "2xMI300X", 1, 12, 7.31, 1.89, 58.48, 0.0590625),
            ("llama_70b", "4xMI250", 1, 8, 8.57, 2.21, 68.56, 0.0690625),
            ("llama_70b", "L4", 8, 1, 182.73, 47.13, 1461.84, 1.4728125),
            ("llama_70b", "L40S", 4, 3, 63.74, 16.44, 509.92, 0.51375),
            ("llama_70b", "MI250", 2, 8, 17.13, 4.42, 137.04, 0.138125),
        ],
        [
            placed_server("llama_70b", 90.0, (128, 256), 1, running("4xMI250", 4, 736.0)),
            placed_server("llama3_8b", 199.6, (64, 32), 0, {}),
            placed_server("granite_13b", 61.5, (0, 256), 2, running("2xG2", 5, 230.0), maxBatchSize=4),
        ],
        {"A100": 64, "G2": 0, "L4": 256, "L40S": 64, "MI250": 4, "MI300X": 256},
        {
            "name": "Class0",
            "priority": 2,
            "modelTargets": [
                {"model": "llama_70b", "slo-ttft": 200},
                {"model": "llama3_8b", "slo-ttft": 2000},
                {"model": "granite_13b", "slo-itl": 80, "slo-ttft": 4000},
            ],
        },
    )


@pytest.mark.parametrize(
    ("system", "total_cost", "value", "changes"),
    [  # CBC 2.10 through PuLP 3.3 on the same figures (test above), value = transition value with factor 0.1
        pytest.param(case_22(), 69.0, -261.6, 2.0, id="case22"),
        pytest.param(case_15(), 376.0, -455.8, 3.0, id="case15"),
    ],
)
def test_two_systems_of_the_reference_have_their_known_answers(
    system: System, total_cost: float, value: float, changes: float
) -> None:
    plan = solve(system)
    assert plan.complete
    assert plan.total_cost_cents_per_h == pytest.approx(total_cost)
    assert [level.value for level in plan.levels] == pytest.approx([0.0, 0.0, value, changes])
    assert_equal_to_cbc(plan, system)
    assert verify(plan, system) == []
