"""Rows of models that count accelerators, or cards of a type, whose price depends on their number."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Limit, Replicas, Stock

TIERS, CARD_TIERS = "tiers", "card tiers"
PRICE_ROWS = frozenset({TIERS, CARD_TIERS})
"""Names of rows that count accelerators or cards for their price, and limit nothing."""


class TierRow(Limit):
    """Row that counts accelerators by name; it limits nothing and is not in the table of limits."""

    name: ClassVar[str] = TIERS
    unit: ClassVar[str] = "accelerator"
    whole: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> Mapping[str, float]:  # noqa: ARG002
        """Return no amounts, because nothing is limited."""
        return {}

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return how many of the item's accelerators one replica of each candidate uses, shape (C,)."""
        here = replicas.accelerator == replicas.accelerator_names.index(item)
        return np.where(here, replicas.accelerators, 0.0)


class CardTierRow(TierRow):
    """Row that counts the cards of a type; it limits nothing and is not in the table of limits."""

    name: ClassVar[str] = CARD_TIERS
    unit: ClassVar[str] = "card"

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the number of the type's cards that one replica of each candidate uses, shape (C,)."""
        return np.where(replicas.type == replicas.type_names.index(item), replicas.cards, 0.0)
