"""`verify` has nothing to say of true plans, whatever the options: a false alarm would make `solve` fail."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Json
from hypothesis import given
from hypothesis import strategies as st
from slow_cases import mostly_slow
from strategies import documents

from optimizer import System, explain, find_candidates, load_system, solve, verify
from optimizer.generate import generate_system
from optimizer.plan import placements

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


@pytest.mark.slow
@given(documents, options)
def test_plans_of_random_systems_hold_under_all_options(source: Json, chosen: dict[str, Any]) -> None:
    assert_true(load_system(source).with_options(**chosen))


@pytest.mark.slow
@given(documents, options, st.sampled_from([0.0, 1e-4, 1e-3]))
def test_plans_hold_where_latencies_step(source: Json, chosen: dict[str, Any], gamma: float) -> None:
    for item in source["models"]:
        item.update(STEPPING | {"perfParms": {"alpha": 5.0, "beta": 0.05, "gamma": gamma}, "kvCapacity": 400})
    assert_true(load_system(source).with_options(**chosen))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", mostly_slow(["small", "large", "long-prompts.yaml"], 2))
@pytest.mark.parametrize("divisor", mostly_slow([3, 1], 1))
def test_plans_of_the_samples_hold(specs: Path, name: str, divisor: int, policy: str) -> None:
    system = load_system(specs / name)
    system = system.with_capacity({kind: count // divisor for kind, count in system.capacity.items()})
    for milp in (True, False):
        assert_true(
            system.with_options(
                unlimited=False, saturation_policy=policy, milp_solver=milp, time_limit_s=5.0, gap=0.01
            )
        )


TINY_RENTS = """
accelerators: [{name: A1, type: T1}]
models:
  - {name: m0, acc: A1, maxBatchSize: 1, decodeParms: {alpha: 18, beta: 0.7},
     prefillParms: {gamma: 9, delta: 0.01}}
  - {name: m1, acc: A1, maxBatchSize: 1, decodeParms: {alpha: 12, beta: 0.5},
     prefillParms: {gamma: 6, delta: 0.01}}
serviceClasses:
  - name: gold
    priority: 1
    modelTargets: [{model: m0, slo-itl: 60, slo-ttft: 1000}, {model: m1, slo-itl: 60, slo-ttft: 1000}]
servers:
  - {name: rl, class: gold, model: m1}
  - {name: rs, class: gold, model: m0}
  - name: s0
    class: gold
    model: m0
    spareReplicas: 2
    external: {inPerMillion: 10, outPerMillion: 40, ttft: 60, itl: 20}
    currentAlloc: {load: {arrivalRate: 0.0000015, avgInTokens: 200, avgOutTokens: 1}}
  - name: s1
    class: gold
    model: m1
    spareReplicas: 1
    external: {inPerMillion: 10, outPerMillion: 40, ttft: 60, itl: 20}
    currentAlloc: {load: {arrivalRate: 0.0000015, avgInTokens: 200, avgOutTokens: 200}}
routes:
  - name: rt
    small: rs
    large: rl
    arrivalRate: 7500
    maxLoss: 0.2
    rerun: true
    kinds:
      - {share: 0.6, inTokens: 100, outTokens: 50, loss: 0.01}
      - {share: 0.4, inTokens: 300, outTokens: 100, loss: 0.3}
optimizer: {unlimited: true}
"""


def test_rents_below_the_tolerance_of_the_solver_are_proved() -> None:
    """The two rents together cost 2e-6 cents/h, about as much as a solver's tolerance."""
    system = load_system(yaml.safe_load(TINY_RENTS))
    assert solve(system).status == "optimal"
    assert_true(system)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_plans_of_generated_systems_hold(seed: int) -> None:
    system = generate_system(40, 10, 3, seed=seed, tightness=1.0 + seed)
    for chosen in ({"milp_solver": False, "saturation_policy": "RoundRobin"}, {"unlimited": True}):
        assert_true(system.with_options(**chosen))


def solve_and_verify(system: System) -> None:
    assert verify(solve(system), system) == []


@pytest.mark.slow
@pytest.mark.parametrize("study", [solve_and_verify, explain])
def test_placements_are_listed_as_often_for_many_servers(
    monkeypatch: pytest.MonkeyPatch, study: Callable[[System], object]
) -> None:
    """Listing them once for each server or question took minutes for thousands of servers."""
    listed: list[int] = []
    rows = placements.placement_groups

    def counted(*arguments: Any) -> Iterator[placements.PlacementGroup]:
        listed.append(len(arguments))
        return rows(*arguments)

    monkeypatch.setattr(placements, "placement_groups", counted)
    numbers = []
    for servers in (5, 30):
        listed.clear()
        study(generate_system(servers, 4, 4, 1, 0.8))
        numbers.append(len(listed))
    assert numbers[0] == numbers[1]
