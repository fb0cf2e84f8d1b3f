"""Patterns against numbers of replicas solved to the end, on fleets of fifty servers; minutes, so slow."""

import pytest

from optimizer import find_candidates
from optimizer.generate import generate_system
from optimizer.milp.highs import HighsSession
from optimizer.solvers.branch_and_price.solve import solve_patterns
from optimizer.solvers.compact import solve_milp
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.problem import build_problem
from optimizer.solvers.solution import Solution, Status

LIMIT_S = 20.0
"""Time of each formulation; a fleet that one of them does not prove is compared by its bounds."""


def first_difference(one: Solution, other: Solution) -> str | None:
    """Return the first level at which one answer is below what the other proves, if there is one."""
    for mine, theirs in zip(one.levels, other.levels, strict=True):
        slack = 1e-6 * max(1.0, abs(mine.value))
        for found, bound in ((mine, theirs), (theirs, mine)):
            if bound.bound is not None and found.value < bound.bound - slack:
                return f"{mine.name}: {found.value} is below the bound {bound.bound}"
        if abs(mine.value - theirs.value) > slack:
            return None if Status.feasible in (one.status, other.status) else f"{mine.name} differs"
    return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_patterns_and_replica_counts_agree_on_fifty_servers(seed: int) -> None:
    source = generate_system(50, 10, 5, seed, tightness=1.1 + 0.1 * (seed % 6))
    problem = build_problem(find_candidates(source.with_options(heterogeneous=bool(seed % 2), gap=0.0)))
    priced = solve_patterns(problem, Deadline.after(LIMIT_S))
    counted = solve_milp(problem, HighsSession, Deadline.after(LIMIT_S))
    assert first_difference(priced, counted) is None
