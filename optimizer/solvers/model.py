"""A mixed-integer model as plain arrays, and what one run gives: the common ground of all backends."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from optimizer.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class MilpModel:
    """Minimise objectives over lower ≤ x ≤ upper and row_lower ≤ A·x ≤ row_upper, some x whole."""

    lower: FloatArray
    """Shape (n,)."""
    upper: FloatArray
    """Shape (n,)."""
    whole: BoolArray
    """Which variables are whole numbers, shape (n,)."""
    row_start: IntArray
    """First entry of each row, and the number of entries at the end; shape (rows + 1,)."""
    row_index: IntArray
    row_value: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray


class Outcome(StrEnum):
    """How one solver run ended; every status of every solver maps to one of these."""

    optimal = "optimal"
    infeasible = "infeasible"
    time_limit = "time_limit"


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one solver run found."""

    outcome: Outcome
    x: FloatArray | None
    """The best point found, whole where it must be; none if none was found."""
    bound: float
    """Proved lower bound of the objective; minus infinity where there is none."""
    run_s: float
    """Time in the solver's own run [s]."""
    reduced_cost: FloatArray | None = None
    """Of the relaxation, where that is what was solved; shape (n,)."""


class Session(Protocol):
    """A model loaded into a solver, to be minimised under growing requirements."""

    def add_limit(self, coefficients: FloatArray, upper: float) -> None:
        """Require coefficients·x ≤ upper from now on."""

    def set_upper(self, variables: IntArray, upper: float) -> None:
        """Change the upper bounds of some variables."""

    def minimise(
        self, objective: FloatArray, start: FloatArray | None, gap: float, time_limit_s: float
    ) -> RunResult:
        """Minimise objective·x, from a feasible point where one is known.

        Raises:
            SolverError: the solver failed.
        """
