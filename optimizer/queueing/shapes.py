"""Request shapes of replicas: groups of requests with their own lengths, as arrays of rows.

A load is a mixture of H rows. A row has mean lengths with coefficients of variation; a load that states only
means and coefficients of variation is one row. A shape whose prompts share a prefix is two rows: the requests
that find the prefix in the cache, and those that do not.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray, RowArrays


class ShapeRow(NamedTuple):
    """One row of a load: requests whose lengths have the same distribution."""

    weight: float
    """Share of the load's requests."""
    computed: float
    """X: mean number of prompt tokens to compute."""
    cached: float
    """C: number of prompt tokens found in the prefix cache."""
    stored: float
    """Number of these tokens that the request holds in the KV cache for itself; 0 if they are stored once."""
    answer: float
    """O: mean output length [tokens]."""
    computed_cv: float
    """Coefficient of variation of the tokens to compute."""
    answer_cv: float
    """Coefficient of variation of the output length."""
    shape: int = 0
    """Number of the shape to which the row belongs (`shape_number`)."""


def shape_number(name: str) -> int:
    """Return the number that identifies a shape by its name in arrays."""
    return zlib.crc32(name.encode())


@dataclass(frozen=True, slots=True)
class ShapeRows(RowArrays):
    """Rows of the loads of R replicas, shapes (R, H); missing rows have the weight 0."""

    weight: FloatArray
    computed: FloatArray
    cached: FloatArray
    stored: FloatArray
    answer: FloatArray
    computed_scv: FloatArray
    answer_scv: FloatArray
    shape: IntArray
    heads: FloatArray
    """KV cache tokens of prefixes that are stored once, shape (R,)."""

    @classmethod
    def of_means(
        cls, in_tokens: FloatArray, out_tokens: FloatArray, in_scv: FloatArray, out_scv: FloatArray
    ) -> Self:
        """Return one row for each replica, with the given means and squared CVs, shapes (R,)."""
        one, none = np.ones_like(in_tokens), np.zeros_like(in_tokens)
        columns = one, in_tokens, none, none, out_tokens, in_scv, out_scv
        weight, computed, cached, stored, answer, *squares = (column[:, np.newaxis] for column in columns)
        shape = np.zeros((len(one), 1), np.int64)
        return cls(weight, computed, cached, stored, answer, squares[0], squares[1], shape, none)

    @classmethod
    def of(cls, loads: Sequence[Sequence[ShapeRow]], heads: Sequence[float]) -> Self:
        """Return the rows of loads, padded to the largest number of rows.

        Args:
            loads: the rows of each load, whose weights sum to 1.
            heads: KV cache tokens of prefixes that are stored once, for each load.
        """
        count = max(map(len, loads))
        padded = [[*rows, *[rows[-1]._replace(weight=0.0)] * (count - len(rows))] for rows in loads]
        *columns, shape = np.array(padded, dtype=np.float64).transpose(2, 0, 1)
        weight, computed, cached, stored, answer, computed_cv, answer_cv = columns
        return cls(
            weight, computed, cached, stored, answer, computed_cv**2, answer_cv**2,
            shape.astype(np.int64), np.array(heads, np.float64),
        )  # fmt: skip

    def mean(self, values: FloatArray) -> FloatArray:
        """Return means over all requests of values of rows, shapes (R, H) and (R,).

        Rows are added one by one, so that the sum does not depend on the number of missing rows.
        """
        return row_sum(self.weight * values)

    def with_weights(self, weight: FloatArray) -> Self:
        """Return the rows with other weights, shape (R, H)."""
        return replace(self, weight=weight)

    @property
    def varies(self) -> BoolArray:
        """Mask of replicas with several different rows, shape (R,)."""
        differs = np.zeros(self.weight.shape, np.bool_)
        for values in (self.computed, self.cached, self.answer, self.computed_scv, self.answer_scv):
            differs |= values != values[:, :1]
        return np.asarray((differs & (self.weight > 0)).any(axis=1))

    @property
    def longest(self) -> FloatArray:
        """Mean number of computed tokens of the row with the longest prompts, shape (R,)."""
        return np.asarray(np.where(self.weight > 0, self.computed, 0.0).max(axis=1))


def row_sum(values: FloatArray) -> FloatArray:
    """Return the sums over the rows of replicas, shapes (R, H) and (R,), added in order."""
    total = values[:, 0].copy()
    for column in values.T[1:]:
        total += column
    return total
