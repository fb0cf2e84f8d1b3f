"""Limits that servers share, as rows over the candidates: use · replicas ≤ amount.

A candidate uses few of the rows, so it has a short list of entries. Solvers read these rows and do not depend
on the names of limits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.replica_power import power_of_rows
from optimizer.limits.budget import BUDGET
from optimizer.limits.limit import Limit, Replicas
from optimizer.limits.rollout import extra_replicas
from optimizer.limits.table import LIMITS
from optimizer.prices.price import SharedPrice
from optimizer.spec.placed import kept_replicas, stock_of
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING


@dataclass(frozen=True, slots=True)
class LimitItem:
    """The item that a row limits, such as the cards of a type."""

    limit: Limit
    item: str
    part: str = ""
    """Label that distinguishes several rows of one item."""

    @property
    def key(self) -> tuple[str, str]:
        """Name of the limit and name of the item."""
        return self.limit.name, self.item

    @property
    def label(self) -> str:
        """Name of the row within its limit."""
        return f"{self.item} for {self.part}" if self.part else self.item

    @property
    def source(self) -> tuple[str, str]:
        """Name of the limit and name of the item whose amount applies to the row."""
        return self.limit.follows or self.limit.name, self.item


@dataclass(frozen=True, slots=True)
class LimitRows:
    """The R rows of limited items over C candidates."""

    items: tuple[LimitItem, ...]
    amount: FloatArray
    """Available amount of each item, shape (R,)."""
    row: IntArray
    """Rows that each candidate uses, shape (C, J); unused entries have a use of 0."""
    use: FloatArray
    """Amount of each of these rows that one replica of the candidate uses, shape (C, J)."""
    source: IntArray
    """Row whose amount applies to each row, shape (R,): the row itself, unless its limit follows another one.
    """

    def __len__(self) -> int:
        """Return the number of rows R."""
        return len(self.items)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Name of the limit and name of the item, for each row."""
        return [item.key for item in self.items]

    @property
    def whole(self) -> BoolArray:
        """Mask of the rows whose amounts and uses are integers, shape (R,)."""
        return np.array([item.limit.whole for item in self.items], np.bool_)

    @property
    def addable(self) -> BoolArray:
        """Mask of the rows whose amounts can be increased, shape (R,)."""
        added = np.array([item.limit.can_be_added for item in self.items], np.bool_)
        return added[self.source]

    @property
    def own(self) -> BoolArray:
        """Mask of the rows that have their own amount, shape (R,)."""
        return np.asarray(self.source == np.arange(len(self)), np.bool_)

    def of_sources(self, amount: FloatArray) -> FloatArray:
        """Return, at each row in `source`, the maximum amount of its rows, and -inf elsewhere.

        The argument and the result have shape (R,).
        """
        largest = np.full(len(self), -np.inf)
        np.maximum.at(largest, self.source, amount)
        return largest

    def used(self, replicas: IntArray) -> FloatArray:
        """Return the amount of each item that a solution uses, shape (R,).

        `replicas` is the number of replicas of each candidate, shape (C,).
        """
        use = self.use * replicas[:, None]
        used: FloatArray = np.bincount(self.row.ravel(), use.ravel(), len(self)).astype(np.float64)
        return used

    def used_of(self, row: int, replicas: IntArray) -> FloatArray:
        """Return the amount of one item that the replicas of each candidate use, shape (C,)."""
        use: FloatArray = replicas * np.where(self.row == row, self.use, 0.0).sum(axis=1)
        return use

    @property
    def of_all_rows(self) -> FloatArray:
        """Use of every row by one replica of each candidate, shape (C, R)."""
        use = np.zeros((len(self.use), len(self)))
        np.add.at(use, (np.arange(len(self.use))[:, None], self.row), self.use)
        return use

    def most_replicas(self) -> FloatArray:
        """Return the maximum number of replicas of each candidate within the limits alone, shape (C,)."""
        most, there = np.full(self.use.shape, np.inf), self.amount[self.row]
        np.floor_divide(there, self.use, out=most, where=(self.use > 0) & np.isfinite(there))
        fewest: FloatArray = most.min(axis=1, initial=np.inf)
        return fewest

    def scaled(self, each: IntArray, also: int = -1) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the rows that candidates use, scaled by the greatest common divisor of their uses.

        Args:
            each: replicas that one unit of a candidate represents, shape (C,).
            also: a row to return even if no candidate uses it, such as a budget if the first step of each
                price is free; -1 for none.

        Returns:
            The rows, their divisors, and their scaled amounts, which are integers for integer rows. Shapes
            (K,).
        """
        use = self.use * each[:, None]
        rows = np.unique([*self.row[use > 0].tolist(), *([also] if also >= 0 else [])]).astype(np.int64)
        whole, divisors = self.whole, np.zeros(len(self), np.int64)
        np.gcd.at(divisors, self.row, np.where(whole[self.row], use, 1).astype(np.int64))
        divisor = np.maximum(divisors, 1)[rows].astype(np.float64)
        amount = self.amount[rows] / divisor
        return rows, divisor, np.where(whole[rows], np.floor(amount), amount)

    def groups(self) -> IntArray:
        """Return a number for each candidate that is equal for candidates with the same rows, shape (C,)."""
        if self.row.shape[1] < 2:
            return np.asarray(self.row.sum(axis=1), np.int64)
        used = np.where(self.use > 0, self.row, -1)
        return np.unique(used, axis=0, return_inverse=True)[1].reshape(len(used)).astype(np.int64)

    def entries(self) -> list[list[tuple[int, float]]]:
        """Return the row and use of each candidate's entries in rows with a finite amount."""
        amount = self.amount.tolist()
        places = zip(self.row.tolist(), self.use.tolist(), strict=True)
        return [
            [(r, u) for r, u in zip(rows, uses, strict=True) if u and amount[r] < np.inf]
            for rows, uses in places
        ]

    def take(self, candidates: IntArray | BoolArray) -> "LimitRows":
        """Return the rows restricted to some of the candidates."""
        return replace(self, row=self.row[candidates], use=self.use[candidates])

    def with_more_use(self, row: int, more: FloatArray) -> "LimitRows":
        """Return the rows with additional use of one item by a replica of each candidate.

        Args:
            row: row of the item.
            more: additional use by one replica, shape (C,).
        """
        of_row = self.used_of(row, np.ones(len(more), np.int64)) + more
        use = np.column_stack([np.where(self.row == row, 0.0, self.use), of_row])
        return replace(self, row=np.column_stack([self.row, np.full(len(more), row)]), use=use)


class Remaining:
    """Capacity of the limits that remains while replicas are placed one by one, in plain numbers."""

    def __init__(self, limits: LimitRows, left: FloatArray | None = None) -> None:
        """Start with the amounts of the limits, or with `left`, shape (R,)."""
        self.left: list[float] = (limits.amount if left is None else left).tolist()
        self.entries = limits.entries()

    def most(self, candidate: int) -> float:
        """Return the maximum number of further replicas of a candidate that fits."""
        return min((self.left[row] // use for row, use in self.entries[candidate]), default=math.inf)

    def take(self, candidate: int, count: int) -> None:
        """Subtract the use of a candidate's replicas from the remaining capacity.

        A negative count adds it back.
        """
        for row, use in self.entries[candidate]:
            self.left[row] -= use * count


def limit_rows(candidates: Candidates, table: CandidateTable, prices: Sequence[SharedPrice]) -> LimitRows:
    """Return the rows of all limits of a system over its candidates, minus the use of kept replicas.

    The rows that count uses for prices follow, unless a limit has them.
    """
    system = candidates.system
    replicas = _replicas(candidates, table)
    discount = [(price.use_of(replicas) * price.discount).sum(axis=1) for price in prices]
    replicas = replicas._replace(cost=np.sum([replicas.cost, *(-each for each in discount)], axis=0))
    kept = kept_replicas(system)
    items, amount, uses = list[LimitItem](), list[float](), list[tuple[IntArray, FloatArray]]()
    fixed = float(sum(price.fixed for price in prices))

    def add(item: LimitItem, left: float, use: FloatArray) -> None:
        items.append(item)
        amount.append(left)
        uses.append((np.flatnonzero(use), use[use != 0]))

    stock = stock_of(system)
    for limit in (limit for limit in LIMITS if limit.applies(system.options)):
        for name, exists in limit.amounts(stock).items():
            taken_already = kept.used(limit, name) + fixed * (limit.name == BUDGET)
            more = candidates.extra_amounts.get(LimitItem(limit, name).source, 0.0)
            left = max(exists - taken_already, 0.0) + more
            for part, use in limit.rows(replicas, name):
                add(LimitItem(limit, name, part), left if limit.whole else left * (1 + ROUNDING), use)
    has = {item.key for item in items}
    for limit, name in (row for price in prices for row in price.rows):
        if (limit.name, name) not in has:
            add(LimitItem(limit, name), np.inf, limit.use(replicas, name))
    row, entries = _entries(uses, len(table))
    place = {item.key: r for r, item in enumerate(items) if not item.limit.follows}
    source = np.array([place.get(item.source, r) for r, item in enumerate(items)], np.int64)
    return LimitRows(tuple(items), np.array(amount), row, entries, source)


def _replicas(candidates: Candidates, table: CandidateTable) -> Replicas:
    """Return arrays that describe one replica of each candidate, at list prices."""
    arrays, system = candidates.arrays, candidates.system
    # Rentals and shared cards have indices after the last accelerator.
    slices = np.array([*(item.multiplicity for item in system.accelerators.values()), 1, 1], np.int64)
    accelerators = table.units_per_replica // slices[table.accelerator]
    return Replicas(
        table.accelerator,
        arrays.accelerator_names,
        table.type,
        arrays.type_names,
        table.units_per_replica,
        table.cost_per_replica,
        accelerators,
        table.server,
        arrays.server_names,
        extra_per_replica(system, arrays.server_names, table),
        partial(power_of_rows, candidates, table),
        tuple(system.accelerators.values()),
    )


def extra_per_replica(system: System, names: tuple[str, ...], table: CandidateTable) -> FloatArray:
    """Return the extra replicas per replica of each candidate during a full roll-out (eq. 185).

    The result has shape (C,).
    """
    surge = [*(system.servers[name].surge for name in names), 0.0]  # shared cards belong to no server
    if not any(surge):
        return np.zeros(len(table))
    counts = zip(table.server.tolist(), table.num_replicas.tolist(), strict=True)
    return np.array([extra_replicas(surge[s], n) / n if surge[s] and n else 0.0 for s, n in counts])


def _entries(uses: Sequence[tuple[IntArray, FloatArray]], count: int) -> tuple[IntArray, FloatArray]:
    """Convert the uses of each row to the rows and uses of each candidate, shapes (C, J)."""
    users = np.concatenate([np.zeros(0, np.int64), *(users for users, _ in uses)])
    order = np.argsort(users, kind="stable")
    candidate, size = users[order], np.bincount(users, minlength=count)
    place = np.arange(len(order)) - (np.cumsum(size) - size)[candidate]
    shape = count, int(size.max(initial=0))
    rows, entries = np.zeros(shape, np.int64), np.zeros(shape)
    rows[candidate, place] = np.repeat(np.arange(len(uses)), [len(users) for users, _ in uses])[order]
    entries[candidate, place] = np.concatenate([np.zeros(0), *(use for _, use in uses)])[order]
    return rows, entries
