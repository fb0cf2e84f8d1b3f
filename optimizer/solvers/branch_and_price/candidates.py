"""The candidates that patterns are made of, and the limits that they share.

Takes a `Problem`, gives `PatternCandidates`. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.formulation import COVER_TOLERANCE, fitting_candidates, mixed_columns
from optimizer.solvers.problem import Problem

ROUNDING = 1e-12
"""Part of a replica that is rounding."""
LOAD = 1 - COVER_TOLERANCE
"""Share of a server's load that its replicas have to carry."""


@dataclass(frozen=True, slots=True)
class PatternCandidates:
    """Candidates of which patterns take replicas; shapes (n,) unless said otherwise."""

    row: IntArray
    """Row of the candidate table; rows of one server stand together."""
    server: IntArray
    divisible: BoolArray
    """Whether any number of replicas can be taken; else all that the candidate was sized with, or none."""
    share: FloatArray
    """Share of its server's load that one replica carries, at most all with headroom; 1 without load."""
    row_used: IntArray
    """Rows that a replica uses, shape (n, J)."""
    use: FloatArray
    """What it uses there, in multiples of the row's divisor, shape (n, J)."""
    cost: FloatArray
    """What a replica adds to the value, apart from what staying saves [cents/h]."""
    here: BoolArray
    """Whether it is on the accelerator that its server runs on now."""
    amount: FloatArray
    """What there is, in multiples of each row's divisor; shape (K,)."""
    limits: IntArray
    """Index of each row into the limits of the problem, shape (K,)."""
    divisor: FloatArray
    """What one of each row stands for, shape (K,)."""
    whole: BoolArray
    """Whether amount and use are whole, shape (K,)."""

    def most_replicas(self) -> FloatArray:
        """Return how many replicas of each candidate the limits allow by themselves, shape (n,)."""
        most, used = np.full(self.use.shape, np.inf), self.use > 0
        np.divide(np.append(self.amount, 0.0)[self.row_used], self.use, out=most, where=used)
        fewest: FloatArray = np.floor(most.min(axis=1, initial=np.inf) + ROUNDING)
        return fewest

    @property
    def servers(self) -> IntArray:
        """The servers that have a candidate, in their order."""
        return np.unique(self.server)


def candidates_of(problem: Problem) -> PatternCandidates:
    """Return the nondominated candidates of a problem, mixed or as sized (math.md section 12)."""
    table = problem.table
    if problem.options.heterogeneous:
        row, _, each = mixed_columns(problem)
        divisible = problem.divisible[row]
    else:
        row = fitting_candidates(problem)
        each, divisible = table.num_replicas[row], np.zeros(len(row), np.bool_)
    server = table.server[row]
    load = problem.load_rps[server]
    share = np.divide(table.max_rate_rps[row], load, out=np.ones(len(row)), where=load > 0)
    mine = problem.limits.take(row)
    limits, divisor, amount = mine.scaled(each)
    used = mine.use > 0
    row_used = np.where(used, np.searchsorted(limits, mine.row), 0)
    use = np.divide(mine.use, divisor[row_used], out=np.zeros(used.shape), where=used)
    return PatternCandidates(
        row=row,
        server=server,
        divisible=divisible,
        share=np.minimum(share, 1 + problem.reserve.headroom_share[server]),
        row_used=row_used,
        use=use,
        cost=problem.replica_value[row],
        here=problem.on_current[row],
        amount=amount,
        limits=limits,
        divisor=divisor,
        whole=mine.whole[limits],
    )
