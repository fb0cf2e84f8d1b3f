"""The relaxation of a level over all patterns: few columns, more by price, and a bound from its multipliers.

Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import GrowingLp
from optimizer.solvers.model import Outcome
from optimizer.solvers.patterns.bounds import bound_of
from optimizer.solvers.patterns.pool import Below, Pool, priced, reduced_costs
from optimizer.solvers.patterns.program import Program

ENOUGH = 10
"""Patterns of a server that a search for better ones finds before it looks for nothing but the best."""
EACH_ROUND = 3
"""Columns that a server gets at most in one round."""
ROUNDING = 1e-9
"""Part of the largest weight of an option that counts as nothing."""
MISSING = (1e1, 1e3, 1e5, 1e7, 1e9)
"""Prices of a server that takes nothing where it must not, in parts of the largest weight.

The higher ones count only where a cutoff is to be reached: a limit on large weights is kept by leaving out a
tiny part of a server.
"""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the relaxation of a level says."""

    prices: FloatArray
    """Multipliers of the shared rows, not below zero."""
    bound: float
    """What they prove: no answer is less."""
    used: IntArray
    """Options of the pool that the relaxation takes in part or whole, shape (U,)."""
    part: FloatArray
    """How much of each of them, shape (U,)."""
    finished: bool
    """Whether no option could lower the relaxation any further."""
    served: bool
    """Whether the relaxation serves all that must be served."""
    value: float = np.inf
    """Optimum of the relaxation over the columns that it has."""


def relax(program: Program, pool: Pool, start: IntArray, deadline: Deadline) -> Relaxed | None:
    """Solve the relaxation of a level over all patterns; those found on the way are added to the pool.

    Args:
        program: the level.
        pool: the options.
        start: options to begin with.
        deadline: when to stop; what the multipliers at hand prove then is the bound.

    Returns:
        None if the time did not suffice for any multipliers.

    Raises:
        SolverError: the solver failed.
    """
    return Relaxation(program, pool, start).solve(program, deadline)


class Relaxation:
    """A linear model over a few options of each server, which grows."""

    def __init__(self, program: Program, pool: Pool, start: IntArray) -> None:
        self.program, self.pool = program, pool
        self.servers = program.servers
        self.weight, self.allowed, self.has = np.zeros(0), np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self.shared = np.zeros((0, len(program.limits)))
        self._know()
        largest = float(np.abs(self.weight[self.allowed]).max(initial=0.0))
        self.tolerance = ROUNDING * max(largest, 1e-9)
        limits, count = program.limits, len(self.servers)
        self.lp = GrowingLp(
            np.concatenate([np.ones(count), np.full(len(limits), -np.inf)]),
            np.concatenate([np.ones(count), limits]),
        )
        self.largest, self.missing = max(largest, 1.0), 0
        every = np.arange(count)
        self.lp.add(np.full(count, MISSING[0] * self.largest), every, every, np.ones(count))
        self.columns = np.zeros(0, np.int64)
        self._add(np.unique(start[self.allowed[start]]))

    def _add(self, options: IntArray) -> None:
        start, row, value = self.program.columns(self.pool.options.take(options))
        self.lp.add(self.weight[options], start[:-1], row, value)
        self.columns = np.concatenate([self.columns, options])
        self.has[options] = True

    def solve(self, program: Program, deadline: Deadline, cutoff: float = -np.inf) -> Relaxed | None:
        """Solve, price and grow until nothing is gained any more; none if the time did not suffice.

        Args:
            program: the level, or a branch of it.
            deadline: when to stop; what the multipliers at hand prove then is the bound.
            cutoff: up to which bound it matters that all are served that must be.

        Raises:
            SolverError: the solver failed.
        """
        self._enter(program)
        self._price_missing(0)
        best: Relaxed | None = None
        while not deadline.passed:
            result = self.lp.minimise(deadline.left_s)
            if result.outcome is not Outcome.optimal or result.row_price is None or result.x is None:
                break
            count = len(self.servers)
            prices = np.maximum(-result.row_price[count:], 0.0)
            dual = np.full(len(self.pool.problem.priority), -np.inf)
            dual[self.servers] = result.row_price[:count]
            reduced = priced(self.weight, self.shared, prices)
            if self._grown(reduced, dual):
                continue
            least, gained = self._least_of_all(prices, reduced, len(dual))
            bound = bound_of(self.program, prices, least[self.servers])
            done = not gained or result.bound - bound <= self.tolerance
            if best is None or bound > best.bound or done:
                best = self._relaxed(prices, bound, result.x, result.bound, finished=done)
            if not done:
                continue
            if best.served or best.bound >= cutoff or self.missing == len(MISSING) - 1:
                break
            self._price_missing(self.missing + 1)
        return best

    def _price_missing(self, place: int) -> None:
        """Give a server that takes nothing where it must not the price of a place in their order."""
        if place != self.missing:
            self.missing = place
            self.lp.reprice(np.full(len(self.servers), MISSING[place] * self.largest))

    def _enter(self, program: Program) -> None:
        """Take in what the pool has grown to, and let those columns take part that a branch allows."""
        self._know()
        if program is self.program:
            return
        self.program = program
        self.allowed = program.allowed(self.pool.options) & ~self.pool.gone
        everyone = np.ones(len(self.servers), np.bool_)
        self.lp.allow(np.concatenate([everyone, self.allowed[self.columns]]))

    def _know(self) -> IntArray:
        """Take in what the pool has grown to since it was last looked at; return these options."""
        program, rows = self.program, np.arange(len(self.weight), len(self.pool.options))
        if not len(rows):
            return rows
        new = self.pool.options.take(rows)
        self.weight = np.concatenate([self.weight, program.measure.of(new)])
        self.shared = np.concatenate([self.shared, program.shared(new)])
        self.allowed = np.concatenate([self.allowed, program.allowed(new) & ~self.pool.gone[rows]])
        self.has = np.concatenate([self.has, np.zeros(len(new), np.bool_)])
        return rows

    def _grown(self, reduced: FloatArray, dual: FloatArray) -> bool:
        """Add the options of the pool that lower the relaxation most; return whether there were any."""
        reduced = reduced - dual[self.pool.options.server]
        better = np.flatnonzero(self.allowed & ~self.has & (reduced < -self.tolerance))
        if not len(better):
            return False
        self._add(_best_of_each(self.pool.options.server[better], reduced[better], better))
        return True

    def _least_of_all(self, prices: FloatArray, reduced: FloatArray, servers: int) -> tuple[FloatArray, bool]:
        """Return the least reduced cost of each server over all patterns, and whether new ones were added."""
        reduced = np.where(self.allowed, reduced, np.inf)
        least = np.full(servers, np.inf)
        np.minimum.at(least, self.pool.options.server, reduced)
        if not len(self.pool.cases.server):
            return least, False
        limit = np.where(np.isfinite(least), least, 0.0)
        limit = np.where(np.isfinite(least), limit - self.tolerance, np.inf)
        below = self.pool.below(self.program, prices, limit, enough=ENOUGH)
        gained, lowest = self._gained(prices, below)
        if not gained and not below.complete:
            below = self.pool.below(self.program, prices, limit)
            gained, lowest = self._gained(prices, below)
        return np.minimum(least, lowest), gained

    def _gained(self, prices: FloatArray, below: Below) -> tuple[bool, FloatArray]:
        """Add the best patterns of a search; return whether any is new, and the least of each server."""
        found, least = below.options, below.floor.copy()
        cost = reduced_costs(self.program, found, prices)
        np.minimum.at(least, found.server, cost)
        self.pool.add(found.take(_best_of_each(found.server, cost, np.arange(len(found)))))
        new = self._know()
        if len(new):
            self._add(new)
        return len(new) > 0, least

    def _relaxed(
        self, prices: FloatArray, bound: float, x: FloatArray, value: float, *, finished: bool
    ) -> Relaxed:
        count = len(self.servers)
        taken = np.flatnonzero(x[count:] > ROUNDING)
        return Relaxed(
            prices=prices,
            bound=bound,
            used=self.columns[taken],
            part=x[count:][taken],
            finished=finished,
            served=bool(x[:count].max(initial=0.0) <= ROUNDING),
            value=value,
        )


def _best_of_each(server: IntArray, cost: FloatArray, items: IntArray) -> IntArray:
    """Return the items of least cost of each server, a few of them."""
    order = np.lexsort((cost, server))
    ordered = server[order]
    first = np.searchsorted(ordered, ordered)
    return items[order[np.arange(len(order)) - first < EACH_ROUND]]
