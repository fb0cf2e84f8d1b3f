"""Shared limits, as rows over the candidates: use · replicas ≤ amount.

A candidate uses few of the rows, so each has a short list of entries. Solvers read these rows and know no
limit by name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.limits.limit import Limit, PlacedReplicas, Replicas, Stock
from optimizer.limits.table import LIMITS
from optimizer.spec.system import System

ROUNDING = 1e-9
"""Relative excess over an amount that is no whole number, which counts as rounding."""


@dataclass(frozen=True, slots=True)
class LimitItem:
    """Item that a row limits."""

    limit: Limit
    item: str

    @property
    def key(self) -> tuple[str, str]:
        """The names of the limit and of its item."""
        return self.limit.name, self.item


@dataclass(frozen=True, slots=True)
class LimitRows:
    """The rows that R items make over C candidates."""

    items: tuple[LimitItem, ...]
    amount: FloatArray
    """Available amount of each item, shape (R,)."""
    row: IntArray
    """Rows that a candidate uses, shape (C, J); unused places have a use of 0."""
    use: FloatArray
    """Amount that one replica of the candidate uses in each row, shape (C, J)."""

    def __len__(self) -> int:
        """Return the number of rows R."""
        return len(self.items)

    @property
    def whole(self) -> BoolArray:
        """Whether amounts and uses of each row are whole numbers, shape (R,)."""
        return np.array([item.limit.whole for item in self.items], np.bool_)

    @property
    def addable(self) -> BoolArray:
        """Whether there can be more than the amount, shape (R,)."""
        return np.array([item.limit.can_be_added for item in self.items], np.bool_)

    def used(self, replicas: IntArray) -> FloatArray:
        """Return the amount of each item that a solution, shape (C,), uses; shape (R,)."""
        use = self.use * replicas[:, None]
        used: FloatArray = np.bincount(self.row.ravel(), use.ravel(), len(self)).astype(np.float64)
        return used

    def used_of(self, row: int, replicas: IntArray) -> FloatArray:
        """Return the amount of one item that the replicas of each candidate use, shape (C,)."""
        use: FloatArray = replicas * np.where(self.row == row, self.use, 0.0).sum(axis=1)
        return use

    def fits(self, replicas: IntArray) -> BoolArray:
        """Return a mask of the candidates that fit alone with the given number of replicas; shapes (C,)."""
        there = self.amount[self.row] if len(self) else np.zeros_like(self.use)
        return np.asarray((self.use * replicas[:, None] <= there).all(axis=1), np.bool_)

    def most_replicas(self) -> FloatArray:
        """Return the largest number of replicas of each candidate that fits alone, shape (C,)."""
        most = np.full(self.use.shape, np.inf)
        if len(self):
            np.floor_divide(self.amount[self.row], self.use, out=most, where=self.use > 0)
        fewest: FloatArray = most.min(axis=1, initial=np.inf)
        return fewest

    def scaled(self, each: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the rows that candidates use, in multiples of the greatest common divisor of their uses.

        Args:
            each: replicas that one of a candidate stands for, shape (C,).

        Returns:
            The rows, their divisors, and their amounts in these; whole, where the row is. Shapes (K,).
        """
        use = self.use * each[:, None]
        rows = np.unique(self.row[use > 0])
        whole = self.whole
        divisor = np.array(
            [
                float(np.gcd.reduce(use[(self.row == r) & (use > 0)].astype(np.int64))) if whole[r] else 1.0
                for r in rows.tolist()
            ]
        )
        amount = self.amount[rows] / divisor
        return rows, divisor, np.where(whole[rows], np.floor(amount), amount)

    def groups(self) -> IntArray:
        """Return a number for each candidate, equal for those that use the same rows; shape (C,)."""
        if self.row.shape[1] < 2:
            return np.asarray(self.row.sum(axis=1), np.int64)
        used = np.where(self.use > 0, self.row, -1)
        return np.unique(used, axis=0, return_inverse=True)[1].reshape(len(used)).astype(np.int64)

    def entries(self) -> list[list[tuple[int, float]]]:
        """Return row and use of each candidate's entries, for loops over plain numbers."""
        places = zip(self.row.tolist(), self.use.tolist(), strict=True)
        return [[(r, u) for r, u in zip(rows, uses, strict=True) if u] for rows, uses in places]

    def take(self, candidates: IntArray | BoolArray) -> "LimitRows":
        """Return the rows over some of the candidates."""
        return replace(self, row=self.row[candidates], use=self.use[candidates])

    def with_amounts(self, amount: FloatArray) -> "LimitRows":
        """Return the rows with other amounts, shape (R,)."""
        return replace(self, amount=amount)

    def only(self, chosen: BoolArray) -> "LimitRows":
        """Return some of the rows, shape (R,)."""
        place = np.cumsum(chosen) - 1
        kept = chosen[self.row] if len(self) else np.zeros(self.row.shape, np.bool_)
        items = tuple(item for item, is_kept in zip(self.items, chosen.tolist(), strict=True) if is_kept)
        if not items:
            return LimitRows((), np.zeros(0), self.row[:, :0], self.use[:, :0])
        return LimitRows(
            items, self.amount[chosen], np.where(kept, place[self.row], 0), np.where(kept, self.use, 0.0)
        )


def limit_rows(candidates: Candidates, table: CandidateTable) -> LimitRows:
    """Return the rows of all limits of a system over some candidates, less what kept replicas use."""
    arrays, system = candidates.arrays, candidates.system
    replicas = Replicas(
        table.accelerator,
        arrays.accelerator_names,
        table.kind,
        arrays.type_names,
        table.units_per_replica,
        table.cost_per_replica,
    )
    kept = list(kept_replicas(system))
    items, amount, use = [], [], []
    for limit in LIMITS:
        taken = limit.used(kept)
        for item, exists in limit.amounts(stock_of(system, arrays.type_names)).items():
            items.append(LimitItem(limit, item))
            left = max(exists - taken.get(item, 0.0), 0.0) + candidates.more.get((limit.name, item), 0.0)
            amount.append(left if limit.whole else left * (1 + ROUNDING))
            use.append(limit.use(replicas, item))
    row, entries = _entries(np.array(use).reshape(len(items), len(table)))
    return LimitRows(tuple(items), np.array(amount), row, entries)


def _entries(use: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the rows and the values of a matrix's entries above zero by column, shape (R, C) to (C, J)."""
    candidate, row = np.nonzero(use.T)
    size = np.bincount(candidate, minlength=use.shape[1])
    place = np.arange(len(row)) - (np.cumsum(size) - size)[candidate]
    shape = use.shape[1], int(size.max(initial=0))
    rows, entries = np.zeros(shape, np.int64), np.zeros(shape)
    rows[candidate, place], entries[candidate, place] = row, use[row, candidate]
    return rows, entries


def stock_of(system: System, types: tuple[str, ...]) -> Stock:
    """Return the limits of a system."""
    return Stock(system.options, system.options.unlimited, system.capacity, types)


def kept_replicas(system: System) -> Iterable[PlacedReplicas]:
    """Yield the replicas that are kept beside a plan."""
    for (server, accelerator), count in system.kept.items():
        yield placed(system, server, accelerator, count)


def placed(system: System, server: str, accelerator: str, count: int) -> PlacedReplicas:
    """Return replicas of a server on an accelerator as limits count them."""
    kind, cards = system.units_per_replica(server, accelerator)
    one = system.accelerators.get(accelerator)
    cost = one.cost_cents_per_h * cards / one.multiplicity if one else 0.0
    return PlacedReplicas(accelerator, kind, count, cards, cost)
