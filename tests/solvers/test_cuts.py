"""Cuts of scarce levels: they hold for every answer, and leave the best one with what it needs."""

from itertools import combinations

import numpy as np
import pytest
from patience import until
from slow_cases import mostly_slow
from test_nodes import MIXING, NO_LIMIT, best_of_patterns, last_level, nothing_of, only, root_of, weight_of

from optimizer import find_candidates
from optimizer.arrays import IntArray
from optimizer.generate import generate_system
from optimizer.solvers.branch_and_price.cuts import with_cuts
from optimizer.solvers.branch_and_price.generation import generate_columns
from optimizer.solvers.branch_and_price.master import ChvatalGomoryCut, MasterProblem
from optimizer.solvers.branch_and_price.nodes import BranchTree, reduced_cost_slack
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.branch_and_price.pricing import MAX_FOUND
from optimizer.solvers.branch_and_price.search import MAX_KNOWN, LevelSearch
from optimizer.solvers.branch_and_price.solve import ColumnGeneration
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import build_problem
from optimizer.solvers.warm_starts import best_initial_solution

SEEDS = (*MIXING, 0, 1, 2, 3)


def answers(master: MasterProblem, pool: ColumnPool, count: int) -> list[IntArray]:
    """Return answers that take what fits, server by server in random order, and then nothing."""
    rng, found = np.random.default_rng(0), []
    options = pool.columns
    for _ in range(count):
        left, chosen = master.candidates.amount.copy(), []
        for server in rng.permutation(master.servers):
            mine = np.flatnonzero(options.server == server)
            fits = mine[(options.use[mine] <= left).all(axis=1) & options.served[mine]]
            none = mine[~options.served[mine]]
            chosen.append(int(rng.choice(fits if len(fits) else none)))
            left -= options.use[chosen[-1]]
        found.append(np.array(chosen))
    return found


def cuts_of(limit: np.ndarray) -> list[ChvatalGomoryCut]:
    """Return all cuts of one row and of two."""
    rows = range(len(limit))
    some = [(k,) for k in rows] + list(combinations(rows, 2))
    return [ChvatalGomoryCut(each, d) for each in some for d in range(2, int(limit[list(each)].sum()) + 2)]


@pytest.mark.parametrize("seed", range(4))
def test_every_solution_satisfies_every_cut_and_some_are_tight(seed: int) -> None:
    master, pool = last_level(seed)
    limit = master.candidates.amount
    chosen = answers(master, pool, 40)
    full = 0
    for cut in cuts_of(limit):
        taken = [cut.of(pool.columns.use[each]).sum() for each in chosen]
        assert max(taken) <= cut.most(limit)
        full += max(taken) == cut.most(limit)
    assert full > 5


def test_parts_of_patterns_can_break_a_cut() -> None:
    cut = ChvatalGomoryCut((0,), 3)
    units = np.array([[3.0], [2.0]])
    assert cut.of(units).tolist() == [1.0, 0.0]
    assert cut.most(np.array([5.0])) == 1.0
    # Five thirds of a pattern of three units fit into five units, but keep to the cut only once.
    assert 5 / 3 * cut.of(units)[0] > cut.most(np.array([5.0]))


@pytest.mark.parametrize("seed", mostly_slow(SEEDS[::-1], 7))
def test_a_tightened_relaxation_stays_below_the_optimum(seed: int) -> None:
    master, pool = last_level(seed)
    best, every = best_of_patterns(master, pool), np.arange(len(pool.columns))
    found = with_cuts(master, pool, every, best + 1, NO_LIMIT)
    assert found is not None
    assert found.columns is not None
    assert root_of(master, pool).bound - 1e-6 <= found.bound <= best + 1e-6
    assert best_of_patterns(found.master, only(pool, found.columns)) == pytest.approx(best, abs=1e-6)
    assert np.isin(found.relaxed.used, found.columns).all()
    used = pool.columns.take(found.relaxed.used)
    mean = np.bincount(used.server, found.relaxed.part, len(master.active))
    assert mean[master.servers] == pytest.approx(1.0, abs=1e-6)


def test_cuts_raise_bounds_of_relaxations_that_mix_patterns() -> None:
    raised = []
    for seed in MIXING:
        master, pool = last_level(seed)
        root, best = root_of(master, pool), best_of_patterns(master, pool)
        found = with_cuts(master, pool, np.arange(len(pool.columns)), best, NO_LIMIT)
        assert found is not None
        raised.append((found.bound - root.bound) / (best - root.bound))
    assert sum(part > 0.2 for part in raised) >= 4


@pytest.mark.parametrize("seed", mostly_slow(MIXING, 4))
def test_nodes_of_a_tightened_level_contain_the_optimum(seed: int) -> None:
    master, pool = last_level(seed)
    best = best_of_patterns(master, pool)
    for cutoff, is_below in ((best * (1 + 1e-6) + 1e-6, True), (root_of(master, pool).bound, False)):
        found = with_cuts(master, pool, np.arange(len(pool.columns)), cutoff, NO_LIMIT)
        assert found is not None
        tree = BranchTree(found, pool, cutoff)
        tree.grow(NO_LIMIT)
        assert bool(tree.nodes) is is_below
        assert tree.bound <= best * (1 + 1e-6) + 1e-6


def test_without_time_there_are_no_cuts() -> None:
    master, pool = last_level(MIXING[0])
    assert with_cuts(master, pool, np.arange(len(pool.columns)), np.inf, Deadline.after(0)) is None


def test_a_dropped_column_is_in_no_solution_below_the_cutoff() -> None:
    """Forced into the model, each makes the best answer no better than the cutoff."""
    dropped = 0
    for seed in MIXING[:3]:
        master, pool = last_level(seed)
        cutoff = best_of_patterns(master, pool) + 1
        found = with_cuts(master, pool, np.arange(len(pool.columns)), cutoff, NO_LIMIT)
        assert found is not None
        assert found.columns is not None
        gone = np.setdiff1d(np.arange(len(pool.columns)), found.columns)
        dropped += len(gone)
        for option in gone[:: max(len(gone) // 5, 1)]:
            others = pool.columns.server != pool.columns.server[option]
            others[option] = True
            alone = only(pool, np.flatnonzero(others))
            assert best_of_patterns(master, alone) >= cutoff - 1e-6
            assert len(weight_of(master, alone)) < len(pool.columns)
    assert dropped > 100


def scarce_search(gap: float = 1e-4) -> LevelSearch:
    """Return the search of the value of a fleet that can serve all, from the greedy plan."""
    system = generate_system(20, 12, 12, 12, 1.6).with_options(heterogeneous=True, gap=gap)
    problem = build_problem(find_candidates(system))
    solver = ColumnGeneration(problem, NO_LIMIT, [best_initial_solution(problem)])
    solver.restart()
    objective = problem.objectives[-2]
    master = MasterProblem(
        solver.pool.candidates, objective, (), solver.forced_served, solver.forced_unserved
    )
    relaxed = generate_columns(master, solver.pool, nothing_of(solver.pool), NO_LIMIT)
    assert relaxed is not None
    return LevelSearch(solver, master, solver.pool, relaxed)


def test_every_window_is_enumerated_by_itself() -> None:
    search, known = scarce_search(), []
    for window in (30.0, 150.0, 400.0):
        assert search._enumerate(window)
        known.append(len(search.pool.columns))
        _, least = reduced_cost_slack(search.root, search.pool)
        again = search.pool.price_columns(search.master, search.root.relaxed.duals, least + window - 1e-6)
        search.pool.add(again.columns)
        assert len(search.pool.columns) == known[-1]
    assert known[-1] > known[0]


@pytest.mark.parametrize("few", [True, False])
def test_no_more_columns_are_enumerated_than_there_is_time_for(
    few: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search, wanted = scarce_search(), []
    search.small = few

    def noted(_window: float, most: int = MAX_FOUND, _of: object = None) -> bool:
        wanted.append(most)
        return False

    monkeypatch.setattr(search, "_enumerate", noted)

    def looked_for() -> bool:
        search.branch(Deadline.after(0.04))
        search.solve_window(Deadline.after(0.04), only_complete=False)
        return bool(wanted)

    until(looked_for)  # a busy machine may let the time pass before anything is looked for
    assert max(wanted) <= MAX_KNOWN
