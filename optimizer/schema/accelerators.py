"""Documents of accelerators and capacities."""

from typing import Self

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.arrays import FloatArray
from optimizer.documents import (
    CardCount,
    Cost,
    Document,
    Gigabytes,
    GigabytesPerSecond,
    Name,
    Share,
    SliceCount,
    UnlimitedCards,
    Watts,
    is_none,
)
from optimizer.features.fields import AcceleratorFeatureFields
from optimizer.limits.table import AcceleratorFields


class Power(Document):
    """Power curve of all cards of an accelerator: piecewise linear in the utilisation."""

    idle_w: Watts = Field(0.0, alias="idle")
    """Power when idle [W]."""
    full_w: Watts = Field(0.0, alias="full")
    """Power at full utilisation [W]."""
    mid_power_w: Watts = Field(0.0, alias="midPower")
    """Power at the inflection point [W]."""
    mid_utilization: Share = Field(0.0, alias="midUtil")
    """Utilisation at the inflection point, from 0 to 1."""

    def at(self, utilization: FloatArray) -> FloatArray:
        """Return the power at given utilisations [W], of the same shape."""
        points, power_w = [0.0, 1.0], [self.idle_w, self.full_w]
        if 0 < self.mid_utilization < 1:
            points.insert(1, self.mid_utilization)
            power_w.insert(1, self.mid_power_w)
        return np.interp(utilization, points, power_w)


class _Slice(AcceleratorFields):
    """Fields of an accelerator that do not belong to a feature."""

    name: Name
    """Unique name of the accelerator."""
    type: Name
    """Accelerator type; the numbers of cards in stock are counted by type."""
    multiplicity: SliceCount = 1
    """Number of cards of the type in the accelerator."""
    memory_gb: Gigabytes = Field(0.0, alias="memSize")
    """Memory of the accelerator [GB]; required for cards that servers share."""
    memory_bandwidth_gb_per_s: GigabytesPerSecond = Field(0.0, alias="memBW")
    """Memory bandwidth of the accelerator [GB/s]."""
    power: Power = Power()
    """Power curve of the accelerator, used for `maxPower` and reports."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Price of the accelerator [cents/h]."""


class Accelerator(AcceleratorFeatureFields, _Slice):  # pydantic puts the last base's fields first
    """A GPU group that can be bought: one or more cards of one type, such as ``4xA100``."""


class Capacity(Document):
    """Number of available cards of an accelerator type."""

    type: Name
    """Name of the accelerator type."""
    count: CardCount
    """Number of cards, or `unlimited`. With `more`, the number available at the price of the accelerators."""
    more_cents_per_h: Cost | None = Field(None, alias="more", exclude_if=is_none)
    """Price of each card beyond `count`, of which any number is available [cents/h]. Absent: no further
    cards.
    """

    @model_validator(mode="after")
    def _more_than_a_number(self) -> Self:
        if self.more_cents_per_h is not None and isinstance(self.count, UnlimitedCards):
            raise PydanticCustomError(
                "more_cards",
                "more: the price of cards beyond count, which is unlimited; remove one of the two",
            )
        return self

    @classmethod
    def of(cls, type_name: str, cards: int) -> Self:
        """Return the document for a number of cards of a type.

        Args:
            type_name: name of the accelerator type.
            cards: number of cards; `UnlimitedCards` with owned cards become `count` and `more`.
        """
        if isinstance(cards, UnlimitedCards) and cards.owned is not None:
            return cls(type=type_name, count=cards.owned, more_cents_per_h=cards.more_cents_per_h)
        return cls(type=type_name, count=cards)

    @property
    def cards(self) -> int:
        """Number of cards of the type; `UnlimitedCards` if `more` gives a price for further cards."""
        more = self.more_cents_per_h
        return self.count if more is None else UnlimitedCards(self.count, more)
