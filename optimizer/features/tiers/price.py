"""Price tiers: the first accelerators of a name, or cards of a type, cost less, so costs are convex.

A row counts the use of each accelerator and each type with tiers. It is split into steps, each with a size
and a price. Models price replicas at the first step. Each further step is a variable that costs the price
difference. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Replicas
from optimizer.prices.price import CountedUse, SharedPrice
from optimizer.spec.prices import PricedUnits, committed_cents_per_h, tiered
from optimizer.spec.system import System


class TierRow(CountedUse):
    """Row that counts accelerators by name."""

    name: ClassVar[str] = "tiers"
    unit: ClassVar[str] = "accelerator"

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return how many of the item's accelerators one replica of each candidate uses, shape (C,)."""
        here = replicas.accelerator == replicas.accelerator_names.index(item)
        return np.where(here, replicas.accelerators, 0.0)


class CardTierRow(CountedUse):
    """Row that counts the cards of a type."""

    name: ClassVar[str] = "card tiers"
    unit: ClassVar[str] = "card"

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the number of the type's cards that one replica of each candidate uses, shape (C,)."""
        return np.where(replicas.type == replicas.type_names.index(item), replicas.cards, 0.0)


@dataclass(frozen=True, eq=False)
class TierPrice(SharedPrice):
    """Price steps of an accelerator or of the cards of a type; each step after the first is a variable."""

    origin: ClassVar[str] = "tiers"
    noun: ClassVar[str] = "price tiers"
    whole: ClassVar[bool] = False
    can_share: ClassVar[bool] = False

    @classmethod
    def of(cls, system: System) -> Iterator["TierPrice"]:
        """Yield the price steps of accelerators with tiers, then of types with a price for more cards."""
        for units in tiered(system.accelerators, system.capacity):
            fixed = 0.0 if units.is_type else committed_cents_per_h([system.accelerators[units.name]])
            yield cls._of_steps(units, fixed)

    @classmethod
    def _of_steps(cls, units: PricedUnits, fixed: float) -> "TierPrice":
        size, price = np.array(units.steps, np.float64).T
        later = len(size) - 1
        return cls(
            name=f"cards of {units.name}" if units.is_type else units.name,
            rows=((CardTierRow() if units.is_type else TierRow(), units.name),),
            first=size[:1],
            upper=size[1:],
            cost=price[1:] - price[0],
            adds=np.ones((1, later)),
            meanings=("accelerators at a later price",) * later,
            fixed=fixed,
            discount=units.listed - price[:1],
        )

    def values(self, used: FloatArray) -> FloatArray:
        """Return the number of units in each step after the first, shape (J,) (eq. 147)."""
        before = np.cumsum(np.append(self.first, self.upper))[:-1]
        return np.clip(used - before, 0.0, self.upper)

    def most_of(self, use: FloatArray) -> FloatArray:
        """Return the cost of replicas at the last price, minus that at the first [cents/h], shape (C,)."""
        return use[:, 0] * self.cost[-1] if len(self.cost) else np.zeros(len(use))
