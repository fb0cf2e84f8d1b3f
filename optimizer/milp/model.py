"""A mixed-integer model as plain arrays, the collection of its rows, and the result of a solver run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.tolerances import ROW

COVER_SCALE = 1e3
"""Factor on the rows of loads, so that the solver's absolute tolerance of 1e-6 is 1e-9 of the load."""


@dataclass(frozen=True, slots=True)
class MilpModel:
    """Constraints of a mixed-integer model: lower ≤ x ≤ upper, row_lower ≤ A·x ≤ row_upper, some x integer.

    A is stored by rows. The objective is an argument of the solver.
    """

    lower: FloatArray
    """Lower bounds of the variables, shape (n,)."""
    upper: FloatArray
    """Upper bounds of the variables, shape (n,)."""
    integer: BoolArray
    """Mask of the integer variables, shape (n,)."""
    row_start: IntArray
    """Index of the first entry of each row of A, followed by the number of entries; shape (rows + 1,)."""
    row_index: IntArray
    row_value: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray

    @classmethod
    def of_entries(
        cls,
        upper: FloatArray,
        integer: BoolArray,
        rows: tuple[FloatArray, FloatArray],
        entries: tuple[IntArray, IntArray, FloatArray],
    ) -> "MilpModel":
        """Return the model with given entries of A in any order; the lower bounds of variables are 0.

        Args:
            upper: upper bounds of the variables, shape (n,).
            integer: mask of the integer variables, shape (n,).
            rows: lower and upper bounds of the rows.
            entries: row, variable and coefficient of each entry, shapes (e,).
        """
        row, index, value = entries
        order = np.lexsort((index, row))
        start = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(rows[0])))])
        return cls(np.zeros(len(upper)), upper, integer, start, index[order], value[order], *rows)

    def widened(self, upper: FloatArray, entries: tuple[IntArray, IntArray, FloatArray]) -> "MilpModel":
        """Return the model with k additional variables, whose lower bounds are 0.

        Args:
            upper: upper bounds of the new variables, shape (k,).
            entries: row, index of the new variable (0 to k - 1) and coefficient of each entry, shapes (e,).
        """
        row, variable, coefficient = entries
        widened = MilpModel.of_entries(
            np.concatenate([self.upper, upper]),
            np.concatenate([self.integer, np.zeros(len(upper), np.bool_)]),
            (self.row_lower, self.row_upper),
            (
                np.concatenate([self._entry_rows, row]),
                np.concatenate([self.row_index, len(self.upper) + variable]),
                np.concatenate([self.row_value, coefficient]),
            ),
        )
        return replace(widened, lower=np.concatenate([self.lower, np.zeros(len(upper))]))

    @property
    def _entry_rows(self) -> IntArray:
        """Row of each entry of A."""
        return np.repeat(np.arange(len(self.row_upper)), np.diff(self.row_start))

    def with_limit(self, coefficients: FloatArray, upper: float) -> "MilpModel":
        """Return the model with one more constraint, coefficients·x ≤ upper."""
        used = np.flatnonzero(coefficients)
        return replace(
            self,
            row_start=np.append(self.row_start, self.row_start[-1] + len(used)),
            row_index=np.concatenate([self.row_index, used]),
            row_value=np.concatenate([self.row_value, coefficients[used]]),
            row_lower=np.append(self.row_lower, -np.inf),
            row_upper=np.append(self.row_upper, upper),
        )

    def holds(self, x: FloatArray) -> bool:
        """Return whether a point, shape (n,), satisfies every bound and row."""
        body = np.bincount(
            self._entry_rows, self.row_value * x[self.row_index], minlength=len(self.row_upper)
        )
        integral = not (x[self.integer] % 1).any()
        within = (x >= self.lower).all() and (x <= self.upper).all()
        kept = (body >= self.row_lower - ROW) & (body <= self.row_upper + ROW)
        return bool(integral and within and kept.all())


@dataclass(slots=True)
class ModelRows:
    """Collects the rows (constraints) of a model."""

    count: int = 0
    bounds: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)
    """Lower and upper bounds of each block of rows."""
    entries: list[tuple[IntArray, IntArray, FloatArray]] = field(default_factory=list)
    """Row, variable and coefficient of the entries, in blocks."""

    def add(
        self,
        lower: FloatArray,
        upper: FloatArray,
        *entries: tuple[IntArray, IntArray, FloatArray],
    ) -> IntArray:
        """Add a block of R rows; return their indices in the model.

        Args:
            lower: lower bounds, shape (R,).
            upper: upper bounds, shape (R,).
            entries: row within the block, variable and coefficient of each entry.
        """
        self.entries += [(row + self.count, index, coefficient) for row, index, coefficient in entries]
        self.bounds.append((lower, upper))
        self.count += len(lower)
        return np.arange(self.count - len(lower), self.count)

    def add_one(
        self, lower: float, upper: float, *entries: tuple[npt.ArrayLike | Sequence[int], npt.ArrayLike]
    ) -> None:
        """Add one row; each of `entries` has variables and their coefficients."""
        index = np.concatenate([np.asarray(part, np.int64) for part, _ in entries])
        value = np.concatenate([np.asarray(part, np.float64) for _, part in entries])
        self.add(np.array([lower]), np.array([upper]), (np.zeros(len(index), np.int64), index, value))

    def join(self, other: "ModelRows") -> None:
        """Add all rows of another collection."""
        self.entries += [(row + self.count, index, coefficient) for row, index, coefficient in other.entries]
        self.bounds += other.bounds
        self.count += other.count

    def model(self, variable_upper: FloatArray, integer: BoolArray) -> MilpModel:
        """Create the model with these rows; the lower bounds of variables are 0."""
        lower, upper = map(np.concatenate, zip(*self.bounds, strict=True))
        row, index, coefficient = map(np.concatenate, zip(*self.entries, strict=True))
        return MilpModel.of_entries(variable_upper, integer, (lower, upper), (row, index, coefficient))


class RunStatus(StrEnum):
    """Status of a solver run, to which the statuses of all solvers are mapped."""

    optimal = "optimal"
    infeasible = "infeasible"
    time_limit = "time_limit"


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one solver run."""

    outcome: RunStatus
    x: FloatArray | None
    """Best point found, shape (n,), with exact integers for integer variables; None if none was found."""
    bound: float
    """Proved lower bound of the objective; -inf if there is none."""
    run_s: float
    """Run time of the solver [s]."""
    row_price: FloatArray | None = None
    """Dual values of the relaxation, shape (rows,): change of the objective per unit of each row's bound."""


class Session(ABC):
    """A model in a solver that can be minimised for several objectives, with constraints added in between."""

    def __init__(self, model: MilpModel) -> None:
        self.model = model

    def add_limit(self, coefficients: FloatArray, upper: float) -> None:
        """Add the constraint coefficients·x ≤ upper for all further runs."""
        self.model = self.model.with_limit(coefficients, upper)

    def set_upper(self, variables: IntArray, upper: float) -> None:
        """Change the upper bound of the given variables for all further runs."""
        bounds = self.model.upper.copy()
        bounds[variables] = upper
        self.model = replace(self.model, upper=bounds)

    @abstractmethod
    def minimise(
        self, objective: FloatArray, start: FloatArray | None, gap: float, time_limit_s: float
    ) -> RunResult:
        """Minimise objective·x within a time limit, starting from a feasible point if one is known.

        Raises:
            SolverError: the solver failed.
        """
