"""Servers that are wholly served or left out: against HiGHS over every pattern, and prices that prove."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from optimizer import find_candidates
from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.milp.model import RunStatus
from optimizer.solvers.branch_and_price.generation import RestrictedMaster
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.nodes import BranchTree, Node, _fractional_server, unserved_fractions
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.objectives import LevelConstraint, LevelObjective
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
    relaxed = RestrictedMaster(master, pool, nothing_of(pool)).solve(master, NO_LIMIT)
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


@pytest.mark.parametrize("seed", range(8))
def test_nodes_stop_at_the_least_unserved_of_integer_servers(seed: int) -> None:
    master, pool = last_level(seed)
    root, best = root_of(master, pool), best_of_whole_servers(master, pool)
    found = branches_of(root, pool, np.inf)
    assert divided(found[0], pool) is None
    assert found[0].bound == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert root.bound <= found[0].bound * (1 + 1e-9)
    assert [branch.bound for branch in found] == sorted(branch.bound for branch in found)


def test_some_of_these_relaxations_leave_out_parts_of_servers() -> None:
    gains = [best_of_whole_servers(*last_level(seed)) - root_of(*last_level(seed)).bound for seed in range(8)]
    assert sum(gain > 1 for gain in gains) >= 4


@pytest.mark.parametrize("seed", range(8))
def test_nodes_remain_only_if_something_is_below_the_cutoff(seed: int) -> None:
    master, pool = last_level(seed)
    root, best = root_of(master, pool), best_of_whole_servers(master, pool)
    assert not branches_of(root, pool, best * (1 - 1e-6))
    assert branches_of(root, pool, best * (1 + 1e-6))


def test_a_tree_that_has_no_time_is_the_level_itself() -> None:
    master, pool = last_level(0)
    root = root_of(master, pool)
    assert branches_of(root, pool, np.inf, Deadline.after(0)) == [root]


def test_nodes_exclude_a_server_or_force_a_pattern_for_it() -> None:
    master, pool = last_level(0)
    server = divided(root_of(master, pool), pool)
    assert server is not None
    mine = pool.columns.server == server
    for served in (False, True):
        branch = master.branch(server, served=served)
        assert (pool.columns.served[branch.allowed(pool.columns) & mine] == served).all()
        limit = np.full(len(master.active), np.inf)
        found = pool.price_columns(branch, np.zeros(len(master.limits)), limit).columns
        assert (server in found.server) is served
        assert branch.branch(server + 1, served=served).allowed(pool.columns)[mine].any()


@pytest.mark.parametrize("times", [1.0, 1e3, 1e6])
def test_an_infeasible_node_is_priced_above_any_cutoff(times: float) -> None:
    """One server is left out, which a limit of large weights does not allow."""
    master, pool = last_level(0)
    rate = master.objective.on_unserved
    server = int(np.argmax(rate))
    everyone = master.active
    held = LevelConstraint(LevelObjective("held", np.where(rate > 0, 1e6, 0.0), everyone), 0.5)
    count = LevelObjective("count", (rate > 0).astype(np.float64), everyone)
    counted = replace(master, objective=count, held=(held,))
    branch = counted.branch(server, served=False)
    relaxed = RestrictedMaster(counted, pool, nothing_of(pool)).solve(branch, NO_LIMIT, times)
    assert relaxed is not None
    assert relaxed.bound >= times


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


def test_columns_of_another_branch_come_back() -> None:
    """One relaxation for all branches gives what a fresh one gives, in any order."""
    master, pool = last_level(0)
    shared = RestrictedMaster(master, pool, nothing_of(pool))
    server = divided(root_of(master, pool), pool)
    assert server is not None
    branches = [master.branch(server, served=False), master.branch(server, served=True)]
    for branch in [*branches, *branches[::-1], master]:
        fresh = RestrictedMaster(branch, pool, nothing_of(pool)).solve(branch, NO_LIMIT)
        again = shared.solve(branch, NO_LIMIT)
        assert again is not None
        assert fresh is not None
        assert again.bound == pytest.approx(fresh.bound, rel=1e-9, abs=1e-6)
