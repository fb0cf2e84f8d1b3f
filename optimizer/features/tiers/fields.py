"""Document fields for price tiers."""

from itertools import pairwise
from operator import not_

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import Cost, Document, PositiveCount
from optimizer.money import cost_text, currency_of


class PriceTier(Document):
    """A price tier: a number of accelerators at a separate price."""

    units: PositiveCount
    """Number of accelerators in the tier."""
    cost_cents_per_h: Cost = Field(alias="cost")
    """Price of each accelerator in the tier [cents/h]."""
    committed: bool = Field(default=False, exclude_if=not_)
    """Whether the accelerators of the tier are paid for even if unused."""


class TierField(Document):
    """Price tiers of an accelerator."""

    tiers: tuple[PriceTier, ...] = Field((), strict=False, exclude_if=not_)
    """Price tiers of the first accelerators that a plan uses; further ones cost `cost`. Prices must not fall
    from tier to tier, nor to `cost`. Absent: all cost `cost`.
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
