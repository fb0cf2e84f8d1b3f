"""Result of a solver: replicas, and the value, bound and gap of each level."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from optimizer.arrays import IntArray
from optimizer.tolerances import ROUNDING

SolverName = Literal["separable", "milp", "greedy"]


class Status(StrEnum):
    """Proof status of a solution."""

    optimal = "optimal"
    """Proved within the gap, at every level."""
    feasible = "feasible"
    """The solver stopped early."""
    heuristic = "heuristic"
    """Found without a proof."""


@dataclass(frozen=True, slots=True)
class SolvedLevel:
    """One level of the lexicographic order with its result."""

    name: str
    value: float
    bound: float | None
    """Lower bound of the value, given the earlier levels; None if nothing is proved."""

    @property
    def gap(self) -> float | None:
        """Relative distance between value and bound."""
        if self.bound is None:
            return None
        return max(self.value - self.bound, 0.0) / max(abs(self.value), 1e-9)

    def is_proved(self, gap: float) -> bool:
        """Return whether value and bound differ by at most the gap."""
        return self.gap is not None and self.gap <= max(gap, ROUNDING)


@dataclass(frozen=True, slots=True)
class Solution:
    """Solution of a solver."""

    replicas: IntArray
    """Replicas of each candidate, 0 if not chosen; shape (C,)."""
    status: Status
    solver: SolverName
    levels: tuple[SolvedLevel, ...]

    def level(self, name: str) -> SolvedLevel:
        """Return the level of that name."""
        return next(level for level in self.levels if level.name == name)
