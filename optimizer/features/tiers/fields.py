"""Documents of price tiers."""

from itertools import pairwise
from operator import not_

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import Cost, Document, PositiveCount
from optimizer.money import cost_text, currency_of


class PriceTier(Document):
    """A number of accelerators at a separate price."""

    units: PositiveCount
    """Number of these accelerators."""
    cost_cents_per_h: Cost = Field(alias="cost")
    """Price of each of them [cents/h]."""
    committed: bool = Field(default=False, exclude_if=not_)
    """Whether they are paid for even if unused."""


class TierField(Document):
    """Price tiers of an accelerator."""

    tiers: tuple[PriceTier, ...] = Field((), strict=False, exclude_if=not_)
    """Prices of the first accelerators; the others cost `cost`. Prices must not fall from tier to tier, nor
    to `cost`. Absent: all cost `cost`.
    """

    @model_validator(mode="after")
    def _prices_do_not_fall(self) -> "TierField":
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
