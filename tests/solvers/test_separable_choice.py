"""Without capacities each server takes its own best column."""

import random

import pytest
from builders import accelerator, random_document, running, server, system
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


def test_capacities_are_ignored_but_still_counted() -> None:
    plan = solve(system([server("a", replicas=3)], [accelerator("A")], {"A": 1}, unlimited=True))
    assert plan.complete
    assert [(item.type, item.limit, item.used) for item in plan.capacity] == [("A", None, 3)]


@pytest.mark.parametrize(("here", "replicas"), [("A", 1), ("B", 1), ("", 0)])
def test_ties_keep_what_runs_and_go_to_the_first_name_otherwise(here: str, replicas: int) -> None:
    servers = [server("a", replicas=1, current=running(here, replicas))]
    plan = solve(system(servers, [accelerator("B"), accelerator("A")], transitionPenalty=0))
    assert plan.allocations["a"][0].accelerator == (here or "A")
