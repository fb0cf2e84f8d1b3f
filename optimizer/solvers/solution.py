"""Result of a solver: replicas, and the value, bound and gap of each lexicographic level."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from optimizer.arrays import IntArray
from optimizer.tolerances import ROUNDING

SolverName = Literal["separable", "milp", "greedy"]


class Status(StrEnum):
    """Whether a solution is proved optimal, or how it was found."""

    optimal = "optimal"
    """Proved within the gap at every level."""
    feasible = "feasible"
    """The solver stopped before a proof."""
    heuristic = "heuristic"
    """Found by a heuristic, without a proof."""


@dataclass(frozen=True, slots=True)
class SolvedLevel:
    """A lexicographic level with its result."""

    name: str
    value: float
    bound: float | None
    """Lower bound of the value, given the earlier levels; None if nothing is proved."""

    @property
    def gap(self) -> float | None:
        """Relative difference between value and bound; None without a bound."""
        if self.bound is None:
            return None
        return max(self.value - self.bound, 0.0) / max(abs(self.value), 1e-9)

    def is_proved(self, gap: float) -> bool:
        """Return whether value and bound differ by at most a relative gap."""
        return self.gap is not None and self.gap <= max(gap, ROUNDING)


@dataclass(frozen=True, slots=True)
class Solution:
    """Solution of a planning problem."""

    replicas: IntArray
    """Number of replicas of each candidate, 0 if not chosen, shape (C,)."""
    status: Status
    solver: SolverName
    levels: tuple[SolvedLevel, ...]

    def level(self, name: str) -> SolvedLevel:
        """Return the level with a name."""
        return next(level for level in self.levels if level.name == name)
