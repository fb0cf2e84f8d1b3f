"""Array types, and helpers for read-only arrays, runs of equal values, equal rows, groups and totals by key.

Every array of the library is float64, int64 or bool. Docstrings give shapes by letters, such as ``(R,)``: R
rows that are computed together, N occupancies (requests in a replica), S servers, A accelerators, T
accelerator types, C candidates.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_Array = TypeVar("_Array", bound=npt.NDArray[Any])
_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")
_Number = TypeVar("_Number", int, float)


def frozen(array: _Array) -> _Array:
    """Return `array` itself, made read-only."""
    array.flags.writeable = False
    return array


def grouped(pairs: Iterable[tuple[_Key, _Item]]) -> dict[_Key, list[_Item]]:
    """Group (key, item) pairs by key; keys and items keep the order of the pairs."""
    result: dict[_Key, list[_Item]] = {}
    for key, item in pairs:
        result.setdefault(key, []).append(item)
    return result


def sorted_by_key(items: Mapping[_Key, _Item]) -> Mapping[_Key, _Item]:
    """Return a read-only mapping with the same items, in ascending order of the keys."""
    return MappingProxyType({key: items[key] for key in sorted(items)})  # type: ignore[type-var]


def totals(pairs: Iterable[tuple[_Key, _Number]]) -> dict[_Key, _Number]:
    """Sum the numbers of (key, number) pairs by key; keys keep the order of the pairs."""
    numbers: dict[_Key, _Number] = {}
    for key, number in pairs:
        numbers[key] = numbers.get(key, 0) + number
    return numbers


@dataclass(frozen=True, slots=True)
class RowArrays:
    """Base of dataclasses whose fields are arrays over the same R rows, or nested row arrays."""

    def take(self, rows: IntArray | BoolArray) -> Self:
        """Return a copy with only the given rows (indices or a mask), in the given order."""
        values = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(v[rows] if isinstance(v, np.ndarray) else v.take(rows) for v in values))

    def columns(self) -> list[npt.NDArray[Any]]:
        """Return the arrays of all fields, including nested ones, in field order; shapes (R, ...)."""
        values = (getattr(self, field.name) for field in fields(self))
        return [column for v in values for column in ([v] if isinstance(v, np.ndarray) else v.columns())]


def runs(keys: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the start and end index of each run of equal adjacent values, in order."""
    if not len(keys):
        return iter(())
    bounds = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1], [True]]))
    return pairwise(bounds.tolist())


def pairs_of_equal(keys: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return all pairs of positions with equal keys: the earlier positions, and the later ones.

    Equal keys must be adjacent in `keys`.
    """
    _, first, size = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    first, size = first[order], size[order]
    after = np.repeat(first + size, size) - 1 - np.arange(len(keys))
    earlier = np.repeat(np.arange(len(keys)), after)
    start = np.cumsum(after) - after
    later = earlier + 1 + np.arange(len(earlier)) - np.repeat(start, after)
    return earlier, later


def row_bytes(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """Return the bytes of each row of a table, for comparisons to the last bit; shape (R, bytes).

    Args:
        columns: columns of the table, shapes (R, ...), R ≥ 1.
    """
    count = len(columns[0])
    parts = [np.ascontiguousarray(column).view(np.uint8).reshape(count, -1) for column in columns]
    return np.ascontiguousarray(np.hstack(parts))


def same_rows(columns: Sequence[npt.NDArray[Any]]) -> tuple[IntArray, IntArray]:
    """Group the rows of a table that are equal to the last bit.

    Args:
        columns: columns of the table, shapes (R, ...), R ≥ 1.

    Returns:
        Index of the first row of each group, and the group of every row, shape (R,).
    """
    keys = row_bytes(columns)
    whole = keys.view(np.dtype((np.void, keys.shape[1]))).ravel()
    _, first, which = np.unique(whole, return_index=True, return_inverse=True)
    return first, which
