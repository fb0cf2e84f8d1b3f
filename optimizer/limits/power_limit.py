"""Limit on the power of all replicas, each at its maximum rate."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Document, Watts, is_none
from optimizer.limits.limit import Limit, Replicas, Stock
from optimizer.quantities import precise

POWER = "power"
ITEM = "all replicas"


class PowerOption(Document):
    """The options field of the power limit."""

    max_power_w: Watts | None = Field(None, alias="maxPower", exclude_if=is_none)
    """Maximum power of all replicas at their largest rates [W]; every accelerator that has a profile must
    state its power. Absent: not limited.
    """


class MaxPower(Limit):
    """Limit on the power at the largest rates, because at the load the power of mixed pools is not linear."""

    name: ClassVar[str] = POWER
    unit: ClassVar[str] = "W"
    field: ClassVar[str] = "max_power_w"
    counts_power: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the power limit as the amount of its only item; empty if power is not limited."""
        assert isinstance(stock.options, PowerOption)
        power_w = stock.options.max_power_w
        return {} if power_w is None else {ITEM: power_w}

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is a single item
        """Return the power of one replica of each candidate at its largest rate [W]."""
        return replicas.largest_power()

    def amount_text(self, item: str, amount: float) -> str:  # noqa: ARG002  there is a single item
        """Format an amount for messages: ``700 W of power``."""
        return f"{self.counted(amount)} of power"

    def label(self, item: str) -> str:  # noqa: ARG002  there is a single item
        """Return the name of the limit."""
        return self.name

    def counted(self, amount: float) -> str:
        """Format an amount: ``700 W``."""
        return f"{precise(amount)} W"
