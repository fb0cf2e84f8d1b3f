"""Servers that are wholly served or left out: against HiGHS over every pattern, and prices that prove."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from mixed_oracles import random_mixed_document

from optimizer import find_candidates, load_system
from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.generate import generate_system
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import HighsSession
from optimizer.solvers.milp import solve_milp
from optimizer.solvers.model import Outcome
from optimizer.solvers.patterns.branching import Branch, Tree, left_out_of
from optimizer.solvers.patterns.packing import packing_of
from optimizer.solvers.patterns.parts import parts_of
from optimizer.solvers.patterns.pool import Pool, pool_of
from optimizer.solvers.patterns.program import Measure, Pin, Program, Rule
from optimizer.solvers.patterns.relaxation import Relaxation
from optimizer.solvers.patterns.solve import solve_patterns
from optimizer.solvers.patterns.target import Target
from optimizer.solvers.problem import Status, build_problem

NO_LIMIT = Deadline.after(1e6)
MIXING = (5, 14, 21, 28, 42, 45, 53, 57)
"""Fleets of which whole servers leave less unserved if they may mix patterns."""


@cache
def last_level(seed: int) -> tuple[Program, Pool]:
    """Return the last priority of a scarce fleet, whose pool holds every pattern of every server."""
    system = generate_system(12, 8, 3, seed, 2.4).with_options(heterogeneous=True)
    problem = build_problem(find_candidates(system))
    parts = parts_of(problem)
    pool = pool_of(problem, parts)
    everyone = np.ones(len(problem.priority), np.bool_)
    rate = np.sum([level.weight for level in problem.service[::2]], axis=0)
    program = Program(parts, Measure("rate", rate), (), everyone, ~everyone, ~everyone)
    limit = np.full(len(everyone), np.inf)
    below = pool.below(program, np.zeros(len(parts.limit)), limit)
    assert below.complete
    pool.add(below.options)
    return program, pool


def root_of(program: Program, pool: Pool) -> Branch:
    relaxed = Relaxation(program, pool, nothing_of(pool)).solve(program, NO_LIMIT)
    assert relaxed is not None
    return Branch(program, relaxed, relaxed.bound)


def nothing_of(pool: Pool) -> IntArray:
    return np.flatnonzero(~pool.options.served)


def branches_of(root: Branch, pool: Pool, cutoff: float, deadline: Deadline = NO_LIMIT) -> list[Branch]:
    tree = Tree(root, pool, nothing_of(pool), cutoff)
    tree.grow(deadline)
    return tree.branches


def divided(branch: Branch, pool: Pool) -> int | None:
    """Return the server of which the part left out is the nearest to one half, unless all are whole."""
    part = left_out_of(branch, pool)
    server = int(np.argmin(np.abs(part - 0.5)))
    return server if 1e-6 < part[server] < 1 - 1e-6 else None


def best_of(program: Program, pool: Pool, whole: BoolArray) -> float:
    """Return the least of a level over every pattern, as a model in HiGHS.

    Args:
        program: the level.
        pool: every pattern.
        whole: the options that may not be taken in parts, shape (P,).
    """
    model = replace(program.model(pool.options), integer=whole)
    result = HighsSession(model).solve_at_once(weight_of(program, pool), None, 0.0, 60.0)
    assert result.outcome is Outcome.optimal
    return result.bound


def best_of_whole_servers(program: Program, pool: Pool) -> float:
    """Return the least if patterns may be taken in parts, but servers are left out whole."""
    return best_of(program, pool, ~pool.options.served)


def best_of_patterns(program: Program, pool: Pool) -> float:
    """Return the least if every server takes one pattern."""
    return best_of(program, pool, np.ones(len(pool.options), np.bool_))


def weight_of(program: Program, pool: Pool) -> FloatArray:
    return program.measure.of(pool.options)


@pytest.mark.parametrize("seed", range(8))
def test_branches_end_at_the_least_that_whole_servers_leave_unserved(seed: int) -> None:
    program, pool = last_level(seed)
    root, best = root_of(program, pool), best_of_whole_servers(program, pool)
    found = branches_of(root, pool, np.inf)
    assert divided(found[0], pool) is None
    assert found[0].bound == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert root.bound <= found[0].bound * (1 + 1e-9)
    assert [branch.bound for branch in found] == sorted(branch.bound for branch in found)


def test_some_of_these_relaxations_leave_out_parts_of_servers() -> None:
    gains = [best_of_whole_servers(*last_level(seed)) - root_of(*last_level(seed)).bound for seed in range(8)]
    assert sum(gain > 1 for gain in gains) >= 4


@pytest.mark.parametrize("seed", range(8))
def test_no_branch_is_left_where_nothing_is_below_the_cutoff_and_one_is_where_something_is(seed: int) -> None:
    program, pool = last_level(seed)
    root, best = root_of(program, pool), best_of_whole_servers(program, pool)
    assert not branches_of(root, pool, best * (1 - 1e-6))
    assert branches_of(root, pool, best * (1 + 1e-6))


def test_a_tree_that_has_no_time_is_the_level_itself() -> None:
    program, pool = last_level(0)
    root = root_of(program, pool)
    assert branches_of(root, pool, np.inf, Deadline.after(0)) == [root]


def test_a_branch_without_a_server_takes_nothing_else_for_it_and_one_with_it_a_pattern() -> None:
    program, pool = last_level(0)
    server = divided(root_of(program, pool), pool)
    assert server is not None
    mine = pool.options.server == server
    for served in (False, True):
        branch = program.branch(server, served=served)
        assert (pool.options.served[branch.allowed(pool.options) & mine] == served).all()
        limit = np.full(len(program.in_play), np.inf)
        found = pool.below(branch, np.zeros(len(program.limits)), limit).options
        assert (server in found.server) is served
        assert branch.branch(server + 1, served=served).allowed(pool.options)[mine].any()


@pytest.mark.parametrize("times", [1.0, 1e3, 1e6])
def test_a_branch_that_no_answer_is_in_is_priced_above_any_cutoff(times: float) -> None:
    """One server is left out, which a limit of large weights does not allow."""
    program, pool = last_level(0)
    rate = program.measure.on_nothing
    server = int(np.argmax(rate))
    pinned = Pin(Measure("pinned", np.where(rate > 0, 1e6, 0.0)), 0.5)
    counted = replace(program, measure=Measure("count", (rate > 0).astype(np.float64)), pins=(pinned,))
    branch = counted.branch(server, served=False)
    relaxed = Relaxation(counted, pool, nothing_of(pool)).solve(branch, NO_LIMIT, times)
    assert relaxed is not None
    assert relaxed.bound >= times


def test_no_branch_is_divided_by_the_same_server_twice() -> None:
    """Half of a server that is left out, the other half missing: no pattern and not nothing either."""
    program, pool = last_level(0)
    root = root_of(program, pool)
    server = int(program.servers[0])
    half = replace(root.relaxed, used=nothing_of(pool)[:1], part=np.array([0.5]), served=False)
    assert pool.options.server[half.used] == [server]
    tree = Tree(root, pool, nothing_of(pool), np.inf)
    assert tree.division(replace(root, relaxed=half)) is not None
    for served in (False, True):
        branch = Branch(program.branch(server, served=served), half, root.bound)
        assert tree.division(branch) is None


def test_columns_of_another_branch_come_back() -> None:
    """One relaxation for all branches gives what a fresh one gives, in any order."""
    program, pool = last_level(0)
    shared = Relaxation(program, pool, nothing_of(pool))
    server = divided(root_of(program, pool), pool)
    assert server is not None
    branches = [program.branch(server, served=False), program.branch(server, served=True)]
    for branch in [*branches, *branches[::-1], program]:
        fresh = Relaxation(branch, pool, nothing_of(pool)).solve(branch, NO_LIMIT)
        again = shared.solve(branch, NO_LIMIT)
        assert again is not None
        assert fresh is not None
        assert again.bound == pytest.approx(fresh.bound, rel=1e-9, abs=1e-6)


# --- one pattern for each server -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", MIXING)
def test_patterns_that_are_whole_end_at_the_best_answer(seed: int) -> None:
    """From no answer at all, and with the best one known: the bound comes as near as the target asks."""
    program, pool = last_level(seed)
    best, every = best_of_patterns(program, pool), np.arange(len(pool.options))
    assert best > best_of_whole_servers(program, pool) + 1
    target = Target(0.0, 1.0)
    tree = packing_of(program, pool, every, target, float(program.measure.on_nothing.sum()) + 1, NO_LIMIT)
    assert tree is not None
    tree.grow(NO_LIMIT)
    assert not tree.branches
    assert tree.chosen is not None
    chosen = pool.options.take(tree.chosen)
    assert (np.sort(chosen.server) == program.servers).all()
    assert (program.shared(chosen).sum(axis=0) <= program.limits).all()
    assert weight_of(program, pool)[tree.chosen].sum() == pytest.approx(best, abs=1e-6)
    assert best - 1 <= tree.bound <= best
    proof = packing_of(program, pool, every, target, best, NO_LIMIT)
    assert proof is not None
    proof.grow(NO_LIMIT)
    assert not proof.branches
    assert proof.chosen is None


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_packing_finds_and_proves_what_replica_counts_do(
    seed: int,
    mixed: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With every rule on and off, and nothing but the branches to find an answer."""
    monkeypatch.setattr("optimizer.solvers.patterns.narrowing.PACKED_OPTIONS", 0)
    monkeypatch.setattr("optimizer.solvers.patterns.narrowing.CORE_SIZES", (0,))
    system = load_system(random_mixed_document(seed)).with_options(heterogeneous=mixed, unlimited=False)
    problem = build_problem(find_candidates(system))
    found, other = solve_patterns(problem), solve_milp(problem, HighsSession)
    assert found.status is other.status is Status.optimal
    for mine, theirs in zip(found.levels, other.levels, strict=True):
        assert mine.value == pytest.approx(theirs.value, rel=1e-8, abs=1e-6), mine.name


def test_a_rule_leaves_what_keeps_it_and_all_of_other_servers() -> None:
    program, pool = last_level(0)
    options, server = pool.options, int(program.servers[0])
    mine = options.server == server
    row = int(np.argmax((options.units[mine] > 0).any(axis=0)))
    part = int(options.part[np.flatnonzero(mine)[np.argmax(options.count[mine].max(axis=1))]].max())
    replicas = (options.count * (options.part == part)).sum(axis=1)
    for rule, taken in (
        (Rule(server, most=0, row=row), options.units[:, row]),
        (Rule(server, least=1, row=row), options.units[:, row]),
        (Rule(server, most=0, part=part), replicas),
        (Rule(server, least=1, part=part), replicas),
    ):
        left = program.ruled(rule).allowed(options)
        assert left[~mine].all()
        assert (left[mine] == ((taken >= rule.least) & (taken <= rule.most))[mine]).all()
        assert 0 < left[mine].sum() < mine.sum()
