"""Formats costs as text, in the currency of a system's prices or else in cents/h."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optimizer.money import cost_amount, cost_unit, in_cost_unit
from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.section import Column, FormattedValue

HALF_A_HUNDREDTH = 0.005
"""Amounts below this are shown as zero."""


@dataclass(frozen=True, slots=True)
class Money:
    """Format of the costs in a plan."""

    currency: str | None = None
    """Currency code; None for cents/h."""

    @classmethod
    def of(cls, *plans: Plan) -> "Money":
        """Return the format with the first currency that a plan names."""
        return cls(next((plan.currency for plan in plans if plan.currency is not None), None))

    @property
    def unit(self) -> str:
        """Return the unit for headings: ``cents/h``, ``USD/h``."""
        return cost_unit(self.currency)

    def amount(self, cents_per_h: float) -> str:
        """Return a cost without its unit."""
        return cost_amount(cents_per_h, self.currency)

    def text(self, cents_per_h: float) -> str:
        """Return a cost with its unit."""
        return f"{self.amount(cents_per_h)} {self.unit}"

    def distance(self, cents_per_h: float) -> str:
        """Return the absolute difference of two costs, with more digits if it would be shown as zero."""
        amount = abs(in_cost_unit(cents_per_h, self.currency))
        return f"{amount:,.2f}" if amount >= HALF_A_HUNDREDTH or not amount else quantity(amount)

    def number(self, cents_per_h: float | None) -> float | None:
        """Return a cost as a number in the displayed unit; None if unknown."""
        return None if cents_per_h is None else in_cost_unit(cents_per_h, self.currency)

    @property
    def sum_unit(self) -> str:
        """Return the unit of what accrues over time: ``cents``, ``USD``."""
        return self.unit.removesuffix("/h")

    def column(
        self, heading: str, of: Callable[[Any], float | None], rank: int = 0, unit: str | None = None
    ) -> Column:
        """Return a column of costs given in cents/h, or in cents if the unit is `sum_unit`."""
        return Column(heading, lambda item: self.number(of(item)), unit or self.unit, ",.2f", rank)

    def change(self, cents_per_h: float | None) -> FormattedValue | None:
        """Return a cost difference with its sign; None if unknown."""
        return difference(self.number(cents_per_h), ",.2f")


def difference(value: float | None, form: str) -> FormattedValue | None:
    """Return a difference with its sign; None if unknown."""
    return None if value is None else FormattedValue(signed(value, form), value)


def signed(value: float, form: str) -> str:
    """Return a difference with its sign, or without one if it is shown as zero."""
    text = format(value, f"+{form}")
    return text if any(digit in text for digit in "123456789") else format(abs(value), form)
