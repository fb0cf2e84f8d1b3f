"""Two solutions of one problem: the better one, with every bound that holds for it."""

from collections.abc import Mapping

import numpy as np
import pytest
from builders import accelerator, running, server
from builders import system as build

from optimizer import find_candidates
from optimizer.arrays import IntArray
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.solvers.branch_and_price.solve import solve_patterns
from optimizer.solvers.compact import solve_milp
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import bounded_levels, levels_of, trivial_bounds
from optimizer.solvers.merging import merge, merged_bounds, not_worse_than
from optimizer.solvers.objectives import CHANGES, VALUE
from optimizer.solvers.problem import Problem, build_problem
from optimizer.solvers.solution import Solution, SolvedLevel, Status
from optimizer.solvers.warm_starts import best_initial_solution

RATE, SERVERS = "priority 1: unserved rate", "priority 1: unserved servers"


def levels(*pairs: tuple[float, float | None]) -> list[SolvedLevel]:
    return [SolvedLevel(str(place), value, bound) for place, (value, bound) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("best", "other", "bounds"),
    [
        # The better of the two bounds, never above the value.
        ([(10, 4), (-5, -9)], [(10, 6), (-5, -7)], [6, -7]),
        ([(10, 4), (-5, -9)], [(12, 11), (-5, -7)], [10, -7]),
        # A solve that was better at a level before bounds fewer answers after it.
        ([(10, 4), (8, 1), (-5, -9)], [(12, 4), (7, 2), (-5, -7)], [4, 2, -9]),
        ([(-10, -12), (8, 1)], [(-10.5, -11), (8, 3)], [-11, 1]),
        ([(10, None), (3, None)], [(10, 2), (3, None)], [2, None]),
    ],
)
def test_a_bound_counts_while_its_solve_was_no_better_before(
    best: list[tuple[float, float | None]],
    other: list[tuple[float, float | None]],
    bounds: list[float | None],
) -> None:
    assert merged_bounds(levels(*best), levels(*other)) == bounds


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_any_answer_and_of_a_merge_hold(seed: int) -> None:
    system = generate_system(12, 6, 4, seed, 1.8).with_options(heterogeneous=True)
    problem = build_problem(find_candidates(system))
    proved = solve_patterns(problem)
    assert proved.status is Status.optimal
    greedy = stopped(problem, best_initial_solution(problem), trivial_bounds(problem))
    at_once = solve_patterns(problem, Deadline.after(0.0))
    merged = merge(problem, greedy, at_once)
    assert merge(problem, greedy, proved) is proved
    nothing = stopped(problem, np.zeros(len(problem.table), np.int64), trivial_bounds(problem))
    for solution in (greedy, at_once, merged, nothing):
        for mine, best in zip(solution.levels, proved.levels, strict=True):
            assert mine.bound is not None
            assert mine.bound <= best.value + 1e-6
            if mine.value > best.value:
                break
    assert merged.levels == tuple(
        level if level.bound == now.bound else now
        for level, now in zip(levels_of(problem, merged.replicas, proved=True), merged.levels, strict=True)
    )


# --- levels of service are compared as integers ---------------------------------------------------------


def that_saves() -> Problem:
    """Return a problem whose best plan has a negative value: a server moves to a cheaper card."""
    now = running("G", 1, 1000.0)
    cards = [accelerator("G", cost=1000.0), accelerator("H", cost=100.0)]
    return build_problem(find_candidates(build([server("a", 60.0, current=now)], cards, {"G": 4, "H": 4})))


def stopped(problem: Problem, replicas: IntArray, bounds: Mapping[str, float]) -> Solution:
    """Return an answer of a run that was stopped with these bounds, those of service in steps."""
    return Solution(replicas, Status.feasible, "milp", bounded_levels(problem, replicas, bounds))


def test_two_runs_prove_an_answer_of_negative_value_together() -> None:
    problem = that_saves()
    best = solve_milp(problem, HighsSession)
    value = best.level(VALUE).value
    assert value == pytest.approx(100 - 1000 + 0.1 * (100 + 1000))  # eq. 31
    served = {RATE: 0.0, SERVERS: 0.0}
    of_value = stopped(problem, best.replicas, served | {VALUE: value, CHANGES: 0.0})
    of_changes = stopped(problem, best.replicas, served | {VALUE: value - 50, CHANGES: 1.0})
    for first, second in ((of_value, of_changes), (of_changes, of_value)):
        found = merge(problem, first, second)
        assert found.status is Status.optimal
        assert [level.gap for level in found.levels] == [0.0] * 4


def with_servers(problem: Problem, *servers: int) -> IntArray:
    chosen = np.isin(problem.table.server, servers)
    return np.where(chosen, problem.table.num_replicas, 0)


def test_bounds_after_a_worse_level_do_not_apply() -> None:
    servers = [server("a", 110.0), server("b", 50.0), server("c", 50.0)]
    problem = build_problem(find_candidates(build(servers, [accelerator("H")], {"H": 2})))
    bounds = {RATE: 5.0, SERVERS: 1.0, VALUE: 22.0, CHANGES: 2.0}  # of the rate in steps of 10 a minute
    found = stopped(problem, with_servers(problem, 1, 2), bounds)
    better = not_worse_than(problem, with_servers(problem, 0), found)
    reached = [level.value for level in better.levels]
    assert reached == pytest.approx([100.0, 2.0, 11.0, 1.0])  # 10 less, but of two servers
    assert [level.bound for level in better.levels] == pytest.approx([50.0, 1.0, 0.0, 0.0])


def test_an_answer_of_equal_whole_loads_keeps_what_was_proved() -> None:
    # 8.3331 and 8.33349 requests/min are both 8,333 steps of 0.001 (eq. 35), so both plans serve the same.
    servers = [server("a", 8.3331), server("b", 8.33349)]
    problem = build_problem(find_candidates(build(servers, [accelerator("H")], {"H": 1})))
    one, other = with_servers(problem, 0), with_servers(problem, 1)
    proved = {RATE: 1.0, SERVERS: 1.0, VALUE: 11.0, CHANGES: 1.0}
    first, second = stopped(problem, one, proved | {CHANGES: 0.0}), stopped(problem, other, proved)
    found = merge(problem, first, second)
    assert (found.replicas == one).all()
    assert found.status is Status.optimal
    assert found.levels == levels_of(problem, one, proved=True)
