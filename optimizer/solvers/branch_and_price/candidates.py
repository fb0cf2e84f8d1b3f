"""The candidates that patterns are made of, and the limits that they share.

Takes a `Problem`, gives `PatternCandidates`. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.model_columns import fitting_candidates, mixed_columns
from optimizer.solvers.price_tiers import Tiers
from optimizer.solvers.problem import Problem
from optimizer.tolerances import COVER

ROUNDING = 1e-12
"""Fraction of a replica that counts as rounding."""
LOAD = 1 - COVER
"""Fraction of a server's load that its replicas must carry."""


@dataclass(frozen=True)
class PatternCandidates:
    """Candidates whose replicas form patterns; shapes (n,) unless stated otherwise."""

    row: IntArray
    """Row of the candidate table, sorted by server."""
    server: IntArray
    divisible: BoolArray
    """Whether any number of replicas is possible; otherwise the number from sizing, or none."""
    share: FloatArray
    """Fraction of its server's load per replica, at most the load with headroom; 1 without load."""
    row_used: IntArray
    """Rows that a replica uses, shape (n, J)."""
    use: FloatArray
    """Use of these rows by one replica, in multiples of the row's divisor; shape (n, J)."""
    cost: FloatArray
    """Value of one replica without the saving from staying [cents/h]."""
    here: BoolArray
    """Whether it is on the accelerator that its server runs on now."""
    amount: FloatArray
    """Amount of each row, in multiples of its divisor; shape (K,)."""
    limits: IntArray
    """Index of each row into the limits of the problem, shape (K,)."""
    divisor: FloatArray
    """Divisor of each row, shape (K,)."""
    whole: BoolArray
    """Whether amount and use are integers, shape (K,)."""
    tiers: Tiers
    """Prices that depend on how many accelerators are used; rows are those of the limits of the problem."""
    off_preferred: FloatArray
    """Load of one replica off the preferred accelerators [requests/min]."""

    @cached_property
    def first_sizes(self) -> FloatArray:
        """Right-hand side of each row: its amount, or the size of the first price step; shape (K,)."""
        amount, place = self.amount.copy(), self.place_of(self.tiers.row)
        amount[place[place >= 0]] = self.tiers.size[self.tiers.first][place >= 0]
        return amount

    def place_of(self, row: IntArray) -> IntArray:
        """Return the index of limits of the problem among the rows, -1 for limits without a row."""
        place = np.searchsorted(self.limits, row)
        here = np.append(self.limits, -1)[place] == row
        return np.where(here, place, -1)

    @cached_property
    def step_use(self) -> FloatArray:
        """Coefficient of each later price step in each row, shape (J, K)."""
        use = np.zeros((len(self.tiers.later), len(self.amount)))
        for row, coefficient in self.tiers.step_entries():
            place = self.place_of(row)
            every = np.flatnonzero(place >= 0)
            use[every, place[every]] += coefficient[every]
        return use

    def most_replicas(self) -> FloatArray:
        """Return the maximum number of replicas of each candidate within the limits, shape (n,)."""
        most, used = np.full(self.use.shape, np.inf), self.use > 0
        np.divide(np.append(self.amount, 0.0)[self.row_used], self.use, out=most, where=used)
        fewest: FloatArray = np.floor(most.min(axis=1, initial=np.inf) + ROUNDING)
        return fewest

    def used_by(self, candidate: IntArray, count: IntArray) -> FloatArray:
        """Return the use of each row by patterns, in multiples of its divisor; shape (P, K).

        Args:
            candidate: candidates of each pattern, -1 in unused places; shape (P, W).
            count: replicas of each of them, 0 in unused places; shape (P, W).
        """
        use, patterns = np.zeros((len(candidate), len(self.amount))), np.arange(len(candidate))
        for at, replicas in zip(candidate.T, count.T, strict=True):
            for entry in range(self.use.shape[1]):
                use[patterns, self.row_used[at, entry]] += replicas * self.use[at, entry]
        return use

    @property
    def servers(self) -> IntArray:
        """The servers that have a candidate, in their order."""
        return np.unique(self.server)


def candidates_of(problem: Problem) -> PatternCandidates:
    """Return the nondominated candidates of a problem (math.md section 12)."""
    table = problem.table
    if problem.options.heterogeneous:
        row, _, each = mixed_columns(problem)
        divisible = problem.divisible[row]
    else:
        row = fitting_candidates(problem)
        each, divisible = table.num_replicas[row], np.zeros(len(row), np.bool_)
    # A pattern takes several candidates of a server, so each carries a share of its load; without load it
    # takes one replica of any.
    server = table.server[row]
    load = problem.load_rps[server]
    share = np.divide(table.max_rate_rps[row], load, out=np.ones(len(row)), where=load > 0)
    # Only limits that some candidate uses have a row, scaled to small whole numbers for solver and cuts.
    mine = problem.limits.take(row)
    limits, divisor, amount = mine.scaled(each, problem.tiers.budget_row)
    used = mine.use > 0
    row_used = np.where(used, np.searchsorted(limits, mine.row), 0)
    if len(row) and not len(limits):  # what candidates use is of no other's concern
        used, row_used = used[:, :0], row_used[:, :0]
    use = np.divide(mine.use[:, : used.shape[1]], divisor[row_used], out=np.zeros(used.shape), where=used)
    return PatternCandidates(
        row=row,
        server=server,
        divisible=divisible,
        share=np.minimum(share, problem.growth[server]),
        row_used=row_used,
        use=use,
        cost=problem.replica_value[row] - problem.discount[row],
        here=problem.on_current[row],
        amount=amount,
        limits=limits,
        divisor=divisor,
        whole=mine.whole[limits],
        tiers=problem.tiers,
        off_preferred=problem.off_preferred_rpm[row],
    )
