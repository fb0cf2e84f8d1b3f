"""Price tiers: the first accelerators of a name, or cards of a type, cost less, so costs are convex.

Each accelerator and each type with tiers has a row that counts its use. The row has no upper limit. It is
split into steps, each with a size and a price. Models price replicas at the first step, and have one more
variable for each further step, which costs the price difference. Equation numbers refer to ``docs/math.md``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.limits.budget import BUDGET
from optimizer.limits.tier_rows import CARD_TIERS, TIERS
from optimizer.schema import Accelerator
from optimizer.spec.prices import committed_cents_per_h, tiered

NAMES = {False: TIERS, True: CARD_TIERS}
"""Name of the limit of a tier row, by whether it counts the cards of a type."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Price steps of T accelerators; all arrays are empty if none has tiers."""

    row: IntArray
    """Row of each accelerator in the limits, shape (T,)."""
    listed: FloatArray
    """List price of each accelerator [cents/h], shape (T,)."""
    of: IntArray
    """Accelerator to which each step belongs, in ascending order, shape (K,)."""
    size: FloatArray
    """Number of accelerators in each step, shape (K,)."""
    price: FloatArray
    """Price of one accelerator in each step [cents/h], shape (K,); it never decreases from one step to the
    next.
    """
    committed: float = 0.0
    """Cost of all commitments [cents/h]."""
    budget_row: int = -1
    """Row of the budget in the limits; -1 if there is none."""

    @property
    def first(self) -> IntArray:
        """Index of the first step of each accelerator, shape (T,)."""
        return np.searchsorted(self.of, np.arange(len(self.row)))

    @property
    def later(self) -> IntArray:
        """Indices of the steps that are not the first of their accelerator."""
        return np.flatnonzero(~np.isin(np.arange(len(self.of)), self.first))

    @property
    def more(self) -> FloatArray:
        """Price of each later step minus the first price of its accelerator [cents/h]."""
        later = self.later
        return self.price[later] - self.price[self.first[self.of[later]]]

    def discount(self, rows: int) -> FloatArray:
        """Return how far the first price of each row is below the list price [cents/h], shape (R,)."""
        discount = np.zeros(rows)
        discount[self.row] = self.listed - self.price[self.first]
        return discount

    def rises(self, rows: int) -> FloatArray:
        """Return the last price of each row minus its first price [cents/h], shape (R,)."""
        rises, last = np.zeros(rows), np.append(self.first[1:], len(self.of)) - 1
        rises[self.row] = self.price[last] - self.price[self.first] if len(self.row) else 0.0
        return rises

    def steps(self, used: FloatArray) -> FloatArray:
        """Return the number of accelerators used in each step, shape (K,).

        `used` is the number of accelerators used in each row, shape (R,).
        """
        before = np.cumsum(self.size) - self.size
        before -= before[self.first][self.of]
        filled: FloatArray = np.clip(used[self.row][self.of] - before, 0.0, self.size)
        return filled

    def difference(self, used: FloatArray) -> float:
        """Return the cost of used accelerators minus their cost at list price [cents/h] (eq. 147).

        `used` is the number of accelerators used in each row, shape (R,).
        """
        paid = float((self.steps(used) * self.price).sum()) + self.committed
        return paid - float((used[self.row] * self.listed).sum())

    def beyond_first(self, used: FloatArray) -> float:
        """Return the cost of accelerators in later steps minus their cost at the first price [cents/h]."""
        return float((self.steps(used)[self.later] * self.more).sum())

    def step_entries(self) -> list[tuple[IntArray, FloatArray]]:
        """Return the rows and coefficients of each later step in the limits, one pair of arrays per row."""
        later = self.later
        entries = [(self.row[self.of[later]], -np.ones(len(later)))] if len(later) else []
        if len(later) and self.budget_row >= 0:
            entries.append((np.full(len(later), self.budget_row), self.more))
        return entries

    def after(self, used: FloatArray) -> "Tiers":
        """Return the tiers with the size of each step that remains after some use."""
        return replace(self, size=self.size - self.steps(used), committed=0.0)


def tiers_of(
    accelerators: Mapping[str, Accelerator], cards: Mapping[str, int], keys: list[tuple[str, str]]
) -> Tiers:
    """Return the price tiers of accelerators and of card types.

    Args:
        accelerators: accelerators by name.
        cards: number of cards by type.
        keys: name of the limit and name of the item, for each row.
    """
    items = tiered(accelerators, cards)
    steps = [(t, *step) for t, item in enumerate(items) for step in item.steps]
    of, size, price = np.array(steps, np.float64).reshape(-1, 3).T
    return Tiers(
        row=np.array([keys.index((NAMES[item.is_type], item.name)) for item in items], np.int64),
        listed=np.array([item.listed for item in items], np.float64),
        of=of.astype(np.int64),
        size=size,
        price=price,
        committed=committed_cents_per_h(accelerators),
        budget_row=next((row for row, (limit, _) in enumerate(keys) if items and limit == BUDGET), -1),
    )
