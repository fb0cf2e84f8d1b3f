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
    """Optimizer option for the power limit."""

    max_power_w: Watts | None = Field(None, alias="maxPower", exclude_if=is_none)
    """Maximum power of all replicas together, each at its maximum rate [W]; every accelerator that has a
    profile must state its power. Absent for no limit.
    """


class MaxPower(Limit):
    """Limit on the total power of all replicas, each at its maximum rate.

    The power at the load is not limited, because it is not linear in the replicas of mixed pools.
    """

    name: ClassVar[str] = POWER
    unit: ClassVar[str] = "W"
    field: ClassVar[str] = "max_power_w"
    counts_power: ClassVar[bool] = True
    whole: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the power limit [W] as the amount of the only item; empty if power is not limited."""
        assert isinstance(stock.options, PowerOption)
        power_w = stock.options.max_power_w
        return {} if power_w is None else {ITEM: power_w}

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is a single item
        """Return the power of one replica of each candidate at its maximum rate [W], shape (C,)."""
        return replicas.largest_power()

    def amount_text(self, item: str, amount: float) -> str:  # noqa: ARG002  there is a single item
        """Format an amount [W] for messages: ``700 W of power``."""
        return f"{self.counted(amount)} of power"

    def label(self, item: str) -> str:  # noqa: ARG002  there is a single item
        """Return the name of the limit."""
        return self.name

    def counted(self, amount: float) -> str:
        """Format an amount [W] with its unit: ``700 W``."""
        return f"{precise(amount)} W"
