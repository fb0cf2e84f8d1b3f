"""Documents of accelerators and capacities."""

from itertools import pairwise
from operator import not_
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
    PositiveCount,
    Share,
    SliceCount,
    UnlimitedCards,
    Watts,
    is_none,
)
from optimizer.features.places.fields import PlaceField
from optimizer.features.reserves.fields import Availability
from optimizer.features.shared_cards.fields import SliceField
from optimizer.limits.table import AcceleratorFields
from optimizer.money import cost_text, currency_of


class PriceTier(Document):
    """A number of accelerators at a separate price."""

    units: PositiveCount
    """Number of these accelerators."""
    cost_cents_per_h: Cost = Field(alias="cost")
    """Price of each of them [cents/h]."""
    committed: bool = Field(default=False, exclude_if=not_)
    """Whether they are paid for even if unused."""


class PriceFields(Document):
    """Availability and price tiers of an accelerator."""

    availability: Availability = Field(1.0, exclude_if=lambda share: share == 1)
    """Probability that one accelerator is available, for servers with an `availabilityTarget`. A replica on
    several accelerators needs all of them. Define spot cards as a separate accelerator.
    """
    tiers: tuple[PriceTier, ...] = Field((), strict=False, exclude_if=not_)
    """Prices of the first accelerators; the others cost `cost`. Prices must not fall from tier to tier, nor
    to `cost`. Absent: all cost `cost`.
    """

    @model_validator(mode="after")
    def _prices_do_not_fall(self) -> "PriceFields":
        listed: float = getattr(self, "cost_cents_per_h")  # noqa: B009  attribute of the accelerator
        prices = (*(tier.cost_cents_per_h for tier in self.tiers), listed)
        for number, (before, after) in enumerate(pairwise(prices), 1):
            if after < before:
                raise PydanticCustomError(
                    "falling_prices",
                    "tier {number} costs {before}, the accelerators after it {after}; prices must "
                    "not fall from tier to tier: put the cheapest first",
                    {
                        "number": number,
                        "before": cost_text(before, currency_of(before)),
                        "after": cost_text(after, currency_of(after)),
                    },
                )
        return self


class Power(Document):
    """Power curve of all cards of an accelerator: piecewise linear in the utilisation."""

    idle_w: Watts = Field(0.0, alias="idle")
    """Power when idle [W]."""
    full_w: Watts = Field(0.0, alias="full")
    """Power at full utilisation [W]."""
    mid_power_w: Watts = Field(0.0, alias="midPower")
    """Power at the inflection point [W]."""
    mid_utilization: Share = Field(0.0, alias="midUtil")
    """Utilisation at the inflection point."""

    def at(self, utilization: FloatArray) -> FloatArray:
        """Return the power at given utilisations [W], of the same shape."""
        points, power_w = [0.0, 1.0], [self.idle_w, self.full_w]
        if 0 < self.mid_utilization < 1:
            points.insert(1, self.mid_utilization)
            power_w.insert(1, self.mid_power_w)
        return np.interp(utilization, points, power_w)


class _Slice(AcceleratorFields):
    """An accelerator."""

    name: Name
    """Unique name."""
    type: Name
    """Accelerator type; capacities are counted per type."""
    multiplicity: SliceCount = 1
    """Cards (units of the type) in the slice."""
    memory_gb: Gigabytes = Field(0.0, alias="memSize")
    """Memory of the slice [GB]; required for cards that servers share."""
    memory_bandwidth_gb_per_s: GigabytesPerSecond = Field(0.0, alias="memBW")
    """Memory bandwidth of the slice [GB/s]."""
    power: Power = Power()
    """Power curve, for `maxPower` and reports."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Price of the slice [cents/h]."""


class Accelerator(SliceField, PlaceField, PriceFields, _Slice):  # pydantic puts the last base's fields first
    """A purchasable slice: one or more cards of one type (``4xA100``)."""


class Capacity(Document):
    """Number of available cards of an accelerator type."""

    type: Name
    """The accelerator type."""
    count: CardCount
    """Number of cards, or `unlimited`; with `more`, the number at the price of the accelerators."""
    more_cents_per_h: Cost | None = Field(None, alias="more", exclude_if=is_none)
    """Price of each card beyond `count` [cents/h]; any number is available. Absent: there are none."""

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
        """Return the document for the cards of a type in a system."""
        if isinstance(cards, UnlimitedCards) and cards.owned is not None:
            return cls(type=type_name, count=cards.owned, more_cents_per_h=cards.more_cents_per_h)
        return cls(type=type_name, count=cards)

    @property
    def cards(self) -> int:
        """The cards of the type in a system."""
        more = self.more_cents_per_h
        return self.count if more is None else UnlimitedCards(self.count, more)
