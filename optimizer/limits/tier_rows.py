"""The rows that count the accelerators of one name, or the cards of one type, for prices by number."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Limit, Replicas, Stock

TIERS, CARD_TIERS = "tiers", "card tiers"
PRICE_ROWS = frozenset({TIERS, CARD_TIERS})
"""Names of rows that count units for their price, and limit nothing."""


class TierRow(Limit):
    """Row that counts the accelerators of one name; it has no amount and is not in the table of limits."""

    name: ClassVar[str] = TIERS
    unit: ClassVar[str] = "accelerator"
    whole: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> Mapping[str, float]:  # noqa: ARG002
        """Return no amounts."""
        return {}

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the accelerators of one replica."""
        here = replicas.accelerator == replicas.accelerator_names.index(item)
        return np.where(here, replicas.accelerators, 0.0)


class CardTierRow(TierRow):
    """Row that counts the cards of one type; it has no amount and is not in the table of limits."""

    name: ClassVar[str] = CARD_TIERS
    unit: ClassVar[str] = "card"

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the cards of one replica."""
        return np.where(replicas.type == replicas.type_names.index(item), replicas.cards, 0.0)
