"""A level divided by what all servers take of each type together: whole units, where relaxations take parts.

Where what a pattern costs is mostly what its units cost, it hardly matters which server takes which, and a
division by servers leads nowhere. What counts is how many units of each type are taken, and few numbers of
them are near the best. The level is divided into boxes of these totals until the relaxation of the best box
takes whole units of every type; then it is a model of its own. Equation numbers refer to ``docs/math.md``.
"""

from bisect import insort
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.highs import HighsSession, RangedLp
from optimizer.solvers.model import Outcome
from optimizer.solvers.patterns.bounds import Ranged
from optimizer.solvers.patterns.dominance import essential
from optimizer.solvers.patterns.narrowing import SIMPLIFIED, Narrowing
from optimizer.solvers.patterns.options import Options
from optimizer.solvers.patterns.program import Program

SHARE = 0.7
"""Part of a level's time for this."""
MOST_OPTIONS = 20_000
"""Options up to which a level is divided."""
FIRST_S = 2.0
"""Most time of a box's model; one that is not solved in it waits, and gets twice as much [s]."""
WHOLE = 1e-5
"""Distance of a total from a whole number that is rounding."""


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
        distance = np.abs(self.totals - np.round(self.totals))
        row = int(np.argmax(distance))
        return row if distance[row] > WHOLE else None


class TotalsTree:
    """The boxes that can hold an answer below a cutoff, the one of the least bound first."""

    def __init__(self, program: Program, options: Options, cutoff: float) -> None:
        """Begin without any box.

        Args:
            program: the level.
            options: all that an answer below the cutoff can have.
            cutoff: what an answer has to be below.
        """
        self.cutoff, self.units = cutoff, options.units
        self.most = program.limits
        self.least = np.full(len(self.most), -np.inf)
        self.model = program.model(options)
        self.options = Ranged(
            weight=program.measure.of(options),
            shared=program.shared(options),
            place=np.searchsorted(program.servers, options.server),
            servers=len(program.servers),
        )
        self.lp = RangedLp(self.model, self.options.weight)
        self.boxes: list[Box] = []

    @property
    def bound(self) -> float:
        """What no answer is below, unless the cutoff is less."""
        return min(self.cutoff, self.boxes[0].bound) if self.boxes else self.cutoff

    @property
    def best(self) -> Box | None:
        """The box of the least bound."""
        return self.boxes[0] if self.boxes else None

    def begin(self, deadline: Deadline) -> bool:
        """Begin with all answers; return whether there was time for their relaxation.

        Raises:
            SolverError: the solver failed.
        """
        types = self.units.shape[1]
        root = self._relaxed(np.zeros(types), self.most[:types], -np.inf, deadline)
        if root is not None:
            self._keep(root)
        return root is not None

    def whole(self, deadline: Deadline) -> Box | None:
        """Divide the best box until the best takes whole units of every type.

        Returns:
            That box; none if no box is left, or there was no time.

        Raises:
            SolverError: the solver failed.
        """
        while self.boxes:
            best = self.boxes[0]
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
            del self.boxes[0]
            self._keep(below)
            self._keep(above)
        return None

    def lower(self, cutoff: float) -> None:
        """Look for answers below a cutoff that is no higher than the one before."""
        self.cutoff = min(self.cutoff, cutoff)
        self.boxes = [box for box in self.boxes if box.bound < self.cutoff]

    def solve(self, box: Box, gap: float, deadline: Deadline) -> IntArray | None:
        """Solve the model of a box, as far as there is time; return what it found, as options of the tree.

        Args:
            box: the best box.
            gap: relative distance of value and bound at which to stop.
            deadline: when to stop.

        Raises:
            SolverError: the solver failed.
        """
        lower, upper = self._limits(box.least, box.most)
        bound, over = self.options.bound(box.prices, lower, upper)
        near = np.flatnonzero(over <= self.cutoff - bound)
        servers = len(self.model.row_upper) - len(upper)
        ones = np.ones(servers)
        model = replace(
            self.model.only(near),
            row_lower=np.concatenate([ones, lower]),
            row_upper=np.concatenate([ones, upper]),
        )
        result = HighsSession(model, lean=True).solve_at_once(
            self.options.weight[near],
            None,
            gap,
            min(box.time_s, deadline.left_s),
            simplified=len(near) <= SIMPLIFIED * servers,
            cutoff=self.cutoff,
        )
        found = self.cutoff if result.outcome is Outcome.infeasible else result.bound
        self.boxes.remove(box)
        self._keep(replace(box, bound=max(box.bound, found), time_s=2 * box.time_s))
        return None if result.x is None else near[result.x > 0.5]

    def _keep(self, box: Box) -> None:
        """Take in a box if it can hold an answer below the cutoff."""
        if box.bound < self.cutoff:
            insort(self.boxes, box, key=lambda each: each.bound)

    def _limits(self, least: FloatArray, most: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the limits of all shared rows, lower and upper, of a box."""
        types = len(least)
        return np.concatenate([least, self.least[types:]]), np.concatenate([most, self.most[types:]])

    def _relaxed(self, least: FloatArray, most: FloatArray, bound: float, deadline: Deadline) -> Box | None:
        """Return a part of a box, with what its relaxation says; none if the time did not suffice.

        Args:
            least: units that are taken at least, shape (K,).
            most: units that are taken at most, shape (K,).
            bound: of the box.
            deadline: when to stop.
        """
        lower, upper = self._limits(least, most)
        rows = np.arange(len(self.model.row_upper) - len(upper), len(self.model.row_upper))
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
    relaxed, units = level.root.relaxed, level.pool.options.units
    totals = relaxed.part @ units[relaxed.used]
    if level.proved or deadline.passed or not level.feasible or _are_whole(totals):
        return
    options = level.options_of_better(MOST_OPTIONS)
    if options is None:
        return
    options = options[essential(level.program, level.pool.options.take(options))]
    due, tree = (
        deadline.share(SHARE),
        TotalsTree(level.program, level.pool.options.take(options), level.cutoff),
    )
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


def _are_whole(totals: FloatArray) -> bool:
    return bool((np.abs(totals - np.round(totals)) <= WHOLE).all())
