"""Column generation: a restricted master problem to which columns are added, and its Lagrangian bound.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.milp.highs import MasterLp
from optimizer.milp.model import RunStatus
from optimizer.solvers.branch_and_price.bounds import lagrangian_bound
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.pool import ColumnPool, priced, reduced_costs
from optimizer.solvers.deadline import Deadline
from optimizer.spec.prices import ENDLESS
from optimizer.tolerances import ROUNDING

EACH_ROUND = 3
"""Maximum number of columns added per server and round."""
ARTIFICIAL_COSTS = (1e1, 1e3, 1e5, 1e7, 1e9)
"""Costs of the artificial column of a server that must be served, as multiples of the largest weight. The
higher costs apply while a relaxation below the cutoff has such columns, because their cards can serve others.
"""


@dataclass(frozen=True, slots=True)
class MasterSolution:
    """Solution of the relaxation of a master problem."""

    duals: FloatArray
    """Dual values of the shared rows, at least 0."""
    bound: float
    """Lagrangian bound that the dual values prove."""
    used: IntArray
    """Columns of the pool with a positive value in the relaxation, shape (U,)."""
    part: FloatArray
    """Value of each column in `used`, shape (U,)."""
    finished: bool
    """Whether no column has a negative reduced cost, so that the relaxation is solved to optimality."""
    feasible: bool
    """Whether the relaxation serves every server that must be served."""


def generate_columns(
    master: MasterProblem, pool: ColumnPool, start: IntArray, deadline: Deadline
) -> MasterSolution | None:
    """Solve the relaxation of a level over all patterns, and add the patterns found to the pool.

    Args:
        master: the level.
        start: initial columns, in addition to those of unserved servers.
        deadline: time to stop; the bound is then that of the latest dual values.

    Returns:
        None if the time was too short for any dual values.

    Raises:
        SolverError: the solver failed.
    """
    return RestrictedMaster(master, pool, start).solve(master, deadline)


class RestrictedMaster:
    """Restricted master problem of a level and its nodes; columns of negative reduced cost are added."""

    def __init__(
        self, master: MasterProblem, pool: ColumnPool, start: IntArray, rows: IntArray | None = None
    ) -> None:
        """Build the linear program with the initial columns.

        Args:
            master: the level.
            start: initial columns, in addition to the empty columns.
            rows: the only columns of the pool to use, so that no patterns are priced; None: all columns.
        """
        self.master, self.pool = master, pool
        self.priced = rows is None and len(pool.subproblems.server) > 0
        self.servers, self.rows = master.servers, np.zeros(0, np.int64)
        self.weight, self.allowed, self.has = np.zeros(0), np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self.shared = np.zeros((0, len(master.limits)))
        self._take_in(np.arange(len(pool.columns)) if rows is None else rows)
        # Rows of the linear program: one column per server, then the shared limits.
        largest = float(np.abs(self.weight[self.allowed]).max(initial=0.0))
        self.tolerance = ROUNDING * max(largest, 1e-9)
        limits, count = master.limits, len(self.servers)
        self.lp = MasterLp(
            np.concatenate([np.ones(count), np.full(len(limits), -np.inf)]),
            np.concatenate([np.ones(count), limits]),
        )
        # Columns: an artificial one per server, so that the program is feasible; price steps; patterns.
        self.largest, self.penalty = max(largest, 1.0), 0
        every = np.arange(count)
        self.lp.add(np.full(count, ARTIFICIAL_COSTS[0] * self.largest), every, every, np.ones(count))
        start_of, row, value = master.step_entries()
        self.steps = len(master.step_weights)
        self.lp.add(master.step_weights, start_of[:-1], row, value)
        self.columns = np.zeros(0, np.int64)
        if self.steps:
            self._bound_steps()
        first = np.isin(self.rows, start) | ~pool.columns.served[self.rows]
        self._add(np.flatnonzero(first & self.allowed))

    def solve(
        self, master: MasterProblem, deadline: Deadline, cutoff: float = np.inf
    ) -> MasterSolution | None:
        """Solve, price and add columns until no column has a negative reduced cost.

        None if there was no time.

        Args:
            master: the level, or a node of it.
            deadline: time to stop; the bound is then that of the latest dual values.
            cutoff: only solutions below this value are needed. If the bound reaches it, servers that must be
                served can keep their artificial columns.

        Raises:
            SolverError: the solver failed.
        """
        self._enter(master)
        self._set_penalty(0)
        best: MasterSolution | None = None
        while not deadline.passed:
            result = self.lp.minimise(deadline.left_s)
            if result.outcome is not RunStatus.optimal or result.row_price is None or result.x is None:
                break
            count = len(self.servers)
            duals = self.master.capped(np.maximum(-result.row_price[count:], 0.0))
            of_server = np.full(len(self.pool.problem.priority), -np.inf)
            of_server[self.servers] = result.row_price[:count]
            reduced = priced(self.weight, self.shared, duals)
            # Add known columns first, and price patterns only if no known column improves the solution.
            if self._add_known(reduced, of_server):
                continue
            least, gained = self._price(duals, reduced)
            bound = lagrangian_bound(self.master, duals, least[self.servers])
            value = result.bound + self.master.objective.outside
            done = not gained or value - bound <= self.tolerance
            if best is None or bound > best.bound or done:
                best = self._solution(duals, bound, result.x, finished=done)
            if not done:
                continue
            # If a server still uses its artificial column, raise the cost of these columns until none does.
            if best.feasible or best.bound >= cutoff or self.penalty == len(ARTIFICIAL_COSTS) - 1:
                break
            self._set_penalty(self.penalty + 1)
        return best

    def _add(self, places: IntArray) -> None:
        """Add columns, given by their indices in `rows`, to the linear program."""
        if not len(places):
            return
        start, row, value = self.master.entries(self.pool.columns.take(self.rows[places]))
        self.lp.add(self.weight[places], start[:-1], row, value)
        self.columns = np.concatenate([self.columns, places])
        self.has[places] = True

    def _set_penalty(self, place: int) -> None:
        """Set the cost of the artificial columns to the item of `ARTIFICIAL_COSTS` at an index."""
        if place != self.penalty:
            self.penalty = place
            self.lp.reprice(np.full(len(self.servers), ARTIFICIAL_COSTS[place] * self.largest))

    def _enter(self, master: MasterProblem) -> None:
        """Update the linear program to new columns of the pool, and to the columns that a node allows."""
        self._take_in(self._new_rows())
        if master is self.master:
            return
        self.master = master
        self.allowed = master.allowed(self.pool.columns.take(self.rows)) & ~self.pool.excluded[self.rows]
        self._bound_steps()

    def _bound_steps(self) -> None:
        """Set the upper bounds of columns and price steps for the current node."""
        endless, sizes = np.full(len(self.servers), np.inf), self.master.step_sizes
        upper = np.where(self.allowed[self.columns], np.inf, 0.0)
        self.lp.allow(np.concatenate([endless, np.where(sizes >= ENDLESS, np.inf, sizes), upper]))

    def _new_rows(self) -> IntArray:
        """Return the columns that were added to the pool since the last call."""
        return np.arange(len(self.rows), len(self.pool.columns) if self.priced else 0)

    def _take_in(self, rows: IntArray) -> None:
        """Store the coefficients of columns of the pool without adding them to the linear program."""
        master, new = self.master, self.pool.columns.take(rows)
        self.rows = np.concatenate([self.rows, rows])
        self.weight = np.concatenate([self.weight, new.weights(master.objective)])
        self.shared = np.concatenate([self.shared, master.shared(new)])
        self.allowed = np.concatenate([self.allowed, master.allowed(new) & ~self.pool.excluded[rows]])
        self.has = np.concatenate([self.has, np.zeros(len(new), np.bool_)])

    def _add_known(self, reduced: FloatArray, of_server: FloatArray) -> bool:
        """Add the known columns with the least negative reduced costs; return whether there were any."""
        server = self.pool.columns.server[self.rows]
        reduced = reduced - of_server[server]
        better = np.flatnonzero(self.allowed & ~self.has & (reduced < -self.tolerance))
        self._add(_best_of_each(server[better], reduced[better], better))
        return len(better) > 0

    def _price(self, duals: FloatArray, reduced: FloatArray) -> tuple[FloatArray, bool]:
        """Price all patterns, and add new ones to the pool.

        Returns:
            The least reduced cost of each server over all its patterns, and whether any were added.
        """
        least = np.full(len(self.pool.problem.priority), np.inf)
        np.minimum.at(least, self.pool.columns.server[self.rows], np.where(self.allowed, reduced, np.inf))
        if not self.priced:
            return least, False
        known = np.isfinite(least)
        limit = np.where(known, np.where(known, least, 0.0) - self.tolerance, np.inf)
        result = self.pool.price_columns(self.master, duals, limit, only_best=True)
        columns, cost = result.columns, reduced_costs(self.master, result.columns, duals)
        np.minimum.at(least, columns.server, cost)
        self.pool.add(columns.take(_best_of_each(columns.server, cost, np.arange(len(columns)))))
        new = self._new_rows()
        self._take_in(new)
        self._add(new)
        return np.minimum(least, result.floor), len(new) > 0

    def _solution(self, duals: FloatArray, bound: float, x: FloatArray, *, finished: bool) -> MasterSolution:
        count = len(self.servers)
        feasible = bool(x[:count].max(initial=0.0) <= ROUNDING)
        count += self.steps
        taken = np.flatnonzero(x[count:] > ROUNDING)
        used = self.rows[self.columns[taken]]
        return MasterSolution(duals, bound, used, x[count:][taken], finished, feasible)


def _best_of_each(server: IntArray, cost: FloatArray, items: IntArray) -> IntArray:
    """Return the `EACH_ROUND` items of least cost of each server."""
    order = np.lexsort((cost, server))
    ordered = server[order]
    first = np.searchsorted(ordered, ordered)
    return items[order[np.arange(len(order)) - first < EACH_ROUND]]
