"""Trees of whole servers, and cuts: against HiGHS over every pattern."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from slow_cases import mostly_slow, seeds

from optimizer import find_candidates
from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import RunStatus
from optimizer.solvers.branch_and_price.cuts import with_cuts
from optimizer.solvers.branch_and_price.generation import generate_columns
from optimizer.solvers.branch_and_price.master import ChvatalGomoryCut, MasterProblem
from optimizer.solvers.branch_and_price.nodes import BranchTree, Node, _fractional_server, unserved_fractions
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.objectives import LevelObjective
from optimizer.solvers.problem import build_problem

NO_LIMIT = Deadline.after(1e6)
MIXING = (5, 14, 21, 28, 42, 45, 53, 57)
"""Fleets of which whole servers leave less unserved if they may mix patterns."""


@cache
def last_level(seed: int) -> tuple[MasterProblem, ColumnPool]:
    """Return the last priority of a scarce fleet, whose pool holds every pattern of every server."""
    system = generate_system(12, 8, 3, seed, 2.4).with_options(heterogeneous=True)
    problem = build_problem(find_candidates(system))
    pool = ColumnPool.of(problem)
    everyone = np.ones(len(problem.priority), np.bool_)
    rate = np.sum([level.on_unserved for level in problem.objectives[::2]], axis=0)
    master = MasterProblem(pool.candidates, LevelObjective("rate", rate, everyone), (), ~everyone, ~everyone)
    limit = np.full(len(everyone), np.inf)
    below = pool.price_columns(master, np.zeros(len(pool.candidates.amount)), limit)
    assert below.complete
    pool.add(below.columns)
    return master, pool


def root_of(master: MasterProblem, pool: ColumnPool) -> Node:
    relaxed = generate_columns(master, pool, nothing_of(pool), NO_LIMIT)
    assert relaxed is not None
    return Node.root(master, relaxed)


def only(pool: ColumnPool, rows: IntArray) -> ColumnPool:
    """Return a pool of some of the columns."""
    return ColumnPool(pool.problem, pool.candidates, pool.columns.take(rows), pool.subproblems)


def nothing_of(pool: ColumnPool) -> IntArray:
    return np.flatnonzero(~pool.columns.served)


def branches_of(root: Node, pool: ColumnPool, cutoff: float, deadline: Deadline = NO_LIMIT) -> list[Node]:
    tree = BranchTree(root, pool, cutoff)
    tree.grow(deadline)
    return tree.nodes


def divided(branch: Node, pool: ColumnPool) -> int | None:
    """Return the server of which the part left out is the nearest to one half, unless all are whole."""
    part = unserved_fractions(branch, pool)
    server = int(np.argmin(np.abs(part - 0.5)))
    return server if 1e-6 < part[server] < 1 - 1e-6 else None


def best_of(master: MasterProblem, pool: ColumnPool, whole: BoolArray) -> float:
    """Return the least of a level over every pattern, as a model in HiGHS.

    Args:
        master: the level.
        pool: every pattern.
        whole: the options that may not be taken in candidates, shape (P,).
    """
    model = replace(master.model(pool.columns), integer=whole)
    result = HighsSession(model).minimise(weight_of(master, pool), None, 0.0, 60.0)
    assert result.outcome is RunStatus.optimal
    return result.bound


def best_of_whole_servers(master: MasterProblem, pool: ColumnPool) -> float:
    """Return the least if patterns may be taken in candidates, but servers are left out whole."""
    return best_of(master, pool, ~pool.columns.served)


def best_of_patterns(master: MasterProblem, pool: ColumnPool) -> float:
    """Return the least if every server takes one pattern."""
    return best_of(master, pool, np.ones(len(pool.columns), np.bool_))


def weight_of(master: MasterProblem, pool: ColumnPool) -> FloatArray:
    return pool.columns.weights(master.objective)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_nodes_stop_at_the_least_unserved_of_integer_servers(seed: int) -> None:
    master, pool = last_level(seed)
    root, best = root_of(master, pool), best_of_whole_servers(master, pool)
    found = branches_of(root, pool, np.inf)
    assert divided(found[0], pool) is None
    assert found[0].bound == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert root.bound <= found[0].bound * (1 + 1e-9)
    assert [branch.bound for branch in found] == sorted(branch.bound for branch in found)


@pytest.mark.slow
def test_some_of_these_relaxations_leave_out_parts_of_servers() -> None:
    gains = [best_of_whole_servers(*last_level(seed)) - root_of(*last_level(seed)).bound for seed in range(8)]
    assert sum(gain > 1 for gain in gains) >= 4


def test_no_relaxation_trades_a_server_for_lower_priorities() -> None:
    """Its cards would serve many servers of the last priority, but it must be served."""
    every, pool = last_level(5)
    lowest = pool.problem.priority == pool.problem.priority.max()
    weight = np.where(lowest, every.objective.on_unserved, 0.0)
    master = replace(every, objective=replace(every.objective, on_unserved=weight), forced_served=~lowest)
    some = only(pool, np.flatnonzero(master.allowed(pool.columns)))
    fractional = HighsSession(master.model(some.columns)).relax(weight_of(master, some), 60.0)
    root = root_of(master, pool)
    assert root.relaxed.feasible
    assert root.bound == pytest.approx(fractional.bound)


def test_a_tree_that_has_no_time_is_the_level_itself() -> None:
    master, pool = last_level(0)
    root = root_of(master, pool)
    assert branches_of(root, pool, np.inf, Deadline.after(0)) == [root]


def test_no_branch_is_divided_by_the_same_server_twice() -> None:
    """Half of a server that is left out, the other half missing: no pattern and not nothing either."""
    master, pool = last_level(0)
    root = root_of(master, pool)
    server = int(master.servers[0])
    half = replace(root.relaxed, used=nothing_of(pool)[:1], part=np.array([0.5]), feasible=False)
    assert pool.columns.server[half.used] == [server]
    assert _fractional_server(replace(root, relaxed=half), pool) == server
    for served in (False, True):
        branch = Node(master.branch(server, served=served), half, root.bound)
        assert _fractional_server(branch, pool) is None


SEEDS = (*MIXING, 0, 1, 2, 3)


def test_parts_of_patterns_can_break_a_cut() -> None:
    cut = ChvatalGomoryCut((0,), 3)
    units = np.array([[3.0], [2.0]])
    assert cut.of(units).tolist() == [1.0, 0.0]
    assert cut.most(np.array([5.0])) == 1.0
    # Five thirds of a pattern of three units fit into five units, but keep to the cut only once.
    assert 5 / 3 * cut.of(units)[0] > cut.most(np.array([5.0]))


@pytest.mark.few(2)
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", mostly_slow(MIXING, 2))
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
