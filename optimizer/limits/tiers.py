"""The row that counts the accelerators of one name if their price depends on their number."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Limit, Replicas, Stock

TIERS = "tiers"


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
