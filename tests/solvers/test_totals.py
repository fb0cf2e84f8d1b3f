"""Levels divided by the units that all servers together take: no answer is lost, and bounds hold."""

import numpy as np
import pytest
from scipy.optimize import linprog
from test_branching import NO_LIMIT, weight_of

from optimizer import find_candidates
from optimizer.arrays import FloatArray, IntArray
from optimizer.generate import generate_system
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import HighsSession, RangedLp
from optimizer.solvers.levels import VALUE
from optimizer.solvers.milp import solve_milp
from optimizer.solvers.model import MilpModel, Outcome
from optimizer.solvers.patterns import narrowing
from optimizer.solvers.patterns.bounds import Ranged
from optimizer.solvers.patterns.narrowing import Narrowing
from optimizer.solvers.patterns.program import Measure
from optimizer.solvers.patterns.run import Run
from optimizer.solvers.patterns.solve import solve_patterns
from optimizer.solvers.patterns.steps import Step
from optimizer.solvers.patterns.target import Target
from optimizer.solvers.patterns.totals import Box, TotalsTree, divide_totals
from optimizer.solvers.problem import Status, build_problem

SEEDS = (23, 34, 38, 75, 76, 83, 107, 119, 129, 151, 156, 174, 234)
"""Fleets that greedy serves all of, dearly, and whose relaxation takes parts of units."""


def value_level(seed: int) -> tuple[Run, Narrowing]:
    """Return the value of a fleet of which all servers have to be served, with every pattern known."""
    system = generate_system(14, 8, 4, seed, 1.0).with_options(heterogeneous=True)
    run = Run(build_problem(find_candidates(system)), NO_LIMIT, None, None)
    run.serve(~run.columnless)
    program = run.program(Step(Measure(VALUE, np.zeros(run.servers), on_value=1.0), 0.0))
    below = run.pool.below(program, np.zeros(len(program.limits)), np.full(run.servers, np.inf))
    assert below.complete
    run.pool.add(below.options)
    relaxed = run.relaxed(program, NO_LIMIT)
    assert relaxed is not None
    return run, Narrowing(program, run.pool, relaxed, run.incumbent, Target(1e-6, 0.0))


def least_of(level: Narrowing) -> tuple[float, FloatArray]:
    """Return the least value over every pattern, by one model in HiGHS, and the units that it takes."""
    options = np.flatnonzero(level.program.allowed(level.pool.options))
    weight = weight_of(level.program, level.pool)[options]
    taken = level.pool.options.take(options)
    result = HighsSession(level.program.model(taken)).solve_at_once(weight, None, 0.0, 60.0)
    assert result.outcome is Outcome.optimal
    assert result.x is not None
    return float(weight @ result.x), result.x @ taken.units


def tree_of(level: Narrowing, cutoff: float) -> TotalsTree:
    options = np.flatnonzero(level.program.allowed(level.pool.options))
    tree = TotalsTree(level.program, level.pool.options.take(options), cutoff)
    assert tree.begin(NO_LIMIT)
    return tree


@pytest.fixture(params=SEEDS)
def level(request: pytest.FixtureRequest) -> Narrowing:
    level = value_level(request.param)[1]
    assert level.feasible
    return level


def test_the_best_answer_is_in_a_box_and_the_first_whole_one_bounds_it(level: Narrowing) -> None:
    best, units = least_of(level)
    tree = tree_of(level, best + 1e-6)
    root = tree.best
    assert root is not None
    whole = tree.whole(NO_LIMIT)
    assert whole is not None
    assert whole.open_row is None
    assert root.bound - 1e-6 <= whole.bound <= best + 1e-6
    holding = [box for box in tree.branches if ((box.least <= units) & (units <= box.most)).all()]
    assert len(holding) == 1
    assert holding[0].bound <= best + 1e-6
    assert [box.bound for box in tree.branches] == sorted(box.bound for box in tree.branches)


def test_the_bound_of_a_box_is_the_optimum_of_its_relaxation(level: Narrowing) -> None:
    tree = tree_of(level, np.inf)
    assert tree.whole(NO_LIMIT) is not None
    options, types = tree.options, tree.units.shape[1]
    serves = np.equal.outer(np.arange(options.servers), options.place).astype(float)
    for box in tree.branches[:20]:
        assert options.shared.shape[1] == types
        result = linprog(
            options.weight,
            A_ub=np.vstack([tree.units.T, -tree.units.T]),
            b_ub=np.concatenate([box.most, -box.least]),
            A_eq=serves,
            b_eq=np.ones(options.servers),
        )
        assert result.status == 0
        assert box.bound == pytest.approx(result.fun, rel=1e-7)


def test_no_box_is_left_where_no_answer_is_below_the_cutoff(level: Narrowing) -> None:
    best, _ = least_of(level)
    tree = tree_of(level, best - 1e-3)
    while (box := tree.whole(NO_LIMIT)) is not None:
        found = tree.solve(box, 1e-9, NO_LIMIT)
        assert found is None or tree.options.weight[found].sum() >= best - 1e-6
    assert not tree.branches
    assert tree.bound == best - 1e-3


def test_dividing_ends_at_the_least_value(level: Narrowing) -> None:
    best, _ = least_of(level)
    assert level.value > best + 1
    divide_totals(level, Deadline.after(3600))
    assert level.value == pytest.approx(best, rel=2e-6)
    assert level.proved
    assert level.bound <= best * (1 + 1e-9)


def test_a_box_that_there_is_no_time_to_solve_stays_with_a_bound_that_holds(level: Narrowing) -> None:
    best, _ = least_of(level)
    tree = tree_of(level, best + 1000)
    root = tree.best
    assert root is not None
    assert root.open_row is not None
    tree.solve(root, 1e-9, Deadline.after(1e-3))
    assert root.bound - 1e-9 <= tree.bound <= best + 1e-6
    assert tree.branches[0].time_s > root.time_s


def test_a_box_of_more_units_than_any_answer_takes_is_empty(level: Narrowing) -> None:
    tree = tree_of(level, np.inf)
    types = tree.units.shape[1]
    # More than all servers can take of a type together: the most of each server's patterns.
    most = np.zeros((int(tree.options.place.max()) + 1, types))
    np.maximum.at(most, tree.options.place, tree.units)
    row = int(np.argmax(most.sum(axis=0)))
    least = np.zeros(types)
    least[row] = most.sum(axis=0)[row] + 1
    empty = tree._relaxed(least, np.maximum(tree.limits[:types], least), -np.inf, NO_LIMIT)
    assert empty is not None
    assert empty.bound == np.inf


def test_a_box_without_a_ray_of_prices_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    _, level = value_level(SEEDS[0])
    tree = tree_of(level, np.inf)
    monkeypatch.setattr(Ranged, "bound", lambda *_, **__: (0.0, np.zeros(0)))
    types = tree.units.shape[1]
    assert tree._relaxed(tree.limits[:types] * 100, tree.limits[:types] * 100, -np.inf, NO_LIMIT) is None


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_within_limits_is_below_the_bound_of_any_prices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    place = np.repeat(np.arange(5), 3)
    weight, shared = rng.uniform(-5, 20, 15), rng.integers(0, 4, (15, 3)).astype(np.float64)
    options = Ranged(weight, shared, place, 5)
    choices = np.stack(np.meshgrid(*[np.arange(3)] * 5), axis=-1).reshape(-1, 5) + 3 * np.arange(5)
    taken, value = shared[choices].sum(axis=1), weight[choices].sum(axis=1)
    lower, upper = np.array([3.0, -np.inf, 5.0]), np.array([8.0, 7.0, np.inf])
    within = ((taken >= lower) & (taken <= upper)).all(axis=1)
    assert within.any()
    for _ in range(300):
        prices = rng.normal(0, 3, 3)
        bound, over = options.bound(prices, lower, upper)
        assert bound <= value[within].min()
        # An answer with an option is above the bound by what the option is at least.
        for answer in choices[within][:20]:
            assert weight[answer].sum() >= bound + over[answer].max() - 1e-9
    assert np.isinf(Ranged(weight, shared, place, 6).bound(np.zeros(3), lower, upper)[0])


def test_the_prices_of_a_relaxation_prove_its_optimum(level: Narrowing) -> None:
    tree = tree_of(level, np.inf)
    root = tree.best
    assert root is not None
    assert root.bound == pytest.approx(level.root.relaxed.bound, rel=1e-9)


def knapsack() -> MilpModel:
    """Return four options of two servers with six units in all."""
    return MilpModel(
        lower=np.zeros(4),
        upper=np.ones(4),
        integer=np.ones(4, np.bool_),
        row_start=np.array([0, 2, 4, 8]),
        row_index=np.array([0, 1, 2, 3, 0, 1, 2, 3]),
        row_value=np.array([1.0, 1, 1, 1, 1, 4, 1, 4]),
        row_lower=np.array([1.0, 1, -np.inf]),
        row_upper=np.array([1.0, 1, 6]),
    )


WEIGHT = np.array([9.0, 2.0, 8.0, 3.0])
"""The best answer: the second and the third option, 10."""


@pytest.mark.parametrize(("cutoff", "found"), [(np.inf, True), (10.5, True), (10.0, False), (5.0, False)])
def test_nothing_is_claimed_of_points_above_a_cutoff(cutoff: float, found: bool) -> None:  # noqa: FBT001
    result = HighsSession(knapsack()).solve_at_once(WEIGHT, None, 0.0, 10.0, cutoff=cutoff)
    assert result.outcome is not Outcome.time_limit
    better = result.x is not None and WEIGHT @ result.x < cutoff
    assert better == found
    assert result.bound <= cutoff
    if found:
        assert result.bound == pytest.approx(10.0)


def test_no_bound_is_above_a_cutoff(level: Narrowing) -> None:
    best, _ = least_of(level)
    options = np.flatnonzero(level.program.allowed(level.pool.options))
    model = level.program.model(level.pool.options.take(options))
    weight = weight_of(level.program, level.pool)[options]
    for cutoff in (best * 0.99, best + 1e-3, best * 1.01):
        for lean in (True, False):
            result = HighsSession(model, lean=lean).solve_at_once(weight, None, 0.0, 60.0, cutoff=cutoff)
            assert result.bound <= cutoff
            assert result.bound <= best + 1e-6 or best >= cutoff


def test_some_variables_of_a_model_are_the_model_without_the_others() -> None:
    some = np.array([0, 2, 3])
    result = HighsSession(knapsack().only(some)).solve_at_once(WEIGHT[some], None, 0.0, 10.0)
    assert result.x is not None
    # Without the second option: the first, and the fourth.
    assert result.x.tolist() == [1.0, 0.0, 1.0]
    assert knapsack().only(some).row_value.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 4.0]


def test_limits_of_rows_change_and_what_is_infeasible_has_a_ray() -> None:
    lp = RangedLp(knapsack(), WEIGHT)
    loose = lp.minimise(10.0)
    assert loose.outcome is Outcome.optimal
    lp.limit(np.array([2]), np.array([-np.inf]), np.array([8.0]))
    assert lp.minimise(10.0).bound == pytest.approx(5.0)
    lp.limit(np.array([2]), np.array([9.0]), np.array([12.0]))
    none = lp.minimise(10.0)
    assert none.outcome is Outcome.infeasible
    assert none.x is None
    assert none.row_price is not None
    lp.limit(np.array([2]), np.array([-np.inf]), np.array([6.0]))
    assert lp.minimise(10.0).bound == pytest.approx(loose.bound)


def as_large(monkeypatch: pytest.MonkeyPatch) -> list[Box]:
    """Solve small fleets as large ones, divided before any box is solved; return those solved from now on."""
    solved: list[Box] = []
    solve = TotalsTree.solve

    def noted(tree: TotalsTree, box: Box, gap: float, deadline: Deadline) -> object:
        solved.append(box)
        return solve(tree, box, gap, deadline)

    monkeypatch.setattr(narrowing, "FEW_SERVERS", 0)
    monkeypatch.setattr(narrowing, "CORE_SIZES", (5,))
    monkeypatch.setattr(narrowing, "FEW", 0)
    monkeypatch.setattr(TotalsTree, "solve", noted)
    monkeypatch.setattr(TotalsTree, "best", property(lambda tree: tree.whole(NO_LIMIT)))
    return solved


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(k, marks=pytest.mark.slow) for k in range(8, 80))]
)
def test_fleets_divided_by_units_have_the_levels_of_replica_counts(
    seed: int,
    mixed: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_large(monkeypatch)
    tightness = 1.0 + 0.1 * (seed % 5)
    system = generate_system(20, 8, 4, seed, tightness).with_options(heterogeneous=mixed, gap=1e-7)
    problem = build_problem(find_candidates(system))
    priced, counted = solve_patterns(problem), solve_milp(problem, HighsSession)
    assert priced.status is counted.status is Status.optimal
    for mine, other in zip(priced.levels, counted.levels, strict=True):
        assert mine.value == pytest.approx(other.value, rel=1e-6, abs=1e-6), mine.name


def test_such_fleets_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = as_large(monkeypatch)
    for seed in range(8):
        system = generate_system(20, 8, 4, seed, 1.0 + 0.1 * (seed % 5)).with_options(heterogeneous=True)
        solve_patterns(build_problem(find_candidates(system)))
    assert len(solved) >= 3
    assert any((box.least > 0).any() for box in solved)


@pytest.mark.parametrize(("gap", "solves"), [(0.1, 1), (1e-6, 2)])
def test_a_larger_core_follows_where_a_value_is_far_above_its_bound_and_not_proved(
    gap: float, solves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, level = value_level(151)
    level.small, level.target = False, Target(gap, 0.0)
    solve, solved = level._solve, []

    def noted(options: IntArray, time_s: float) -> object:
        solved.append(len(options))
        return solve(options, time_s)

    monkeypatch.setattr(level, "_solve", noted)
    monkeypatch.setattr(narrowing, "CORE_SIZES", (60, 8_000))
    monkeypatch.setattr(narrowing, "FEW", 0)
    monkeypatch.setattr(narrowing, "FAR", 0.1)
    assert not level.proved
    level.core(NO_LIMIT)
    assert level.proved == (gap > 0.01)
    assert len(solved) == solves
    assert solved == sorted(solved)
