"""A plan that is applied and planned again changes nothing: current allocations of several pools."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from builders import Json, accelerator, document, refusal, running, server
from feature_fleets import random_with_routes
from mixed_oracles import mixed_brute_force, random_mixed_document
from slow_cases import mostly_slow, seeds

from optimizer import System, load_system, solve, verify
from optimizer.candidates import find_candidates
from optimizer.milp.highs import HighsSession
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.exact import solve_exactly
from optimizer.solvers.levels import levels_of
from optimizer.solvers.problem import build_problem

TWO = [{"accelerator": "A", "numReplicas": 2, "cost": 20}, {"accelerator": "B", "numReplicas": 1, "cost": 9}]


def idle(source: Json) -> Json:
    """Return a document in which nothing runs yet."""
    for one in source["servers"]:
        one["currentAlloc"] = {"load": one.get("currentAlloc", {}).get("load", {})}
        for share in one.get("split", ()):
            share.pop("currentAlloc", None)
    return source


def assert_settled(system: System) -> None:
    plan = solve(system)
    applied = plan.applied_to(system)
    again = solve(applied)
    assert again.changes == ()
    assert verify(again, applied) == []
    for section in ("allocations", "shared_cards", "rented", "unserved", "total_cost_cents_per_h"):
        assert getattr(again, section) == getattr(plan, section), section
    read = load_system(json.loads(applied.to_spec().model_dump_json(by_alias=True)))
    for name, one in applied.servers.items():
        assert read.servers[name].current.stated_pools == one.current.stated_pools, name


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("sample", mostly_slow(["small", "large", "shared-cards.yaml", "robust.yaml"], 2))
def test_a_samples_plan_stays_as_it_is(specs: Path, sample: str, *, mixed: bool) -> None:
    assert_settled(load_system(specs / sample).with_options(heterogeneous=mixed))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", seeds(5, 145))
def test_a_mixed_plan_stays_as_it_is(seed: int) -> None:
    assert_settled(load_system(idle(random_mixed_document(seed))))


@pytest.mark.parametrize("seed", seeds(1, 59))
def test_a_plan_of_features_stays_as_it_is(seed: int) -> None:
    assert_settled(load_system(idle(random_with_routes(seed))).with_options(saturation_policy="None"))


# --- several current pools ---------------------------------------------------------------------------------


def on_several_pools(seed: int) -> System:
    """Return a system whose servers run on several accelerators, some of which are not in their reach."""
    source, rng = random_mixed_document(seed), random.Random(seed)
    names = [one["name"] for one in source["accelerators"]]
    for one in source["servers"]:
        chosen = rng.sample(names, min(len(names), rng.choice([1, 2, 2, 3])))
        pools = [running(name, rng.randint(1, 2), rng.choice([0.0, 7.5, 17.75])) for name in chosen]
        one["keepAccelerator"] = False
        one["currentAlloc"] = {"pools": pools, "load": one["currentAlloc"]["load"]}
    return load_system(source)


def as_planned(seed: int) -> System:
    """Return a system that runs what a plan of it has, often several pools."""
    source = load_system(idle(random_mixed_document(seed)))
    return solve(source).applied_to(source)


SETTLED = (1, 27, 40, 49, 57, 81, 82, 86)
"""Seeds of plans with several pools of a server."""


def assert_equal_to_exhaustive_search(source: System) -> None:
    """By branch and price, and by the compact model."""
    best, plan = mixed_brute_force(source), solve(source)
    problem = build_problem(find_candidates(source))
    compact = solve_exactly(problem, HighsSession, Deadline.after(60), with_patterns=False)
    for levels in (plan.levels, compact.levels, levels_of(problem, compact.replicas, proved=False)):
        found = {level.name: level.value for level in levels}
        assert found == pytest.approx({name: float(value) for name, value in best.items()}, rel=0, abs=1e-6)
    assert verify(plan, source) == []


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", seeds(7, 293))
def test_plans_from_several_pools_equal_exhaustive_search(seed: int) -> None:
    assert_equal_to_exhaustive_search(on_several_pools(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SETTLED)
def test_plans_from_pools_of_a_plan_equal_exhaustive_search(seed: int) -> None:
    source = as_planned(seed)
    assert any(len(one.current.pools) > 1 for one in source.servers.values())
    assert_equal_to_exhaustive_search(source)


# --- what a plan reads of them -----------------------------------------------------------------------------


def two_pools(**more: Any) -> Json:
    return document(
        [server("s", 60.0, current={"pools": TWO}, **more)],
        [accelerator("A"), accelerator("B", cost=9.0), accelerator("C", cost=1.0)],
    )


def test_a_server_keeps_one_of_the_accelerators_of_its_pools() -> None:
    source = load_system(two_pools(keepAccelerator=True))
    found = find_candidates(source)
    assert [pool.accelerator for pool in solve(source).allocations["s"]] == ["B"]
    assert [item.detail for item in found.rejections() if item.accelerator == "C"] == [
        "keepAccelerator holds it on A and B"
    ]


def test_leaving_all_pools_costs_the_penalty_on_all_of_them() -> None:
    plan = solve(load_system(two_pools()))
    assert [pool.accelerator for pool in plan.allocations["s"]] == ["C"]
    assert plan.objective == pytest.approx(1 - 29 + 0.1 * (1 + 29))
    (change,) = plan.changes
    assert [(item.accelerator, item.num_replicas) for item in change.before] == [("A", 2), ("B", 1)]
    assert change.cost_change_cents_per_h == 1 - 29


def test_of_missing_costs_each_pool_is_priced() -> None:
    source = two_pools(keepAccelerator=True)
    source["servers"][0]["currentAlloc"]["pools"] = [pool | {"cost": 0} for pool in TWO]
    (change,) = solve(load_system(source)).changes
    assert change.cost_change_cents_per_h == 9 - (2 * 10 + 9)


@pytest.mark.parametrize(
    ("allocation", "problem"),
    [
        (
            {"pools": [TWO[0], TWO[0]]},
            "pools[1].accelerator: 'A' occurs twice; add up its replicas in one pool",
        ),
        (
            {"pools": [{"numReplicas": 1}]},
            "pools[0].accelerator: a pool with mode own needs an accelerator; add its name",
        ),
        (
            {"pools": [{"accelerator": "A", "numReplicas": 1, "mode": "external"}]},
            "pools[0].accelerator: a pool with mode external has no accelerator; remove it",
        ),
        (
            {"pools": TWO} | running("A", 3),
            "accelerator: 3 x A is none of the pools with mode own; give the largest of them, or remove it",
        ),
        (
            {"pools": [{"accelerator": "Z", "numReplicas": 1}]},
            "pools[0].accelerator: accelerator 'Z' does not exist; add it, or correct 'accelerator'",
        ),
    ],
)
def test_contradictory_pools_are_refused(allocation: Json, problem: str) -> None:
    source = two_pools()
    source["servers"][0]["currentAlloc"] = allocation
    assert refusal(lambda: load_system(source)) == f"servers[0].currentAlloc.{problem}"
