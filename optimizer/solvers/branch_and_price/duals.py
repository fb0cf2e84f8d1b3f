"""Dual values for the levels of a solution, and the bounds that they prove without a solver.

The dual values come from one relaxation per level. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from optimizer.arrays import BoolArray, FloatArray
from optimizer.solvers.branch_and_price.bounds import lagrangian_bound
from optimizer.solvers.branch_and_price.master import MasterProblem
from optimizer.solvers.branch_and_price.pool import ColumnPool, least_of_servers
from optimizer.solvers.deadline import Deadline
from optimizer.solvers.levels import with_outside
from optimizer.solvers.objectives import LevelConstraint
from optimizer.solvers.problem import Problem
from optimizer.tolerances import value_slack

WHOLE = 1e-6
"""Relative tolerance used when the bound of an integer level is rounded up."""


@dataclass(frozen=True, slots=True)
class DualMultipliers:
    """Dual values that prove a bound of one level."""

    level: str
    limits: FloatArray
    """Dual value per unit of each limited item, at least 0, shape (R,)."""
    levels: Mapping[str, float]
    """Dual value per step of each earlier level, at least 0."""


@dataclass(frozen=True, slots=True)
class DualLevel:
    """A level of a solution; earlier levels are constrained to the values that the solution reaches."""

    name: str
    master: MasterProblem
    left_out: BoolArray
    """Mask of the servers that the solution does not serve, shape (S,)."""

    @property
    def whole(self) -> bool:
        """Whether the values of the level are integers."""
        return bool(self.master.objective.step)

    def reported(self, bound: float) -> float:
        """Convert a bound of the master problem to a bound of the level in its reported unit."""
        least = float(np.ceil(bound - WHOLE * max(1.0, abs(bound)) ** 0.5)) if self.whole else bound
        return self.master.objective.reported(least, self.left_out)

    def duals(self, multipliers: DualMultipliers) -> FloatArray:
        """Return dual values in the order of the master problem's shared rows."""
        candidates = self.master.candidates
        held = [multipliers.levels.get(each.objective.name, 0.0) for each in self.master.held]
        duals: FloatArray = np.concatenate([multipliers.limits[candidates.limits] * candidates.divisor, held])
        return duals

    def multipliers(self, duals: FloatArray, limits: int) -> DualMultipliers:
        """Assign the dual values of the master problem's rows to limited items and earlier levels."""
        candidates = self.master.candidates
        prices = np.zeros(limits)
        prices[candidates.limits] = duals[: len(candidates.limits)] / candidates.divisor
        names = [each.objective.name for each in self.master.held]
        held = dict(zip(names, duals[len(candidates.limits) :].tolist(), strict=True))
        return DualMultipliers(self.name, prices, {name: dual for name, dual in held.items() if dual})


class DualBounds:
    """Levels of a solution, and the bounds that dual values prove for them."""

    def __init__(self, problem: Problem, left_out: BoolArray, reached: Mapping[str, float]) -> None:
        """Store the solution whose levels are bounded.

        Args:
            problem: the planning problem.
            left_out: mask of the servers that the solution does not serve, shape (S,).
            reached: transition cost of the solution, and its amount of each goal, by level name.
        """
        self.problem, self.left_out, self.reached = problem, left_out, reached
        self.pool = ColumnPool.of(problem)
        self.outside = ~np.isin(np.arange(len(problem.priority)), self.pool.candidates.server)

    def levels(self) -> Iterator[DualLevel]:
        """Yield the levels in order. Servers of a level without unserved load stay served at later levels."""
        held: tuple[LevelConstraint, ...] = ()
        settled, nobody = np.zeros((2, len(self.problem.priority)), np.bool_)
        for objective in with_outside(self.problem, self.outside):
            master = MasterProblem(self.pool.candidates, objective, held, settled, nobody)
            yield DualLevel(objective.name, master, self.left_out)
            if not objective.is_service:
                value = self.reached[objective.name]
                held = (*held, LevelConstraint(objective, value + value_slack(value)))
            elif objective.steps(self.left_out) > objective.outside:
                held = (*held, LevelConstraint(objective, objective.steps(self.left_out)))
            else:
                settled = settled | (objective.on_unserved > 0)

    def bound(self, level: DualLevel, multipliers: DualMultipliers) -> float:
        """Return the bound of a level that dual values prove."""
        duals = level.master.capped(np.maximum(level.duals(multipliers), 0.0))
        least = least_of_servers(level.master, self.pool, duals)
        return level.reported(lagrangian_bound(level.master, duals, least[level.master.servers]))

    def multipliers(
        self, reached: Mapping[str, float], deadline: Deadline
    ) -> list[tuple[DualLevel, DualMultipliers, float]]:
        """Return dual values of each level, from one relaxation each, and the bounds that they prove.

        If a relaxation does not finish in time, its level gets the bound that holds without dual values.

        Args:
            reached: value of each level in the solution.
            deadline: time to stop.

        Raises:
            SolverError: the solver failed.
        """
        # Checking a proof needs no solver, so the solver is imported only here.
        from optimizer.solvers.branch_and_price.generation import generate_columns

        multipliers, limits, nothing = [], len(self.problem.limits), np.zeros(0, np.int64)
        for level in self.levels():
            none = DualMultipliers(level.name, np.zeros(limits), {})
            bound, best = self.bound(level, none), none
            if bound < reached[level.name] and len(level.master.servers) and not deadline.passed:
                relaxed = generate_columns(level.master, self.pool, nothing, deadline.share(0.5))
                priced = none if relaxed is None else level.multipliers(relaxed.duals, limits)
                by_price = self.bound(level, priced)
                if by_price > bound:
                    bound, best = by_price, priced
            multipliers.append((level, best, bound))
        return multipliers
