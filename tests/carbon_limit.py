"""A limit on emissions, which the program lacks: `test_a_new_limit` adds it to a copy of the tree."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Document, Quantity, Share
from optimizer.limits.limit import Limit, Replicas, Stock
from optimizer.quantities import precise

ITEM = "all replicas"


class CarbonField(Document):
    """Field of accelerators."""

    carbon_g_per_h: Quantity = Field(0.0, alias="carbon", exclude_if=lambda grams: not grams)
    """Emissions of the accelerator [g/h]."""


class CarbonOption(Document):
    """Setting of the limit in the optimizer's options."""

    max_carbon: Quantity | None = Field(None, alias="maxCarbon", exclude_if=lambda grams: grams is None)
    """Maximum emissions of all accelerators in use [g/h]; absent: not limited."""
    carbon_margin: Share = Field(0.0, alias="carbonMargin", exclude_if=lambda share: not share)
    """Share of the maximum that plans leave unused."""


class Carbon(Limit):
    """Limit on the emissions of all accelerators in use, by replicas or by servers that share cards."""

    name: ClassVar[str] = "carbon"
    unit: ClassVar[str] = "g/h"
    field: ClassVar[str] = "max_carbon"
    whole: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the limit as the amount of its only item."""
        assert isinstance(stock.options, CarbonOption)
        most = stock.options.max_carbon
        return {} if most is None else {ITEM: most * (1 - stock.options.carbon_margin)}

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is one
        """Return the emissions of one replica of each candidate."""
        return replicas.of_accelerators(lambda accelerator: accelerator.carbon_g_per_h)

    def counted(self, amount: float) -> str:
        """Format an amount: ``90 g/h``."""
        return f"{precise(amount)} g/h"
