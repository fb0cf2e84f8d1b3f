"""`verify` has nothing to say of true plans, whatever the options: a false alarm would make `solve` fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import Json
from hypothesis import given
from hypothesis import strategies as st
from slow_cases import mostly_slow
from strategies import documents

from optimizer import System, find_candidates, load_system, solve, verify
from optimizer.generate import generate_system

POLICIES = ("None", "PriorityExhaustive", "PriorityRoundRobin", "RoundRobin")
STEPPING = {"decodeParms": None, "prefillParms": None, "maxNumTokens": 64}
"""With 64 tokens an iteration the number of prefill chunks steps within a batch of 8."""

options = st.fixed_dictionaries(
    {
        "unlimited": st.booleans(),
        "heterogeneous": st.booleans(),
        "milp_solver": st.booleans(),
        "delayed_best_effort": st.booleans(),
        "saturation_policy": st.sampled_from(POLICIES),
        "batch_sizing": st.sampled_from(["profile", "profile", "optimal"]),
        "gap": st.sampled_from([None, None, 0.0, 0.1, 0.5]),
        "transition_penalty": st.sampled_from([0.0, 0.1, 2.0]),
    }
)


def assert_true(system: System) -> None:
    """Verify a plan on its own, with the candidates at hand, and as it is read back from JSON."""
    plan = solve(system)
    assert verify(plan, system) == []
    assert verify(plan, system, find_candidates(system)) == []
    assert verify(type(plan).model_validate_json(plan.to_json()), system) == []


@given(documents, options)
def test_plans_of_random_systems_hold_under_all_options(source: Json, chosen: dict[str, Any]) -> None:
    assert_true(load_system(source).with_options(**chosen))


@given(documents, options, st.sampled_from([0.0, 1e-4, 1e-3]))
def test_plans_hold_where_latencies_step(source: Json, chosen: dict[str, Any], gamma: float) -> None:
    for item in source["models"]:
        item.update(STEPPING | {"perfParms": {"alpha": 5.0, "beta": 0.05, "gamma": gamma}, "kvCapacity": 400})
    assert_true(load_system(source).with_options(**chosen))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["small", "large", "long-prompts.yaml"])
@pytest.mark.parametrize("divisor", mostly_slow([3, 1], 1))
def test_plans_of_the_samples_hold(specs: Path, name: str, divisor: int, policy: str) -> None:
    system = load_system(specs / name)
    system = replace(system, capacity={kind: count // divisor for kind, count in system.capacity.items()})
    for milp in (True, False):
        assert_true(
            system.with_options(
                unlimited=False, saturation_policy=policy, milp_solver=milp, time_limit_s=5.0, gap=0.01
            )
        )


@pytest.mark.parametrize("seed", range(4))
def test_plans_of_generated_systems_hold(seed: int) -> None:
    system = generate_system(40, 10, 3, seed=seed, tightness=1.0 + seed)
    for chosen in ({"milp_solver": False, "saturation_policy": "RoundRobin"}, {"unlimited": True}):
        assert_true(system.with_options(**chosen))
