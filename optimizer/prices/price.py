"""The interface of a price: a cost that depends on the sum of what all servers use.

A price counts uses in rows, and pays for them with variables. For each row,
use · replicas − adds · variables ≤ first. Models, bounds, heuristics and plans ask every price the same
questions, and know none by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Limit, Replicas, Stock
from optimizer.spec.system import System


class CountedUse(Limit):
    """What a price counts: a row without an amount, which limits nothing, so it is not in `LIMITS`."""

    whole: ClassVar[bool] = False
    has_steps: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> dict[str, float]:  # noqa: ARG002  no price limits anything
        """Return no amounts, because nothing is limited."""
        return {}


class CostPart(NamedTuple):
    """A part of the cost of a plan beyond list prices."""

    name: str
    """Name of what is paid for."""
    cents_per_h: float


@dataclass(frozen=True, eq=False)
class SharedPrice(ABC):
    """A price of one thing, with K rows and J variables."""

    name: str
    """Name of what is paid for, such as an accelerator."""
    rows: tuple[tuple[Limit, str], ...]
    """Limit and item that count the use of each row, shape (K,)."""
    first: FloatArray
    """Use of each row that needs no variable, shape (K,)."""
    upper: FloatArray
    """Upper bound of each variable, shape (J,); `ENDLESS` for none."""
    cost: FloatArray
    """Cost of one unit of each variable [cents/h], shape (J,)."""
    adds: FloatArray
    """Use of each row that one unit of each variable allows, shape (K, J)."""
    meanings: tuple[str, ...]
    """Meaning of each variable, for legends of models."""
    fixed: float = 0.0
    """Cost that arises whatever is used [cents/h]."""
    discount: FloatArray = field(default_factory=lambda: np.zeros(1))
    """List price minus first price of one unit of each row [cents/h], shape (K,) or (1,)."""

    origin: ClassVar[str]
    """Origin of its costs in plans."""
    noun: ClassVar[str]
    """Noun for the origin, for tables."""
    whole: ClassVar[bool] = True
    """Whether variables have to be integers, because no relaxation of them costs as much as a solution."""
    can_share: ClassVar[bool] = True
    """Whether two servers can cost less together than the sum of both alone."""

    @classmethod
    @abstractmethod
    def of(cls, system: System) -> Iterator[Self]:
        """Yield the prices of a system, sorted by name."""

    @abstractmethod
    def values(self, used: FloatArray) -> FloatArray:
        """Return the value of each variable that pays for some use at the least cost, shape (J,).

        `used` is the use of each row, shape (K,); if nothing can pay for it, values are inf.
        """

    @abstractmethod
    def most_of(self, use: FloatArray) -> FloatArray:
        """Return a bound on the cost of each of C replicas at first prices [cents/h], shape (C,).

        The sum of the bounds of some replicas is at least what their variables cost together. `use` is the
        use of each row by one replica, shape (C, K).
        """

    def usual_of(self, use: FloatArray) -> FloatArray:
        """Return the usual cost of each of C replicas beyond list prices [cents/h], for heuristics."""
        return np.zeros(len(use))

    def parts(self, used: FloatArray, before: FloatArray) -> Iterator[CostPart]:
        """Yield the parts of the cost of some use after other use, beyond its cost at list prices.

        Use is that of each row, shape (K,).
        """
        cost = float(self.cost @ self.values(used + before)) - float(self.cost @ self.values(before))
        yield CostPart(self.name, self.fixed + cost - float((self.discount * used).sum()))

    def added_cost(self, before: FloatArray, more: FloatArray) -> float:
        """Return the cost of some use after other use, beyond its cost at list prices [cents/h].

        It is 0 if nothing can pay for the use. Use is that of each row, shape (K,).
        """
        after = self.values(before + more)
        if not np.isfinite(after).all():
            return 0.0
        return float(self.cost @ (after - self.values(before))) - float((self.discount * more).sum())

    def use_of(self, replicas: Replicas) -> FloatArray:
        """Return the use of each row by one replica of each of C candidates, shape (C, K)."""
        return np.column_stack([limit.use(replicas, item) for limit, item in self.rows])
