"""Slots in racks, a limit that the program lacks: `test_a_new_limit` adds it to a copy of the tree."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Count, Document
from optimizer.limits.limit import Limit, Replicas, Stock

ITEM = "all racks"


class RackSlotOption(Document):
    """Setting of the limit in the optimizer's options."""

    rack_slots: Count | None = Field(None, alias="rackSlots", exclude_if=lambda slots: slots is None)
    """Slots that all replicas together may take; absent: not limited."""


class RackSlots(Limit):
    """Two cards of a replica share a slot; replicas do not."""

    name: ClassVar[str] = "rack slots"
    unit: ClassVar[str] = "slot"
    field: ClassVar[str] = "rack_slots"

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the slots, whether cards are limited or not."""
        assert isinstance(stock.options, RackSlotOption)
        slots = stock.options.rack_slots
        return {} if slots is None else {ITEM: float(slots)}

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is one
        """Return a slot for every two cards."""
        return np.ceil(replicas.cards / 2)
