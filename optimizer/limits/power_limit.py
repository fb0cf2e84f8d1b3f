"""Limit on the power of all replicas, each at its maximum rate."""

from typing import ClassVar

from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Document, Watts, is_none
from optimizer.limits.limit import LimitOfTotal, Replicas
from optimizer.quantities import precise

POWER = "power"
ITEM = "all replicas"


class PowerOption(Document):
    """Optimizer option for the power limit."""

    max_power_w: Watts | None = Field(None, alias="maxPower", exclude_if=is_none)
    """Maximum power of all replicas together, each at its maximum rate [W]; every accelerator that has a
    profile must state its power. Absent for no limit.
    """


class MaxPower(LimitOfTotal):
    """Limit on the total power of all replicas, each at its maximum rate.

    The power at the load is not limited, because it is not linear in the replicas of mixed pools.
    """

    name: ClassVar[str] = POWER
    unit: ClassVar[str] = "W"
    field: ClassVar[str] = "max_power_w"
    counts_power: ClassVar[bool] = True
    item: ClassVar[str] = ITEM
    total_name: ClassVar[str] = "power"

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is a single item
        """Return the power of one replica of each candidate at its maximum rate [W], shape (C,)."""
        return replicas.largest_power()

    def counted(self, amount: float) -> str:
        """Format an amount [W] with its unit: ``700 W``."""
        return f"{precise(amount)} W"
