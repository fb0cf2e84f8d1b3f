"""Block decomposition: servers that no exceeded limit couples are solved separately.

Solving blocks separately relaxes the problem, because each block can use all of every limit. If the solutions
of all blocks together satisfy the limits, they solve the problem (eq. 237). Equation numbers refer to
``docs/math.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from optimizer.arrays import BoolArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import levels_of, trivial_bounds
from optimizer.solvers.problem import Problem
from optimizer.solvers.related import differing
from optimizer.solvers.solution import Solution, SolvedLevel, Status
from optimizer.tolerances import ROUNDING

Solve = Callable[[Problem, Deadline], Solution]


@dataclass(frozen=True, slots=True)
class SolvedBlocks:
    """A problem, a partition of its servers into blocks, and the solution of each block."""

    problem: Problem
    block: IntArray
    """Block of each server, named by the smallest server index in it, shape (S,)."""
    solutions: dict[int, Solution] = field(default_factory=dict)

    @property
    def replicas(self) -> IntArray:
        """Replicas of each candidate, shape (C,)."""
        replicas = np.zeros(len(self.problem.table), np.int64)
        for block, solution in self.solutions.items():
            replicas[self.block[self.problem.table.server] == block] = solution.replicas
        return replicas

    @property
    def solution(self) -> Solution:
        """Combined solution of all blocks; levels after an unproved one have trivial bounds."""
        parts, holds, levels = self.solutions.values(), True, []
        floors = trivial_bounds(self.problem)
        for reached in levels_of(self.problem, self.replicas, proved=True):
            gaps = [_gap(level) for part in parts for level in part.levels if level.name == reached.name]
            bound = reached.value - sum(gaps) if holds else floors[reached.name]
            levels.append(SolvedLevel(reached.name, reached.value, min(bound, reached.value)))
            holds &= not any(gaps)
        proved = all(part.status is Status.optimal for part in parts)
        return Solution(self.replicas, Status.optimal if proved else Status.feasible, "milp", tuple(levels))


def _gap(level: SolvedLevel) -> float:
    """Return the difference between a level's value and bound; 0 if it is only rounding."""
    gap = np.inf if level.bound is None else level.value - level.bound
    return gap if gap > ROUNDING * max(1.0, abs(level.value)) else 0.0


def solve_in_blocks(
    problem: Problem, solve: Solve, deadline: Deadline, known: SolvedBlocks | None = None
) -> SolvedBlocks:
    """Solve a problem block by block; blocks that jointly exceed a limit are merged and solved again.

    Args:
        problem: the problem, without a saturation policy.
        solve: function that solves the problem of a block.
        deadline: time at which the solution is due.
        known: solved blocks of a problem with the same servers and limits. They are the initial partition,
            and the solutions of unchanged blocks are reused.
    """
    solved_blocks = SolvedBlocks(problem, _first_blocks(problem) if known is None else known.block)
    if known is not None:
        changed = np.unique(known.block[_differing(problem, known.problem)]).tolist()
        solved_blocks.solutions.update({b: one for b, one in known.solutions.items() if b not in changed})
    while True:
        for block in np.unique(solved_blocks.block[problem.table.server]).tolist():
            if block not in solved_blocks.solutions:
                solved_blocks.solutions[block] = solve(
                    problem.of_servers(solved_blocks.block == block), deadline
                )
        joined = _joined(solved_blocks)
        if joined is None:
            return solved_blocks
        solved_blocks = joined


def _first_blocks(problem: Problem) -> IntArray:
    """Return the initial block of each server, shape (S,).

    Servers of one route share a block, and so do all servers on shared cards, and all servers that can share
    the cost of a price.
    """
    block = np.arange(len(problem.priority))
    groups = [group for each in problem.topologies for group in each.groups()]
    for row in problem.prices.shared_rows.tolist():
        users = problem.limits.used_of(row, np.ones(len(problem.table), np.int64)) > 0
        groups += [np.unique(problem.table.server[users]).tolist()] if users.any() else []
    for group in groups:
        together = np.isin(block, block[list(group)])
        block[together] = np.flatnonzero(together)[0]
    return block


def _joined(solved_blocks: SolvedBlocks) -> SolvedBlocks | None:
    """Merge the blocks that jointly exceed a limit, or what they can use at first prices.

    None if there are none.
    """
    problem, replicas = solved_blocks.problem, solved_blocks.replicas
    prices, used = problem.prices, problem.limits.used(replicas)
    exceeded = problem.left_by(replicas) < 0
    exceeded[prices.row] |= used[prices.row] > prices.first
    block = solved_blocks.block.copy()
    for row in np.flatnonzero(exceeded).tolist():
        users = np.unique(block[problem.table.server[problem.limits.used_of(row, replicas) > 0]])
        block[np.isin(block, users)] = users.min(initial=len(block))
    if (block == solved_blocks.block).all():
        return None
    same = [b for b in solved_blocks.solutions if ((block == b) == (solved_blocks.block == b)).all()]
    return replace(solved_blocks, block=block, solutions={b: solved_blocks.solutions[b] for b in same})


def _differing(problem: Problem, other: Problem) -> BoolArray:
    """Return a mask of the servers whose candidates or limits differ between two problems, shape (S,)."""
    differ = differing(problem, other)
    for one, another in ((problem, other), (other, problem)):
        amounts, theirs = (_amounts(each) for each in (one, another))
        changed = np.array([theirs.get(key) != amount for key, amount in amounts.items()], np.bool_)
        uses, _ = np.nonzero(changed[one.limits.row] & (one.limits.use > 0))
        differ |= one.has_some_of(uses)
    for each, before in zip(problem.topologies, other.topologies, strict=True):
        for group in each.groups() if each.differs(before) else ():
            differ[list(group)] = True
    return differ


def _amounts(problem: Problem) -> dict[tuple[str, str, str], tuple[float, ...]]:
    """Return the amount of each limit row, and the data of its price, by the names of the row.

    Two problems can number their rows differently, so the names identify them.
    """
    rows = enumerate(zip(problem.limits.items, problem.limits.amount.tolist(), strict=True))
    data = problem.prices.data_of_rows
    return {(*item.key, item.part): (amount, *data.get(r, ())) for r, (item, amount) in rows}
