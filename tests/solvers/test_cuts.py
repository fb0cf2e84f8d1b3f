"""Cuts of scarce levels: they hold for every answer, and leave the best one with what it needs."""

import numpy as np
import pytest
from slow_cases import mostly_slow
from test_nodes import MIXING, NO_LIMIT, best_of_patterns, last_level, only, root_of

from optimizer.solvers.branch_and_price.cuts import with_cuts
from optimizer.solvers.branch_and_price.master import ChvatalGomoryCut
from optimizer.solvers.branch_and_price.nodes import BranchTree
from optimizer.solvers.deadline import Deadline

SEEDS = (*MIXING, 0, 1, 2, 3)


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
