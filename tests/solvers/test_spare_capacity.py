"""Ties: of plans that are equal at every level one with more capacity to spare, wherever one chooses."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
from builders import Json, accelerator, document, profile, running, server, system
from slow_cases import seeds

from optimizer import System, explain, find_candidates, load_system, solve
from optimizer.arrays import IntArray
from optimizer.pipeline import solve_problem
from optimizer.solvers.levels import is_better, levels_of
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution
from optimizer.solvers.spare_capacity import with_more_spare_capacity


def tied(rng: random.Random, **options: Any) -> Json:
    """Return a system of up to 3 servers in which many accelerators cost the same and differ in speed."""
    names = [f"A{i}" for i in range(rng.randint(2, 4))]
    slices = [accelerator(name, rng.choice(["T", "U"]), 10, rng.choice([1, 1, 2])) for name in names]
    models = [profile("m", name, alpha=rng.choice([5.0, 8.0, 12.0, 20.0])) for name in names]
    servers = [
        server(
            f"s{i}",
            rng.choice([60.0, 300.0]),
            replicas=rng.randint(0, 2),
            current=running(rng.choice(names), 1, 10.0) if rng.random() < 0.3 else None,
        )
        for i in range(rng.randint(1, 3))
    ]
    units = {"T": rng.randint(1, 8), "U": rng.randint(1, 8)}
    return document(servers, slices, units, models=models, **options)


def spare_capacity_of(problem: Problem, replicas: IntArray) -> float:
    """Return the capacity to spare of an answer: over its servers' loads, in sum (eq. 89)."""
    table = problem.table
    served = np.unique(table.server[replicas > 0])
    load = problem.load_rps[served]
    capacity = np.bincount(table.server, replicas * table.max_rate_rps, len(problem.priority))[served]
    loaded = load > 0
    return float((capacity[loaded] / load[loaded] - 1).sum())


def all_answers(problem: Problem) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return every answer of one pool per server that keeps to the units."""
    table = problem.table
    choices = [
        [None, *np.flatnonzero(problem.full & (table.server == s)).tolist()]
        for s in range(len(problem.priority))
    ]
    answers = []
    for taken in itertools.product(*choices):
        replicas = np.zeros(len(table), np.int64)
        rows = [c for c in taken if c is not None]
        replicas[rows] = table.num_replicas[rows]
        if (problem.left_by(replicas) >= 0).all():
            answers.append(replicas)
    return answers


def problem_of(found: System) -> Problem:
    return build_problem(find_candidates(found))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", seeds(4, 36))
def test_without_limits_no_equal_answer_has_more_room(seed: int) -> None:
    problem = problem_of(load_system(tied(random.Random(seed), unlimited=True)))
    for solver in ("separable", "greedy", "milp"):
        found = solve_problem(problem) if solver == "separable" else _chosen(seed, solver)
        others = all_answers(problem)
        assert not [other for other in others if is_better(problem, other, found.replicas)]
        equal = [other for other in others if not is_better(problem, found.replicas, other)]
        assert spare_capacity_of(problem, found.replicas) == pytest.approx(
            max(spare_capacity_of(problem, x) for x in equal)
        )


def _chosen(seed: int, solver: str) -> Solution:
    """Choose with a solver for limited plans, from more units than anybody can take."""
    source = tied(random.Random(seed), milpSolver=solver == "milp", unlimited=False)
    source["count"] = [{"type": kind, "count": 1000} for kind in ("T", "U")]
    return solve_problem(problem_of(load_system(source)))


@pytest.mark.parametrize("seed", seeds(7, 53))
def test_no_server_could_move_to_more_spare_capacity(seed: int) -> None:
    problem = problem_of(load_system(tied(random.Random(seed))))
    found = solve_problem(problem).replicas
    others = all_answers(problem)
    assert not [other for other in others if is_better(problem, other, found)]
    table = problem.table
    for other in others:
        moved = np.unique(table.server[other != found])
        if len(moved) == 1 and not is_better(problem, found, other):
            assert spare_capacity_of(problem, other) <= spare_capacity_of(problem, found) + 1e-12


@pytest.mark.parametrize("seed", seeds(4, 36))
def test_an_exchange_leaves_every_level_as_it_is(seed: int) -> None:
    problem = problem_of(load_system(tied(random.Random(seed))))
    for answer in all_answers(problem):
        more = with_more_spare_capacity(problem, answer)
        assert levels_of(problem, more, proved=True) == levels_of(problem, answer, proved=True)
        assert spare_capacity_of(problem, more) >= spare_capacity_of(problem, answer)
        assert len(problem.limits)
        assert (problem.left_by(more) >= 0).all()


SLOW_FIRST = document(
    [server("s", replicas=2)],
    [accelerator("A"), accelerator("B"), accelerator("C", cost=11)],
    {"A": 9, "B": 9, "C": 9},
    models=[profile("m", "A", alpha=20.0), profile("m", "B", alpha=5.0), profile("m", "C", alpha=4.0)],
)


@pytest.mark.parametrize(
    "options",
    [
        {"unlimited": True},
        {"unlimited": False},
        {"milp_solver": False},
        {"heterogeneous": True},
        {"heterogeneous": True, "unlimited": True},
        {"saturation_policy": "RoundRobin"},
    ],
)
def test_the_roomier_of_equals_is_taken_on_every_path(options: dict[str, object]) -> None:
    plan = solve(load_system(SLOW_FIRST).with_options(**options))
    assert [pool.accelerator for pool in plan.allocations["s"]] == ["B"]
    assert plan.total_cost_cents_per_h == 20


def test_the_next_best_alternative_is_the_roomier_of_equals() -> None:
    slices = [accelerator("A"), accelerator("B"), accelerator("D", cost=9)]
    models = [profile("m", "A", alpha=20.0), profile("m", "B", alpha=5.0), profile("m", "D")]
    source = system([server("s", replicas=2)], slices, {"A": 9, "B": 9, "D": 9}, models=models)
    found = explain(source, server="s").servers[0].next_best
    assert found is not None
    assert [pool.accelerator for pool in found.pools] == ["B"]


def test_names_decide_where_the_room_is_equal_too() -> None:
    source = system([server("s", replicas=2)], [accelerator("B"), accelerator("A")], {"A": 9, "B": 9})
    for options in ({}, {"unlimited": True}, {"milp_solver": False}):
        assert solve(source.with_options(**options)).allocations["s"][0].accelerator == "A"
