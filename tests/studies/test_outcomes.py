"""Outcomes of solutions: levels, cost and service are those of the plan that is made of the same solution."""

from collections.abc import Callable

import pytest
from builders import Json
from coupled_fleets import random_coupled
from feature_fleets import random_features
from slow_cases import mostly_slow

from optimizer import find_candidates, load_system
from optimizer.pipeline import solve_problem
from optimizer.plan import make_plan
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation.outcome import PlanOutcome

POLICIES = ("None", "RoundRobin", "PriorityExhaustive")


def assert_outcome_is_that_of_the_plan(document: Json, policy: str) -> None:
    """Compare the two ways to an outcome; a routed server with idle replicas has the least load in a plan."""
    alone = not any("sharedCard" in server for server in document["servers"]) and "routes" not in document
    system = load_system(document).with_options(saturation_policy=policy if alone else "None")
    candidates = find_candidates(system)
    problem = build_problem(candidates)
    solution = solve_problem(problem)
    plan = PlanOutcome.of_plan(make_plan(candidates, problem, solution))
    found = PlanOutcome.of_solution(candidates, problem, solution)
    assert (found.status, found.levels, found.lacks_reserve) == (plan.status, plan.levels, plan.lacks_reserve)
    assert found.total_cost_cents_per_h == pytest.approx(plan.total_cost_cents_per_h, abs=1e-9)
    assert found.served_fraction == pytest.approx(plan.served_fraction, rel=1e-9)
    for name in found.carried_rpm.keys() | plan.carried_rpm.keys():
        carried = plan.carried_rpm.get(name, 0.0)
        assert found.carried_rpm.get(name, 0.0) == pytest.approx(carried, rel=1e-9, abs=1e-9)
    assert found.pools == plan.pools


@pytest.mark.parametrize("make", [random_coupled, random_features])
@pytest.mark.parametrize("seed", mostly_slow([2, 5, 9, 0, 1, 8, *range(10, 150)], 1))
def test_an_outcome_is_that_of_the_plan(seed: int, make: Callable[[int], Json]) -> None:
    assert_outcome_is_that_of_the_plan(make(seed), POLICIES[seed % 3])
