"""Master problem of one level: its objective, constraints on earlier levels, and the rows that servers share.

`PatternColumns` get their coefficients here, and a model can be built from some of them. Equation numbers
refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import MilpModel
from optimizer.solvers.branch_and_price.candidates import PatternCandidates
from optimizer.solvers.branch_and_price.columns import PatternColumns
from optimizer.solvers.objectives import LevelConstraint, LevelObjective
from optimizer.spec.prices import ENDLESS
from optimizer.tolerances import ROUNDING


def rounded_down(units: FloatArray) -> FloatArray:
    """Round amounts down to integers, with a tolerance for rounding errors; any shape."""
    whole: FloatArray = np.floor(units + ROUNDING)
    return whole


@dataclass(frozen=True, slots=True)
class ChvatalGomoryCut:
    """A rank-one Chvátal-Gomory cut (eq. 132).

    It is a sum of limit rows, divided by an integer and rounded down.
    """

    rows: tuple[int, ...]
    """Limit rows that are summed; all have integer coefficients."""
    divisor: int

    def of(self, use: FloatArray) -> FloatArray:
        """Return the coefficient of each column, shape (P,), from its use of limit rows, shape (P, K)."""
        return rounded_down(use[:, list(self.rows)].sum(axis=1) / self.divisor)

    def most(self, amount: FloatArray) -> float:
        """Return the right-hand side of the cut, from the amount of each row, shape (K,)."""
        return float(rounded_down(rounded_down(amount)[list(self.rows)].sum() / self.divisor))


@dataclass(frozen=True)
class MasterProblem:
    """Minimisation of one level over columns, at the root or at a node of the branching tree."""

    candidates: PatternCandidates
    objective: LevelObjective
    held: tuple[LevelConstraint, ...]
    forced_served: BoolArray
    """Servers that must have a pattern, shape (S,)."""
    forced_unserved: BoolArray
    """Servers that must have no allocation, shape (S,)."""
    cuts: tuple[ChvatalGomoryCut, ...] = ()
    """Cuts. They are valid only if the pool contains all relevant columns, because pricing ignores their
    duals.
    """

    def branch(self, server: int, *, served: bool) -> "MasterProblem":
        """Return the child node in which a server is forced to be served, or to be unserved."""
        branched = np.arange(len(self.forced_served)) == server
        if served:
            return replace(self, forced_served=self.forced_served | branched)
        return replace(self, forced_unserved=self.forced_unserved | branched)

    @property
    def active(self) -> BoolArray:
        """Servers that can have an allocation at this level, shape (S,).

        Other servers are added at later levels.
        """
        return self.objective.active

    @property
    def servers(self) -> IntArray:
        """Active servers that have a candidate, in ascending order."""
        every = self.candidates.servers
        return every[self.active[every]]

    def allowed(self, columns: PatternColumns) -> BoolArray:
        """Return a mask of the columns that this node allows, shape (P,)."""
        server = columns.server
        closed = np.where(columns.served, self.forced_unserved[server], self.forced_served[server])
        allowed: BoolArray = self.active[server] & ~closed
        return allowed

    @property
    def limits(self) -> FloatArray:
        """Right-hand sides of the rows that servers share: limits, then earlier levels, then cuts."""
        held, amount = [each.most - each.objective.outside for each in self.held], self.candidates.amount
        first = self.candidates.first_sizes
        return np.concatenate([first, held, [cut.most(amount) for cut in self.cuts]])

    @property
    def step_weights(self) -> FloatArray:
        """Objective coefficient of each variable of a price, shape (J,)."""
        return self.objective.on_value * self.candidates.prices.cost

    @cached_property
    def step_shared(self) -> FloatArray:
        """Coefficients of the variables of prices in every shared row, shape (J, rows)."""
        more = self.candidates.prices.cost
        held = [(each.objective.on_value * more)[:, None] for each in self.held]
        return np.hstack([self.candidates.step_use, *held, np.zeros((len(more), len(self.cuts)))])

    @property
    def step_sizes(self) -> FloatArray:
        """Upper bound of each variable of a price, shape (J,)."""
        return self.candidates.prices.upper

    def step_entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the variables of prices as sparse matrix columns: start index, rows and values."""
        shared = self.step_shared
        step, row = np.nonzero(shared)
        start = np.concatenate([[0], np.cumsum(np.bincount(step, minlength=len(shared)))])
        return start, len(self.servers) + row, shared[step, row]

    def step_amounts(self, columns: PatternColumns) -> FloatArray:
        """Return the value of each variable of a price for the given columns, shape (J,)."""
        prices, candidates = self.candidates.prices, self.candidates
        used = np.zeros(int(max(prices.row, default=-1)) + 1)
        place = candidates.place_of(prices.row)
        use = np.append(columns.use.sum(axis=0) * candidates.divisor, 0.0)
        used[prices.row] = np.where(place >= 0, use[place], 0.0)
        return prices.values(used)

    def capped(self, duals: FloatArray) -> FloatArray:
        """Scale dual values down so that no variable without an upper bound has a negative reduced cost.

        Any dual values of at least 0 prove a bound, but larger ones would prove nothing. The rows of a price
        are scaled together, as far as its variables need it.
        """
        place = self.candidates.place_of(self.candidates.prices.row)
        counted, others, capped = place[place >= 0], duals.copy(), duals.copy()
        others[counted] = 0.0
        most, adds = self.step_weights + self.step_shared @ others, np.maximum(-self.step_shared, 0.0)
        for step in np.flatnonzero(self.step_sizes >= ENDLESS).tolist():
            in_step = counted[adds[step, counted] > 0]
            earned, paid = float(adds[step, in_step] @ capped[in_step]), float(most[step])
            if earned > paid:
                capped[in_step] *= paid / earned
        return capped

    def step_bound(self, duals: FloatArray) -> FloatArray:
        """Return what each variable of a price adds to the Lagrangian bound, shape (J,) (eq. 148)."""
        reduced = self.step_weights + self.step_shared @ duals
        return np.minimum(reduced, 0.0) * np.where(self.step_sizes >= ENDLESS, 0.0, self.step_sizes)

    def shared(self, columns: PatternColumns) -> FloatArray:
        """Return the coefficients of columns in every shared row, shape (P, rows)."""
        held = [columns.weights(each.objective)[:, None] for each in self.held]
        return np.hstack([columns.use, *held, *(cut.of(columns.use)[:, None] for cut in self.cuts)])

    def entries(self, columns: PatternColumns) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the given columns as sparse matrix columns: start index, rows and values."""
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
        """Return the MILP that chooses one of the given columns for every active server (eq. 90).

        Its variables are the columns, followed by those of prices.
        """
        start, row, value = self.entries(columns)
        more, step_row, step_value = self.step_entries()
        start = np.concatenate([start, start[-1] + more[1:]])
        row, value = np.concatenate([row, step_row]), np.concatenate([value, step_value])
        # The solver takes rows; columns come from the linear program.
        column = np.repeat(np.arange(len(start) - 1), np.diff(start))
        one, limits = np.ones(len(self.servers)), self.limits
        return MilpModel.of_entries(
            np.concatenate([np.ones(len(columns)), self.step_sizes]),
            np.append(np.ones(len(columns), np.bool_), self.candidates.prices.whole),
            (np.append(one, np.full(len(limits), -np.inf)), np.append(one, limits)),
            (row, column, value),
        )
