"""Collects the rows of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.milp.model import MilpModel


@dataclass(slots=True)
class ModelRows:
    """Rows of a model under construction."""

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
        """Add a block of rows, and return their indices.

        Args:
            lower: lower bounds, shape (R,).
            upper: upper bounds.
            entries: row within the block, variable and coefficient.
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
        """Add one row, with entries as variables and coefficients."""
        index = np.concatenate([np.asarray(part, np.int64) for part, _ in entries])
        value = np.concatenate([np.asarray(part, np.float64) for _, part in entries])
        self.add(np.array([lower]), np.array([upper]), (np.zeros(len(index), np.int64), index, value))

    def join(self, other: "ModelRows") -> None:
        """Add the rows of another collection."""
        self.row += [row + self.count for row in other.row]
        self.index += other.index
        self.coefficient += other.coefficient
        self.lower += other.lower
        self.upper += other.upper
        self.count += other.count

    def model(self, variable_upper: FloatArray, integer: BoolArray) -> MilpModel:
        """Return the model with these rows; the variables' lower bounds are 0."""
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
