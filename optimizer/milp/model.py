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

    def widened(self, upper: FloatArray, entries: tuple[IntArray, IntArray, FloatArray]) -> "MilpModel":
        """Return the model with k additional variables, whose lower bounds are 0.

        Args:
            upper: upper bounds of the new variables, shape (k,).
            entries: row, index of the new variable (0 to k - 1) and coefficient of each entry, shapes (e,).
        """
        n, more = len(self.lower), len(upper)
        row, variable, coefficient = entries
        old_row = np.repeat(np.arange(len(self.row_upper)), np.diff(self.row_start))
        rows = np.concatenate([old_row, row])
        index = np.concatenate([self.row_index, n + variable])
        order = np.lexsort((index, rows))
        return replace(
            self,
            lower=np.concatenate([self.lower, np.zeros(more)]),
            upper=np.concatenate([self.upper, upper]),
            integer=np.concatenate([self.integer, np.zeros(more, np.bool_)]),
            row_start=np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(self.row_upper)))]),
            row_index=index[order],
            row_value=np.concatenate([self.row_value, coefficient])[order],
        )

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
        rows = np.repeat(np.arange(len(self.row_upper)), np.diff(self.row_start))
        body = np.bincount(rows, self.row_value * x[self.row_index], minlength=len(self.row_upper))
        integral = not (x[self.integer] % 1).any()
        within = (x >= self.lower).all() and (x <= self.upper).all()
        kept = (body >= self.row_lower - ROW) & (body <= self.row_upper + ROW)
        return bool(integral and within and kept.all())


@dataclass(slots=True)
class ModelRows:
    """Collects the rows (constraints) of a model."""

    count: int = 0
    row: list[IntArray] = field(default_factory=list)
    index: list[IntArray] = field(default_factory=list)
    coefficient: list[FloatArray] = field(default_factory=list)
    lower: list[FloatArray] = field(default_factory=list)
    upper: list[FloatArray] = field(default_factory=list)

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
        for row, index, coefficient in entries:
            self.row.append(row + self.count)
            self.index.append(index)
            self.coefficient.append(coefficient)
        self.lower.append(lower)
        self.upper.append(upper)
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
        self.row += [row + self.count for row in other.row]
        self.index += other.index
        self.coefficient += other.coefficient
        self.lower += other.lower
        self.upper += other.upper
        self.count += other.count

    def model(self, variable_upper: FloatArray, integer: BoolArray) -> MilpModel:
        """Create the model with these rows; the lower bounds of variables are 0."""
        row, index = np.concatenate(self.row), np.concatenate(self.index)
        order = np.lexsort((index, row))
        return MilpModel(
            lower=np.zeros(len(variable_upper)),
            upper=variable_upper,
            integer=integer,
            row_start=np.concatenate([[0], np.cumsum(np.bincount(row, minlength=self.count))]),
            row_index=index[order],
            row_value=np.concatenate(self.coefficient)[order],
            row_lower=np.concatenate(self.lower),
            row_upper=np.concatenate(self.upper),
        )


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


class RelaxingSession(Session):
    """A session that can also solve the relaxation of the model, without integrality."""

    @abstractmethod
    def relax(self, objective: FloatArray, time_limit_s: float) -> RunResult:
        """Minimise objective·x over the relaxation; the result contains the dual values of the rows.

        Raises:
            SolverError: the solver failed.
        """
