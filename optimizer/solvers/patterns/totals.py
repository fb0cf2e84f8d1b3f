"""A level divided by what all servers take of each type together: whole units, where relaxations take parts.

Where what a pattern costs is mostly what its units cost, it hardly matters which server takes which, and a
division by servers leads nowhere. What counts is how many units of each type are taken, and few numbers of
them are near the best. The level is divided into boxes of these totals until the relaxation of the best box
takes whole units of every type; then it is a model of its own. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import HighsSession, RangedLp
from optimizer.solvers.model import Outcome
from optimizer.solvers.patterns.bounds import Ranged
from optimizer.solvers.patterns.branching import BestFirst
from optimizer.solvers.patterns.narrowing import Narrowing
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.packing import ROUNDING
from optimizer.solvers.patterns.program import Program

SHARE = 0.7
"""Part of a level's time for this."""
MOST_OPTIONS = 20_000
"""Options up to which a level is divided."""
FIRST_S = 2.0
"""Most time of a box's model; one that is not solved in it waits, and gets twice as much [s]."""


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """The answers of a level that take so many units of each type, and what their relaxation says."""

    least: FloatArray
    """Units that are taken at least, in multiples of each row's divisor; shape (K,)."""
    most: FloatArray
    """Units that are taken at most, shape (K,)."""
    bound: float
    """What the answers measure at least."""
    prices: FloatArray
    """Multipliers of the shared rows, below zero where upper limits count; shape (rows,)."""
    totals: FloatArray
    """Units that the relaxation takes, shape (K,)."""
    time_s: float = FIRST_S
    """How long its model may take."""

    @property
    def open_row(self) -> int | None:
        """The capacity row of which the units taken are furthest from a whole number; none: all are whole."""
        return open_row(self.totals)


class TotalsTree(BestFirst[Box]):
    """The boxes of a level."""

    def __init__(self, program: Program, options: Options, cutoff: float) -> None:
        """Begin without any box.

        Args:
            program: the level.
            options: all that an answer below the cutoff can have.
            cutoff: what an answer has to be below.
        """
        super().__init__(cutoff)
        self.units, self.limits = options.units, program.limits
        self.model = program.model(options)
        self.options = Ranged(
            weight=program.measure.of(options),
            shared=program.shared(options),
            place=np.searchsorted(program.servers, options.server),
            servers=len(program.servers),
        )
        self.lp = RangedLp(self.model, self.options.weight)

    def begin(self, deadline: Deadline) -> bool:
        """Begin with a box of all answers; return whether there was time for its relaxation.

        Raises:
            SolverError: the solver failed.
        """
        types = self.units.shape[1]
        root = self._relaxed(np.zeros(types), self.limits[:types], -np.inf, deadline)
        if root is not None:
            self.keep(root)
        return root is not None

    def whole(self, deadline: Deadline) -> Box | None:
        """Divide the best box until the best takes whole units of every type.

        Returns:
            That box; none if no box is left, or there was no time.

        Raises:
            SolverError: the solver failed.
        """
        while self.branches:
            best = self.branches[0]
            row = best.open_row
            if row is None:
                return best
            down, up = best.most.copy(), best.least.copy()
            down[row] = np.floor(best.totals[row])
            up[row] = down[row] + 1
            below = self._relaxed(best.least, down, best.bound, deadline)
            above = self._relaxed(up, best.most, best.bound, deadline)
            if below is None or above is None:
                return None
            del self.branches[0]
            self.keep(below)
            self.keep(above)
        return None

    def solve(self, box: Box, gap: float, deadline: Deadline) -> IntArray | None:
        """Solve the model of a box, as far as there is time; return what it found, as options of the tree.

        Args:
            box: one of the boxes.
            gap: relative distance of value and bound at which to stop.
            deadline: when to stop.

        Raises:
            SolverError: the solver failed.
        """
        lower, upper = self._limits(box.least, box.most)
        bound, over = self.options.bound(box.prices, lower, upper)
        near = np.flatnonzero(over <= self.cutoff - bound)
        servers = np.ones(self.options.servers)
        model = replace(
            self.model.only(near),
            row_lower=np.concatenate([servers, lower]),
            row_upper=np.concatenate([servers, upper]),
        )
        session, time_s = HighsSession(model, lean=True), min(box.time_s, deadline.left_s)
        result = session.solve_at_once(self.options.weight[near], None, gap, time_s, cutoff=self.cutoff)
        found = self.cutoff if result.outcome is Outcome.infeasible else result.bound
        self.branches.remove(box)
        self.keep(replace(box, bound=max(box.bound, found), time_s=2 * box.time_s))
        return None if result.x is None else near[result.x > 0.5]

    def _limits(self, least: FloatArray, most: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the limits of all shared rows, lower and upper, of a box."""
        others = self.limits[len(most) :]
        return np.concatenate([least, np.full(len(others), -np.inf)]), np.concatenate([most, others])

    def _relaxed(self, least: FloatArray, most: FloatArray, bound: float, deadline: Deadline) -> Box | None:
        """Return a part of a box, with what its relaxation says; none if the time did not suffice.

        Args:
            least: units that are taken at least, shape (K,).
            most: units that are taken at most, shape (K,).
            bound: of the box.
            deadline: when to stop.
        """
        lower, upper = self._limits(least, most)
        rows = self.options.servers + np.arange(len(upper))
        self.lp.limit(rows, lower, upper)
        result = self.lp.minimise(deadline.left_s)
        if result.outcome is Outcome.time_limit or result.row_price is None:
            return None
        prices = result.row_price[rows]
        if result.x is None:
            # Along these prices the bound grows without end, in the one direction or the other.
            growth = max(self.options.bound(ray, lower, upper, scale=0.0)[0] for ray in (prices, -prices))
            return Box(least, most, np.inf, prices, most) if growth > 0 else None
        mine, _ = self.options.bound(prices, lower, upper)
        return Box(least, most, max(mine, bound), prices, result.x @ self.units)


def divide_totals(level: Narrowing, deadline: Deadline) -> None:
    """Divide a level by the units of types, and bound it by what was found; keep a better answer.

    Nothing is done where the relaxation takes whole units of every type, or options are too many.

    Args:
        level: the level.
        deadline: when the level is due.

    Raises:
        SolverError: the solver failed.
    """
    relaxed = level.root.relaxed
    totals = relaxed.part @ level.pool.options.units[relaxed.used]
    if level.proved or deadline.passed or not level.feasible or open_row(totals) is None:
        return
    options = level.options_of_better(MOST_OPTIONS)
    if options is None:
        return
    options = level.essential(options)
    due = deadline.share(SHARE)
    tree = TotalsTree(level.program, level.pool.options.take(options), level.cutoff)
    if not tree.begin(due):
        return
    box = tree.best
    while box is not None and not due.passed:
        found = tree.solve(box, level.gap, due)
        if found is not None:
            level.offer(options[found])
        tree.lower(level.cutoff)
        box = tree.whole(due)
    level.bound = max(level.bound, min(tree.bound, level.value))


def open_row(totals: FloatArray) -> int | None:
    """Return the capacity row whose units taken, shape (K,), are furthest from whole; none: all are whole."""
    distance = np.abs(totals - np.round(totals))
    return int(np.argmax(distance)) if (distance > ROUNDING).any() else None
