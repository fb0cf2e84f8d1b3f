"""All prices of a problem, with their rows in its limits.

Variables of prices are in models, in this order. After some use, a problem counts that use in `before`, so
its models pay for all use and subtract what was paid before. Equation numbers refer to ``docs/math.md``.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates, CandidateTable
from optimizer.limits.budget import BUDGET
from optimizer.prices.price import SharedPrice
from optimizer.prices.table import prices_of
from optimizer.solvers.limit_rows import LimitRows, limit_rows
from optimizer.spec.placed import kept_replicas

Entries = tuple[IntArray, IntArray, FloatArray]
"""Variables, rows of the limits, and coefficients."""


@dataclass(frozen=True)
class ProblemPrices:
    """Prices of a problem with K rows and J variables in total; all arrays are empty without prices."""

    prices: tuple[SharedPrice, ...]
    row: IntArray
    """Row of the limits that counts each use, shape (K,)."""
    before: FloatArray
    """Use of each row outside the problem, shape (K,)."""
    budget_row: int
    """Row of the budget in the limits; -1 if there is none."""
    begins: bool = True
    """Whether the fixed costs belong to the problem, instead of to one before."""

    def __bool__(self) -> bool:
        """Return whether there are any prices."""
        return bool(self.prices)

    @cached_property
    def first(self) -> FloatArray:
        """Use of each row that needs no variable, shape (K,); negative if use before needs some."""
        return self._joined("first") - self.before

    @cached_property
    def upper(self) -> FloatArray:
        """Upper bound of each variable, shape (J,); `ENDLESS` for none."""
        return self._joined("upper")

    @cached_property
    def cost(self) -> FloatArray:
        """Cost of one unit of each variable [cents/h], shape (J,)."""
        return self._joined("cost")

    @cached_property
    def whole(self) -> BoolArray:
        """Mask of the variables that are integers in all models, shape (J,)."""
        each = [np.full(len(price.upper), price.whole) for price in self.prices]
        return np.concatenate([np.zeros(0, np.bool_), *each])

    @property
    def meanings(self) -> list[str]:
        """Meaning of each variable."""
        return [meaning for price in self.prices for meaning in price.meanings]

    @cached_property
    def fixed(self) -> float:
        """Cost that arises whatever the problem uses [cents/h]."""
        return float(sum(price.fixed for price in self.prices)) if self.begins else 0.0

    @cached_property
    def paid_before(self) -> float:
        """Cost of the variables for use outside the problem [cents/h]."""
        return self._of_variables(self.before) if self.before.any() else 0.0

    @property
    def shared_rows(self) -> IntArray:
        """Rows of the limits whose cost can be lower for servers together."""
        return self.row[[price.can_share for price in self.prices for _ in price.rows]]

    @property
    def data_of_rows(self) -> dict[int, tuple[float, ...]]:
        """What determines the cost of the use of each row of the limits, by row."""
        data = [(*price.first, *price.upper, *price.cost) for price in self.prices for _ in price.rows]
        return dict(zip(self.row.tolist(), data, strict=True))

    @property
    def constant(self) -> float:
        """Constant term of the transition cost in models, which pay for all use [cents/h]."""
        return self.fixed - self.paid_before

    @cached_property
    def entries(self) -> Entries:
        """Coefficients of the variables in the rows that count uses, and in the budget."""
        variable, row, value, first = [], [], [], 0
        of = np.cumsum([0, *(len(price.rows) for price in self.prices)])
        for begin, price in zip(of.tolist(), self.prices, strict=False):
            at, j = np.nonzero(price.adds)
            variable += (first + j).tolist()
            row += self.row[begin + at].tolist()
            value += (-price.adds[at, j]).tolist()
            first += len(price.upper)
        if self.budget_row >= 0:
            variable += range(first)
            row += [self.budget_row] * first
            value += self.cost.tolist()
        return np.array(variable, np.int64), np.array(row, np.int64), np.array(value, np.float64)

    def discount(self, rows: int) -> FloatArray:
        """Return how far the first price of each row is below the list price [cents/h], shape (R,)."""
        discount = np.zeros(rows)
        each = [np.broadcast_to(price.discount, len(price.rows)) for price in self.prices]
        discount[self.row] = np.concatenate([np.zeros(0), *each])
        return discount

    def values(self, used: FloatArray) -> FloatArray:
        """Return the value of each variable at the least cost, shape (J,).

        `used` is the use of each row of the limits by the problem, shape (R,).
        """
        return self._values(used[self.row] + self.before)

    def difference(self, used: FloatArray) -> float:
        """Return the cost of some use minus its cost at list prices [cents/h] (eq. 147).

        `used` is the use of each row of the limits, shape (R,).
        """
        listed = float((used * self.discount(len(used))).sum())
        return self.fixed + self.of_variables(used) - self.paid_before - listed

    def of_variables(self, used: FloatArray) -> float:
        """Return the cost of the variables for some use of each row of the limits, shape (R,) [cents/h]."""
        return self._of_variables(used[self.row] + self.before) if self.prices else 0.0

    def after(self, used: FloatArray) -> "ProblemPrices":
        """Return the prices after some use of each row of the limits, shape (R,)."""
        return replace(self, before=self.before + used[self.row], begins=False)

    def most_of(self, use: FloatArray) -> FloatArray:
        """Return a bound on the cost of each replica beyond first prices [cents/h], shape (C,).

        `use` is the use of each row of the limits by one replica, shape (C, R).
        """
        return self._of_replicas("most_of", use)

    def usual_of(self, use: FloatArray) -> FloatArray:
        """Return the usual cost of each replica beyond list prices [cents/h], shape (C,)."""
        return self._of_replicas("usual_of", use)

    def _of_replicas(self, name: str, use: FloatArray) -> FloatArray:
        each = [getattr(price, name)(use[:, self.row[part]]) for price, part in self._parts()]
        total: FloatArray = np.sum([np.zeros(len(use)), *each], axis=0)
        return total

    def _parts(self) -> list[tuple[SharedPrice, slice]]:
        """Return each price with its part of the rows."""
        end = np.cumsum([len(price.rows) for price in self.prices]).tolist()
        return [
            (price, slice(stop - len(price.rows), stop)) for price, stop in zip(self.prices, end, strict=True)
        ]

    def _values(self, used: FloatArray) -> FloatArray:
        return np.concatenate([np.zeros(0), *(price.values(used[part]) for price, part in self._parts())])

    def _of_variables(self, used: FloatArray) -> float:
        return float((self._values(used) * self.cost).sum())

    def _joined(self, name: str) -> FloatArray:
        return np.concatenate([np.zeros(0), *(getattr(price, name) for price in self.prices)])


def priced_limits(candidates: Candidates, table: CandidateTable) -> tuple[LimitRows, ProblemPrices]:
    """Return the rows of the limits of a system over its candidates, and its prices.

    Replicas that keep their cards in addition to the plan are use before it.
    """
    prices, kept = prices_of(candidates.system), kept_replicas(candidates.system)
    limits = limit_rows(candidates, table, prices)
    counted, keys = [row for price in prices for row in price.rows], limits.keys
    before = np.array([kept.used(limit, item) for limit, item in counted], np.float64)
    row = np.array([keys.index((limit.name, item)) for limit, item in counted], np.int64)
    budget = next((at for at, (limit, _) in enumerate(keys) if prices and limit == BUDGET), -1)
    return limits, ProblemPrices(prices, row, before, budget)
