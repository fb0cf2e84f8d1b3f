"""Without capacities each server takes its own best column."""

import random

import pytest
from builders import accelerator, profile, random_document, running, server, service_class, system
from oracles import brute_force, check_plan, read_case
from slow_cases import mostly_slow

from optimizer import load_system, solve, verify


@pytest.mark.parametrize("seed", mostly_slow(range(60), 25))
def test_an_unlimited_choice_equals_brute_force(seed: int) -> None:
    random_system = load_system(random_document(random.Random(seed))).with_options(unlimited=True)
    plan, best = solve(random_system), brute_force(read_case(random_system))
    assert [level.name for level in plan.levels] == list(best)
    assert [level.value for level in plan.levels] == pytest.approx([float(v) for v in best.values()])
    assert [level.gap for level in plan.levels] == [0.0] * len(best)
    assert (plan.status, plan.solver) == ("optimal", "separable")
    assert verify(plan, random_system) == []
    assert check_plan(plan.model_dump(mode="json", by_alias=True), random_system) == []


def test_every_server_takes_its_cheapest_column() -> None:
    """On A 3 × 10 and on B 2 × 3 × 4 cents/h; n runs on A only."""
    models = [profile("m", "A"), profile("m", "B", count=2), profile("n", "A")]
    servers = [server("a", replicas=3), server("b", replicas=1, model="n")]
    classes = [service_class("gold", models=("m", "n"))]
    accelerators = [accelerator("A", cost=10), accelerator("B", cost=4)]
    plan = solve(system(servers, accelerators, models=models, classes=classes))
    assert {name: pools[0].accelerator for name, pools in plan.allocations.items()} == {"a": "B", "b": "A"}
    assert plan.total_cost_cents_per_h == 34.0
    assert [(item.type, item.limit, item.used) for item in plan.capacity] == [("A", None, 1), ("B", None, 6)]


def test_capacities_are_ignored_but_still_counted() -> None:
    plan = solve(system([server("a", replicas=3)], [accelerator("A")], {"A": 1}, unlimited=True))
    assert plan.complete
    assert [(item.type, item.limit, item.used) for item in plan.capacity] == [("A", None, 3)]


@pytest.mark.parametrize(("here", "replicas"), [("A", 1), ("B", 1), ("", 0)])
def test_ties_keep_what_runs_and_go_to_the_first_name_otherwise(here: str, replicas: int) -> None:
    servers = [server("a", replicas=1, current=running(here, replicas))]
    plan = solve(system(servers, [accelerator("B"), accelerator("A")], transitionPenalty=0))
    assert plan.allocations["a"][0].accelerator == (here or "A")


def test_a_mixed_plan_without_candidates_serves_no_server() -> None:
    """The target is below the one decode step of a request."""
    servers = [server("a", replicas=1)]
    source = system(servers, [accelerator("A")], classes=[service_class("gold", itl=0.001)])
    plan = solve(source.with_options(unlimited=True, heterogeneous=True))
    assert [(item.server, item.reason) for item in plan.unserved] == [("a", "slo_unattainable")]
    assert plan.status == "optimal"
