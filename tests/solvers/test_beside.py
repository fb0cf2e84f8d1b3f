"""A target is relaxed: what that makes possible is looked for among the answers that make use of it."""

import numpy as np
import pytest
from test_known import assert_same, planned, questions

from optimizer.arrays import IntArray
from optimizer.generate import generate_system
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.patterns import beside
from optimizer.solvers.patterns.narrowing import Narrowing
from optimizer.solvers.patterns.solve import solve_patterns
from optimizer.solvers.problem import build_problem
from optimizer.studies.explanation.before import Before


def assert_same_with_targets_relaxed(
    servers: int, accelerators: int, types: int, seed: int, tightness: float
) -> None:
    system = generate_system(servers, accelerators, types, seed, tightness).with_options(heterogeneous=True)
    candidates, plan = planned(system)
    before = Before(candidates, plan)
    for changed, _, carries_more in questions(candidates, plan):
        if carries_more:
            problem = build_problem(changed)
            known = before.known(problem, restricts=False, carries_more=True)
            assert_same(solve_patterns(problem, known=known), solve_patterns(problem))


@pytest.mark.parametrize(
    "shape", [(12, 6, 4, 5, 1.9), pytest.param((20, 8, 6, 3, 1.6), marks=pytest.mark.slow)]
)
def test_an_answer_with_something_new_is_found_where_it_is_better_and_ruled_out_where_not(
    shape: tuple[int, int, int, int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[float, float, float]] = []
    look = beside._bound_with

    def noted(level: Narrowing, new: IntArray, start: IntArray, deadline: Deadline) -> float:
        value = level.value
        bound = look(level, new, start, deadline)
        looked.append((value, level.value, bound))
        return bound

    monkeypatch.setattr(beside, "_bound_with", noted)
    assert_same_with_targets_relaxed(*shape)
    better = [then < value for value, then, _ in looked]
    assert any(better)
    assert not all(better)
    # Nothing better was found of others; then it is proved that there is nothing.
    assert all(then < value or bound >= value - 1 - 1e-4 for value, then, bound in looked)


def test_where_that_is_left_open_nothing_is_taken_as_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_bound_with", lambda *_: -np.inf)
    assert_same_with_targets_relaxed(12, 6, 4, 5, 1.9)
