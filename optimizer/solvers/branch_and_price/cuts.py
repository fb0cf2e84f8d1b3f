"""Chvátal-Gomory cuts of the limits: integer solutions satisfy them, fractional ones can violate them.

Pricing ignores the dual values of cuts, so the pool must contain all relevant columns. Equation numbers refer
to ``docs/math.md``.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from optimizer.arrays import IntArray
from optimizer.solvers.branch_and_price.generation import RestrictedMaster
from optimizer.solvers.branch_and_price.master import ChvatalGomoryCut, MasterProblem, rounded_down
from optimizer.solvers.branch_and_price.nodes import Node, reduced_cost_slack
from optimizer.solvers.branch_and_price.pool import ColumnPool
from optimizer.solvers.deadline import Deadline

MAX_ROWS = 3
"""Maximum number of limit rows that a cut combines."""
EACH_ROUND = 15
"""Maximum number of cuts added per round."""
ROUNDS = 20
"""Maximum number of rounds of cuts."""
MIN_GAIN = 0.01
"""Minimum gain of one in three consecutive rounds, as a fraction of the distance from bound to cutoff."""
VIOLATION = 1e-3
"""Minimum violation of a cut by a relaxation."""


def with_cuts(
    master: MasterProblem, pool: ColumnPool, columns: IntArray, cutoff: float, deadline: Deadline
) -> Node | None:
    """Return a level with cuts that raise its bound towards a cutoff.

    Args:
        master: the level.
        columns: columns that include all those of solutions below the cutoff.
        cutoff: only solutions below this value are needed.
        deadline: time to stop.

    Returns:
        The level with cuts, restricted to those of the given columns that solutions below the cutoff can use;
            None if there was no time for a relaxation.

    Raises:
        SolverError: the solver failed.
    """

    def relaxed(within: MasterProblem, start: IntArray) -> Node | None:
        """Solve a relaxation over the given columns to optimality; None if there was not enough time."""
        relaxed = RestrictedMaster(within, pool, start, columns).solve(within, deadline, cutoff)
        if relaxed is None or not relaxed.finished:
            return None
        return Node(within, relaxed, relaxed.bound, columns=columns)

    # Cuts raise the bound, a higher bound removes columns, and fewer columns allow stronger cuts. The loop
    # ends when all solutions below the cutoff are excluded, or when three rounds gain little.
    best, weak = relaxed(master, columns[:0]), 0
    for _ in range(ROUNDS):
        if best is None or best.bound >= cutoff or deadline.passed or weak == 3:
            break
        columns = _below_cutoff(best, pool, cutoff)
        cuts = _violated(best, pool)
        after = relaxed(_with(best, pool, cuts), best.relaxed.used) if cuts else None
        if after is None:
            break
        gained = after.bound - best.bound
        weak = 0 if gained >= MIN_GAIN * (cutoff - best.bound) else weak + 1
        best = after
    return best


def _with(node: Node, pool: ColumnPool, cuts: list[ChvatalGomoryCut]) -> MasterProblem:
    """Return a level with more cuts, and without the cuts that are slack in its relaxation."""
    master, relaxed = node.master, node.relaxed
    use, amount = pool.columns.use[relaxed.used], master.candidates.amount
    tight = [cut for cut in master.cuts if relaxed.part @ cut.of(use) > cut.most(amount) - VIOLATION]
    return replace(master, cuts=(*tight, *cuts))


def _violated(node: Node, pool: ColumnPool) -> list[ChvatalGomoryCut]:
    """Return the cuts that a relaxation violates most, relative to the norm of their coefficients."""
    used, part = node.relaxed.used, node.relaxed.part
    candidates, use = node.master.candidates, pool.columns.use[used]
    amount = rounded_down(candidates.amount)
    violated: list[tuple[float, ChvatalGomoryCut]] = []
    rows = np.flatnonzero(use.any(axis=0) & candidates.whole).tolist()
    # The sum of some rows, divided by an integer and rounded down on both sides, holds for integer numbers of
    # columns. A relaxation with fractions of columns can violate it.
    for together in range(1, MAX_ROWS + 1):
        for some in combinations(rows, together):
            most = amount[list(some)].sum()
            sums = use[:, list(some)].sum(axis=1)
            divisors = np.arange(2, int(min(most, sums.max())) + 1)
            taken = rounded_down(sums[:, None] / divisors)
            above = part @ taken - rounded_down(most / divisors)
            for place in np.flatnonzero(above > VIOLATION).tolist():
                length = float(np.linalg.norm(taken[:, place]))
                cut = ChvatalGomoryCut(some, int(divisors[place]))
                violated.append((-float(above[place]) / length, cut))
    violated.sort(key=lambda each: (each[0], each[1].rows, each[1].divisor))
    return [cut for _, cut in violated[:EACH_ROUND]]


def _below_cutoff(node: Node, pool: ColumnPool, cutoff: float) -> IntArray:
    """Return the columns that solutions below the cutoff can use, and those of the relaxation (eq. 93)."""
    slack, _ = reduced_cost_slack(node, pool)
    kept = node.relaxed.bound + slack <= cutoff
    kept[node.relaxed.used] = True
    return np.flatnonzero(kept)
