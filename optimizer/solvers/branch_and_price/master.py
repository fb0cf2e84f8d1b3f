"""The master problem of one level: its objective, what is held before it, and the rows that servers share.

Takes `PatternColumns`, gives coefficients of columns and models over some of them. Equation numbers refer to
``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.solvers.branch_and_price.candidates import PatternCandidates
from optimizer.solvers.branch_and_price.columns import PatternColumns
from optimizer.solvers.model import MilpModel
from optimizer.solvers.objectives import LevelConstraint, LevelObjective

ROUNDING = 1e-9
"""Part of a unit that is rounding."""


def rounded_down(units: FloatArray) -> FloatArray:
    """Return the whole units that there are, of any shape."""
    whole: FloatArray = np.floor(units + ROUNDING)
    return whole


@dataclass(frozen=True, slots=True)
class ChvatalGomoryCut:
    """A rank-one cut: the use of some limits, divided and rounded down (eq. 132)."""

    rows: tuple[int, ...]
    """Rows of limits, all of whole numbers."""
    divisor: int

    def of(self, use: FloatArray) -> FloatArray:
        """Return the coefficients of columns by their use, shape (P, K); shape (P,)."""
        return rounded_down(use[:, list(self.rows)].sum(axis=1) / self.divisor)

    def most(self, amount: FloatArray) -> float:
        """Return the right-hand side, from the amount of each row, shape (K,)."""
        return float(rounded_down(rounded_down(amount)[list(self.rows)].sum() / self.divisor))


@dataclass(frozen=True, slots=True)
class MasterProblem:
    """One level to be minimised over columns, or a node of it."""

    candidates: PatternCandidates
    objective: LevelObjective
    held: tuple[LevelConstraint, ...]
    forced_served: BoolArray
    """Servers that must take a pattern, shape (S,)."""
    forced_unserved: BoolArray
    """Servers that must take none, shape (S,)."""
    cuts: tuple[ChvatalGomoryCut, ...] = ()
    """Only for a pool with every column that counts: pricing does not see their dual values."""

    def branch(self, server: int, *, served: bool) -> "MasterProblem":
        """Return the master problem with a server that is served, or one that is left out."""
        mine = np.arange(len(self.forced_served)) == server
        if served:
            return replace(self, forced_served=self.forced_served | mine)
        return replace(self, forced_unserved=self.forced_unserved | mine)

    @property
    def active(self) -> BoolArray:
        """Servers that may take anything; the others come at later levels; shape (S,)."""
        return self.objective.active

    @property
    def servers(self) -> IntArray:
        """The active servers that have a candidate, in their order."""
        mine = self.candidates.servers
        return mine[self.active[mine]]

    def allowed(self, columns: PatternColumns) -> BoolArray:
        """Return a mask of the columns that the master problem allows, shape (P,)."""
        server = columns.server
        closed = np.where(columns.served, self.forced_unserved[server], self.forced_served[server])
        allowed: BoolArray = self.active[server] & ~closed
        return allowed

    @property
    def limits(self) -> FloatArray:
        """Right-hand sides of the rows that servers share: units, then held levels, then cuts."""
        held, amount = [each.most for each in self.held], self.candidates.amount
        return np.concatenate([amount, held, [cut.most(amount) for cut in self.cuts]])

    def shared(self, columns: PatternColumns) -> FloatArray:
        """Return the coefficients of columns in every shared row, shape (P, rows)."""
        held = [columns.weights(each.objective)[:, None] for each in self.held]
        return np.hstack([columns.use, *held, *(cut.of(columns.use)[:, None] for cut in self.cuts)])

    def entries(self, columns: PatternColumns) -> tuple[IntArray, IntArray, FloatArray]:
        """Return columns of the matrix: where each starts, its rows and its values."""
        shared = self.shared(columns)
        place = np.searchsorted(self.servers, columns.server)
        entries = np.hstack([np.ones((len(columns), 1)), shared])
        rows = np.hstack(
            [place[:, None], np.broadcast_to(len(self.servers) + np.arange(shared.shape[1]), shared.shape)]
        )
        used = entries != 0
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return start, rows[used], entries[used]

    def model(self, columns: PatternColumns) -> MilpModel:
        """Return the choice of one column for every active server, of those given, as a model (eq. 90)."""
        start, row, value = self.entries(columns)
        column = np.repeat(np.arange(len(columns)), np.diff(start))
        order = np.argsort(row, kind="stable")
        servers, limits = len(self.servers), self.limits
        count = np.bincount(row, minlength=servers + len(limits))
        return MilpModel(
            lower=np.zeros(len(columns)),
            upper=np.ones(len(columns)),
            integer=np.ones(len(columns), np.bool_),
            row_start=np.concatenate([[0], np.cumsum(count)]),
            row_index=column[order],
            row_value=value[order],
            row_lower=np.concatenate([np.ones(servers), np.full(len(limits), -np.inf)]),
            row_upper=np.concatenate([np.ones(servers), limits]),
        )
