"""Candidates of which patterns consist, and the limits that the candidates share.

A `Problem` becomes `PatternCandidates`. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.model_columns import fitting_candidates, mixed_columns
from optimizer.solvers.problem import Problem
from optimizer.solvers.problem_prices import ProblemPrices
from optimizer.tolerances import COVER

ROUNDING = 1e-12
"""Fraction of a replica that counts as rounding."""
LOAD = 1 - COVER
"""Fraction of a server's load that its replicas must carry."""


@dataclass(frozen=True)
class PatternCandidates:
    """Candidates of which patterns consist; arrays have shape (n,) unless stated otherwise."""

    row: IntArray
    """Row of each candidate in the candidate table, sorted by server."""
    server: IntArray
    divisible: BoolArray
    """Whether any number of replicas is possible; otherwise only the number from sizing, or none."""
    share: FloatArray
    """Fraction of the server's load, with headroom, that one replica carries; 1 without load."""
    row_used: IntArray
    """Limit rows that a replica uses, shape (n, J)."""
    use: FloatArray
    """Amount of each of these rows that one replica uses, in multiples of the row's divisor, shape (n, J)."""
    cost: FloatArray
    """Transition cost of one replica, without the saving from keeping a replica on its accelerator [cents/h].
    """
    here: BoolArray
    """Whether the candidate is on an accelerator that its server runs on now."""
    amount: FloatArray
    """Available amount of each limit row, in multiples of its divisor, shape (K,)."""
    limits: IntArray
    """Index of each row among the limits of the problem, shape (K,)."""
    divisor: FloatArray
    """Amount of the limit that one unit of each row represents, shape (K,)."""
    whole: BoolArray
    """Whether the amount and the uses of each row are integers, shape (K,)."""
    prices: ProblemPrices
    """Prices; their row numbers are those of the problem's limits."""
    off_preferred: FloatArray
    """Load that one replica carries off its server's preferred accelerators [requests/min]."""

    @cached_property
    def first_sizes(self) -> FloatArray:
        """Right-hand side of each row: its amount, or the use that needs no variable, shape (K,)."""
        amount, place = self.amount.copy(), self.place_of(self.prices.row)
        counted = place[place >= 0]
        amount[counted] = self.prices.first[place >= 0] / self.divisor[counted]
        return amount

    def place_of(self, row: IntArray) -> IntArray:
        """Return the row of each limit of the problem; -1 for limits without a row."""
        place = np.searchsorted(self.limits, row)
        here = np.append(self.limits, -1)[place] == row
        return np.where(here, place, -1)

    @cached_property
    def step_use(self) -> FloatArray:
        """Coefficient of each variable of a price in each row, shape (J, K)."""
        use = np.zeros((len(self.prices.upper), len(self.amount)))
        variable, row, coefficient = self.prices.entries
        place = self.place_of(row)
        here = place >= 0
        use[variable[here], place[here]] = coefficient[here] / self.divisor[place[here]]
        return use

    def most_replicas(self) -> FloatArray:
        """Return the maximum number of replicas of each candidate that the limits allow alone, shape (n,)."""
        most, used = np.full(self.use.shape, np.inf), self.use > 0
        np.divide(np.append(self.amount, 0.0)[self.row_used], self.use, out=most, where=used)
        fewest: FloatArray = np.floor(most.min(axis=1, initial=np.inf) + ROUNDING)
        return fewest

    def used_by(self, candidate: IntArray, count: IntArray) -> FloatArray:
        """Return the amount of each row that patterns use, in multiples of the row's divisor, shape (P, K).

        Args:
            candidate: candidates of each pattern, -1 for unused entries, shape (P, W).
            count: number of replicas of each of these candidates, 0 for unused entries, shape (P, W).
        """
        use, patterns = np.zeros((len(candidate), len(self.amount))), np.arange(len(candidate))
        for at, replicas in zip(candidate.T, count.T, strict=True):
            for entry in range(self.use.shape[1]):
                use[patterns, self.row_used[at, entry]] += replicas * self.use[at, entry]
        return use

    @property
    def servers(self) -> IntArray:
        """Servers that have a candidate, in ascending order."""
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
    # A pattern can have several candidates of a server, and each carries a share of the load. Without load,
    # one replica of any candidate suffices.
    server = table.server[row]
    load = problem.load_rps[server]
    share = np.divide(table.max_rate_rps[row], load, out=np.ones(len(row)), where=load > 0)
    # Only limits that some candidate uses have a row; it is scaled to small integers for the solver and cuts.
    uses = problem.limits.take(row)
    limits, divisor, amount = uses.scaled(each, problem.prices.budget_row)
    used = uses.use > 0
    row_used = np.where(used, np.searchsorted(limits, uses.row), 0)
    if len(row) and not len(limits):  # no limit applies to these candidates
        used, row_used = used[:, :0], row_used[:, :0]
    use = np.divide(uses.use[:, : used.shape[1]], divisor[row_used], out=np.zeros(used.shape), where=used)
    return PatternCandidates(
        row=row,
        server=server,
        divisible=divisible,
        share=np.minimum(share, problem.reserve.growth[server]),
        row_used=row_used,
        use=use,
        cost=problem.replica_value[row] - problem.discount[row],
        here=problem.on_current[row],
        amount=amount,
        limits=limits,
        divisor=divisor,
        whole=uses.whole[limits],
        prices=problem.prices,
        off_preferred=problem.off_preferred_rpm[row],
    )
