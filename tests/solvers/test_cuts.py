"""Cuts of scarce levels: they hold for every answer, and leave the best one with what it needs."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from patience import until
from test_branching import MIXING, NO_LIMIT, best_of_patterns, last_level, root_of, weight_of

from optimizer import find_candidates
from optimizer.arrays import IntArray
from optimizer.generate import generate_system
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import VALUE
from optimizer.solvers.patterns.branching import Tree, over_of
from optimizer.solvers.patterns.cuts import tightened
from optimizer.solvers.patterns.narrowing import MANY, Narrowing
from optimizer.solvers.patterns.pool import Below, Pool, reduced_costs
from optimizer.solvers.patterns.program import Cut, Measure, Program
from optimizer.solvers.patterns.run import Run
from optimizer.solvers.patterns.search import MOST_FOUND
from optimizer.solvers.patterns.steps import Step, service_steps
from optimizer.solvers.patterns.target import Target
from optimizer.solvers.problem import build_problem

SEEDS = (*MIXING, 0, 1, 2, 3)


def answers(program: Program, pool: Pool, count: int) -> list[IntArray]:
    """Return answers that take what fits, server by server in random order, and then nothing."""
    rng, found = np.random.default_rng(0), []
    options = pool.options
    for _ in range(count):
        left, chosen = program.parts.limit.copy(), []
        for server in rng.permutation(program.servers):
            mine = np.flatnonzero(options.server == server)
            fits = mine[(options.units[mine] <= left).all(axis=1) & options.served[mine]]
            none = mine[~options.served[mine]]
            chosen.append(int(rng.choice(fits if len(fits) else none)))
            left -= options.units[chosen[-1]]
        found.append(np.array(chosen))
    return found


def cuts_of(limit: np.ndarray) -> list[Cut]:
    """Return all cuts of one row and of two."""
    rows = range(len(limit))
    some = [(k,) for k in rows] + list(combinations(rows, 2))
    return [Cut(each, d) for each in some for d in range(2, int(limit[list(each)].sum()) + 2)]


@pytest.mark.parametrize("seed", range(4))
def test_every_answer_keeps_every_cut_and_some_answers_all_that_it_allows(seed: int) -> None:
    program, pool = last_level(seed)
    limit = program.parts.limit
    chosen = answers(program, pool, 40)
    full = 0
    for cut in cuts_of(limit):
        taken = [cut.of(pool.options.units[each]).sum() for each in chosen]
        assert max(taken) <= cut.most(limit)
        full += max(taken) == cut.most(limit)
    assert full > 5


def test_parts_of_patterns_can_break_a_cut() -> None:
    cut = Cut((0,), 3)
    units = np.array([[3.0], [2.0]])
    assert cut.of(units).tolist() == [1.0, 0.0]
    assert cut.most(np.array([5.0])) == 1.0
    # Five thirds of a pattern of three units fit into five units, but keep to the cut only once.
    assert 5 / 3 * cut.of(units)[0] > cut.most(np.array([5.0]))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tightened_relaxation_is_between_the_first_one_and_the_best_answer(seed: int) -> None:
    program, pool = last_level(seed)
    best, every = best_of_patterns(program, pool), np.arange(len(pool.options))
    found = tightened(program, pool, every, best + 1, NO_LIMIT)
    assert found is not None
    branch, options = found.root, found.options
    assert root_of(program, pool).bound - 1e-6 <= branch.bound <= best + 1e-6
    assert best_of_patterns(branch.program, pool.only(options)) == pytest.approx(best, abs=1e-6)
    used = pool.only(options).options.take(branch.relaxed.used)
    mean = np.bincount(used.server, branch.relaxed.part, len(program.in_play))
    assert mean[program.servers] == pytest.approx(1.0, abs=1e-6)


def test_cuts_raise_the_bound_of_fleets_whose_relaxations_mix_patterns() -> None:
    raised = []
    for seed in MIXING:
        program, pool = last_level(seed)
        root, best = root_of(program, pool), best_of_patterns(program, pool)
        found = tightened(program, pool, np.arange(len(pool.options)), best, NO_LIMIT)
        assert found is not None
        raised.append((found.root.bound - root.bound) / (best - root.bound))
    assert sum(part > 0.2 for part in raised) >= 4


@pytest.mark.parametrize("seed", MIXING)
def test_branches_of_a_tightened_level_leave_none_below_the_best_answer(seed: int) -> None:
    program, pool = last_level(seed)
    best = best_of_patterns(program, pool)
    for cutoff, is_below in ((best * (1 + 1e-6) + 1e-6, True), (root_of(program, pool).bound, False)):
        found = tightened(program, pool, np.arange(len(pool.options)), cutoff, NO_LIMIT)
        assert found is not None
        tree = Tree(found.root, found.pool, found.start, cutoff)
        tree.grow(NO_LIMIT)
        assert bool(tree.branches) is is_below
        assert tree.bound <= best * (1 + 1e-6) + 1e-6


def test_without_rounds_or_time_a_level_is_as_it_was() -> None:
    program, pool = last_level(MIXING[0])
    every = np.arange(len(pool.options))
    found = tightened(program, pool, every, np.inf, NO_LIMIT, rounds=0)
    assert found is not None
    assert found.root.bound == pytest.approx(root_of(program, pool).bound)
    assert not found.root.program.cuts
    assert tightened(program, pool, every, np.inf, Deadline.after(0)) is None


def test_an_option_that_is_dropped_is_in_no_answer_below_the_cutoff() -> None:
    """Forced into the model, each makes the best answer no better than the cutoff."""
    dropped = 0
    for seed in MIXING[:3]:
        program, pool = last_level(seed)
        cutoff = best_of_patterns(program, pool) + 1
        found = tightened(program, pool, np.arange(len(pool.options)), cutoff, NO_LIMIT)
        assert found is not None
        gone = np.setdiff1d(np.arange(len(pool.options)), found.options)
        dropped += len(gone)
        for option in gone[:: max(len(gone) // 5, 1)]:
            others = pool.options.server != pool.options.server[option]
            others[option] = True
            alone = pool.only(np.flatnonzero(others))
            assert best_of_patterns(program, alone) >= cutoff - 1e-6
            assert len(weight_of(program, alone)) < len(pool.options)
    assert dropped > 100


def scarce_run() -> Run:
    system = generate_system(20, 12, 12, 12, 1.6).with_options(heterogeneous=True)
    return Run(build_problem(find_candidates(system)), NO_LIMIT, None, None)


def test_every_room_is_searched_by_itself() -> None:
    run = scarce_run()
    program, known = run.program(Step(Measure(VALUE, np.zeros(run.servers), on_value=1.0), 0.0)), []
    relaxed = run.relaxed(program, NO_LIMIT)
    assert relaxed is not None
    narrowing = Narrowing(program, run.pool, relaxed, run.incumbent, Target(1e-4, 1.0))
    for room in (30.0, 150.0, 400.0):
        assert narrowing._enumerate(room)
        known.append(len(run.pool.options))
        _, least = over_of(narrowing.root, run.pool)
        below = run.pool.below(program, relaxed.prices, least + room - 1e-6)
        before = len(run.pool.options)
        run.pool.add(below.options)
        assert len(run.pool.options) == before
    assert known[-1] > known[0]


def test_a_room_of_too_many_patterns_is_searched_again_only_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    run, searches = scarce_run(), []
    program = run.program(Step(Measure(VALUE, np.zeros(run.servers), on_value=1.0), 0.0))
    relaxed = run.relaxed(program, NO_LIMIT)
    assert relaxed is not None
    narrowing = Narrowing(program, run.pool, relaxed, run.incumbent, Target(1e-4, 1.0))
    below = run.pool.below

    def counted(*arguments: Any) -> Below:
        searches.append(arguments)
        return below(*arguments)

    monkeypatch.setattr(run.pool, "below", counted)
    assert not narrowing._enumerate(400.0, 50)
    assert not narrowing._enumerate(400.0, 50)
    assert not narrowing._enumerate(500.0, 20)
    assert len(searches) == 1
    assert narrowing._enumerate(30.0, 50)
    assert narrowing._enumerate(400.0)
    assert len(searches) == 3


@pytest.mark.parametrize("few", [True, False])
def test_no_more_patterns_are_looked_for_than_there_is_time_for(
    few: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, wanted = scarce_run(), []
    program = run.program(Step(Measure(VALUE, np.zeros(run.servers), on_value=1.0), 0.0))
    relaxed = run.relaxed(program, NO_LIMIT)
    assert relaxed is not None
    narrowing = Narrowing(program, run.pool, relaxed, run.incumbent, Target(1e-4, 1.0))
    narrowing.small = few

    def noted(_room: float, most: int = MOST_FOUND, _of: object = None) -> bool:
        wanted.append(most)
        return False

    monkeypatch.setattr(narrowing, "_enumerate", noted)

    def looked_for() -> bool:
        narrowing.branch(run.start_options, Deadline.after(0.04))
        narrowing.rooms(Deadline.after(0.04))
        return bool(wanted)

    until(looked_for)  # a busy machine may let the time pass before anything is looked for
    assert max(wanted) <= MANY


def test_no_search_follows_the_prices_of_cuts() -> None:
    """A level over the options that count is one whose room needs none, whatever the rounding of the room."""
    system = generate_system(12, 8, 3, MIXING[3], 2.4).with_options(heterogeneous=True)
    run = Run(build_problem(find_candidates(system)), NO_LIMIT, None, None)
    program = run.program(service_steps(run.problem, run.columnless)[-1])
    relaxed = run.relaxed(program, NO_LIMIT)
    assert relaxed is not None
    narrowing = Narrowing(program, run.pool, relaxed, run.incumbent, Target(1e-4, 1.0))
    assert narrowing._enumerate(narrowing._wanted())
    options = np.flatnonzero(narrowing.reduced <= narrowing._wanted())
    cutoff = narrowing.target.cutoff(narrowing.value)
    level = tightened(program, run.pool, options, cutoff, NO_LIMIT)
    assert level is not None
    assert level.root.program.cuts
    narrowing.branches = [level.root.among(level.options)]
    narrowing._extend()
    narrowing.known = np.nextafter(narrowing.floor + narrowing._wanted(), -np.inf)
    assert narrowing._enumerate(narrowing._wanted())


def test_servers_of_which_only_lighter_patterns_were_looked_for_have_a_floor() -> None:
    run = scarce_run()
    program = run.program(service_steps(run.problem, run.columnless)[-1])
    rng = np.random.default_rng(1)
    prices = rng.uniform(0, 100, len(program.limits))
    limit = np.full(len(program.in_play), np.inf)
    every = run.pool.below(program, prices, limit)
    few = run.pool.below(program, prices, limit, enough=0)
    assert every.complete
    assert not few.complete
    least = np.full(len(limit), np.inf)
    np.minimum.at(least, every.options.server, reduced_costs(program, every.options, prices))
    searched = np.isfinite(few.floor)
    assert searched.sum() > 10
    assert (few.floor[searched] <= least[searched] + 1e-9).all()
