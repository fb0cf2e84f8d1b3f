"""HiGHS as a session: errors become ours, large models take another way to the same answer, time runs out."""

import itertools
import subprocess
import sys
from typing import Any

import highspy
import numpy as np
import pytest
from oracles import check_plan
from slow_cases import mostly_slow

from optimizer import Plan, SolverError, System, solve, verify
from optimizer.arrays import FloatArray
from optimizer.generate import generate_system
from optimizer.milp import highs
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import MilpModel, RunStatus


def small_model(upper: float = 1.0, limit: float = 1.5, index: tuple[int, ...] = (0, 1)) -> MilpModel:
    """Return two integer variables of which the sum is at most one and a half."""
    return MilpModel(
        lower=np.zeros(2),
        upper=np.full(2, upper),
        integer=np.ones(2, np.bool_),
        row_start=np.array([0, 2]),
        row_index=np.array(index),
        row_value=np.ones(2),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([limit]),
    )


# --- one session ---------------------------------------------------------------------------------------


def test_a_run_returns_whole_numbers_and_a_bound() -> None:
    result = HighsSession(small_model()).minimise(np.array([-1.0, -2.0]), None, 0.0, 10.0)
    assert result.outcome is RunStatus.optimal
    assert result.x is not None
    assert result.x.tolist() == [0.0, 1.0]
    assert result.bound == -2.0


def test_limits_and_bounds_hold_from_then_on() -> None:
    session = HighsSession(small_model())
    session.set_upper(np.array([1]), 0.0)
    first = session.minimise(np.array([-1.0, -2.0]), None, 0.0, 10.0)
    session.set_upper(np.array([1]), 1.0)
    session.add_limit(np.array([0.0, 1.0]), 0.5)
    second = session.minimise(np.array([-1.0, -2.0]), None, 0.0, 10.0)
    assert first.x is not None
    assert second.x is not None
    assert (first.x.tolist(), second.x.tolist()) == ([1.0, 0.0], [1.0, 0.0])


class Forgetful(highspy.Highs):
    """A HiGHS that returns the start for the optimum, as HiGHS 1.16.0 does if it simplified the start."""

    start: FloatArray | None = None

    def setSolution(self, *arguments: Any) -> highspy.HighsStatus:  # noqa: N802
        """Remember the start, the last of the arguments."""
        self.start = arguments[-1]
        return super().setSolution(*arguments)

    def getSolution(self) -> highspy.HighsSolution:  # noqa: N802
        """Return the start, if there was one."""
        solution = super().getSolution()
        if self.start is not None:
            solution.col_value = self.start
        return solution


def test_a_point_without_its_reported_value_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(highs, "_QuietHighs", Forgetful)
    start = np.array([1.0, 0.0])
    result = HighsSession(small_model()).minimise(np.array([-1.0, -2.0]), start, 0.0, 10.0)
    assert result.x is not None
    assert (result.outcome, result.bound, result.x.tolist()) == (RunStatus.optimal, -2.0, [0.0, 1.0])
    late = HighsSession(small_model()).minimise(np.array([-1.0, -2.0]), start, 0.0, 0.0)
    assert late.outcome is RunStatus.time_limit
    assert late.x is not None
    assert late.x.tolist() == [1.0, 0.0]


@pytest.mark.slow
def test_highs_prints_nothing() -> None:
    code = "import numpy as np; from optimizer.milp import highs; highs.MasterLp(np.zeros(1), np.ones(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_an_impossible_model_is_an_outcome_and_no_error() -> None:
    session = HighsSession(small_model())
    session.add_limit(np.array([-1.0, -1.0]), -2.0)
    result = session.minimise(np.array([1.0, 1.0]), None, 0.0, 10.0)
    assert (result.outcome, result.x) == (RunStatus.infeasible, None)


def test_a_model_that_highs_refuses_is_a_solver_error() -> None:
    session = HighsSession(small_model(index=(0, 7)))
    with pytest.raises(SolverError, match="HiGHS could not load the model"):
        session.minimise(np.array([-1.0, -2.0]), None, 0.0, 10.0)


def test_a_status_that_is_no_answer_is_a_solver_error() -> None:
    endless = HighsSession(small_model(upper=np.inf, limit=np.inf))
    with pytest.raises(SolverError, match=r"HiGHS ended with status '.*[Uu]nbounded.*'"):
        endless.minimise(np.array([-1.0, 1.0]), None, 0.0, 10.0)


def test_two_like_columns_are_not_merged_into_a_wrong_optimum() -> None:
    """HiGHS 1.15.1 answers 33 with its presolve rule for parallel columns.

    The second and third variable are accelerators that cost nothing, two of one of them carry the load: 0.
    """
    model = MilpModel(
        lower=np.zeros(5),
        upper=np.array([4.0, 2.0, 2.0, 0.0, 1.0]),
        integer=np.ones(5, np.bool_),
        row_start=np.array([0, 4, 8, 12, 14]),
        row_index=np.array([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 4]),
        row_value=np.array([300.0, 600.0, 600.0, 1000.0, 1, 1, 1, 0, 1, 1, 1, 4, -1, 1]),
        row_lower=np.array([999.999999, 0.0, -np.inf, -np.inf]),
        row_upper=np.array([np.inf, np.inf, 4.0, 0.0]),
    )
    objective = np.array([24.5, 0.0, 0.0, 0.0, -16.0])
    points = np.array(list(itertools.product(range(5), range(3), range(3), [0], range(2))), np.float64)
    best = min(float(objective @ x) for x in points if model.holds(x))
    found = HighsSession(model).minimise(objective, None, 0.0, 10.0)
    assert found.x is not None
    assert (best, float(objective @ found.x), found.bound) == (0.0, 0.0, 0.0)


# --- a gap, and the end of time ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scarce_fleet() -> System:
    """100 servers on 20 accelerators of 4 types, with two thirds of the units they would like."""
    return generate_system(100, 20, 4, seed=3, tightness=1.5)


@pytest.fixture(scope="module")
def best_plan(scarce_fleet: System) -> Plan:
    return solve(scarce_fleet, gap=0.0, time_limit_s=120.0)


@pytest.mark.slow
@pytest.mark.parametrize("time_limit_s", mostly_slow([1e-6, 1e-3, 0.02, 0.1], 2))
def test_a_time_limit_gives_a_feasible_plan_and_all_gaps(
    scarce_fleet: System, best_plan: Plan, time_limit_s: float
) -> None:
    plan = solve(scarce_fleet, time_limit_s=time_limit_s)
    assert plan.status in ({"feasible"} if time_limit_s == 1e-6 else {"feasible", "optimal"})
    for level in plan.levels:
        assert level.bound is not None
        assert level.gap is not None
        assert level.bound <= level.value
        assert level.gap >= 0
    assert any(level.gap for level in plan.levels) or time_limit_s > 1e-6
    assert verify(plan, scarce_fleet) == []
    assert check_plan(plan.model_dump(mode="json", by_alias=True), scarce_fleet) == []
    for level, best in zip(plan.levels, best_plan.levels, strict=True):
        assert level.bound is not None
        assert level.bound <= best.value + 1e-6  # a bound given the levels before, which agree so far
        if level.value != pytest.approx(best.value, rel=1e-9):
            assert level.value > best.value
            break


def test_without_an_end_of_time_the_same_fleet_is_proved(best_plan: Plan, scarce_fleet: System) -> None:
    assert best_plan.status == "optimal"
    assert not best_plan.complete
    assert [level.gap for level in best_plan.levels] == [0.0] * len(best_plan.levels)
    assert verify(best_plan, scarce_fleet) == []


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.2, 0.01])
def test_a_gap_is_kept_at_every_level(scarce_fleet: System, best_plan: Plan, gap: float) -> None:
    plan = solve(scarce_fleet, gap=gap, time_limit_s=120.0)
    assert plan.status == "optimal"
    assert max(level.gap or 0.0 for level in plan.levels) <= gap
    first, best = plan.levels[0], best_plan.levels[0]
    assert best.value - 1e-6 <= first.value <= best.value / (1 - gap) + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("gap", mostly_slow([0.5, 0.3, 0.01], 1))
@pytest.mark.parametrize("seed", [0, 5])
def test_levels_are_the_plans_even_if_a_later_solve_improved_one(seed: int, gap: float) -> None:
    """A level that stopped within its gap may get better while the next ones are solved."""
    fleet = generate_system(60, 20, 4, seed=seed, tightness=1.5)
    plan = solve(fleet, gap=gap, time_limit_s=120.0)
    assert check_plan(plan.model_dump(mode="json", by_alias=True), fleet) == []
    for level in plan.levels:
        assert level.bound is not None
        assert level.bound <= level.value
