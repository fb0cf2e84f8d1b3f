"""Limit on the cards of each accelerator type."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Limit, Replicas, Stock

CARDS = "cards"


class Cards(Limit):
    """Limit on the cards of each accelerator type; a type without a stated number has no cards."""

    name: ClassVar[str] = CARDS
    unit: ClassVar[str] = "card"
    step: ClassVar[float | None] = 1.0
    can_be_added: ClassVar[bool] = True

    def label(self, item: str) -> str:
        """Return the accelerator type, which is the item."""
        return item

    def why_none(self, item: str, stock: Stock) -> str | None:
        """Return a message if the system states no number of cards of the type, else None."""
        return None if item in stock.cards else f"{item} is not listed in count, so there are none"

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the available cards of each limited type; empty if plans are unlimited."""
        return stock.limited_cards

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the number of cards of a type that one replica of each candidate uses, shape (C,)."""
        return np.where(replicas.type == replicas.type_names.index(item), replicas.cards, 0.0)
