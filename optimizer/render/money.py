"""Costs as text, in the currency of a system's prices, or in cents/h if no currency is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optimizer.money import cost_amount, cost_unit, in_cost_unit
from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.section import Column, FormattedValue

HALF_A_HUNDREDTH = 0.005
"""Amounts of less than half of 0.01 are shown as zero."""


@dataclass(frozen=True, slots=True)
class Money:
    """Currency in which the costs of a plan are shown."""

    currency: str | None = None
    """Currency code, such as USD; None for cents/h."""

    @classmethod
    def of(cls, *plans: Plan) -> "Money":
        """Return the currency of the first plan that states one."""
        return cls(next((plan.currency for plan in plans if plan.currency is not None), None))

    @property
    def unit(self) -> str:
        """Return the unit of costs for headings: ``cents/h``, ``USD/h``."""
        return cost_unit(self.currency)

    def amount(self, cents_per_h: float) -> str:
        """Return a cost, given in cents/h, as text in this currency without its unit."""
        return cost_amount(cents_per_h, self.currency)

    def text(self, cents_per_h: float) -> str:
        """Return a cost, given in cents/h, as text in this currency with its unit."""
        return f"{self.amount(cents_per_h)} {self.unit}"

    def distance(self, cents_per_h: float) -> str:
        """Return the absolute cost difference as text, with more digits if it would read as zero."""
        amount = abs(in_cost_unit(cents_per_h, self.currency))
        return f"{amount:,.2f}" if amount >= HALF_A_HUNDREDTH or not amount else quantity(amount)

    def number(self, cents_per_h: float | None) -> float | None:
        """Convert a cost from cents/h to the displayed unit; None if the cost is unknown."""
        return None if cents_per_h is None else in_cost_unit(cents_per_h, self.currency)

    @property
    def sum_unit(self) -> str:
        """Return the unit of costs summed over time: ``cents``, ``USD``."""
        return self.unit.removesuffix("/h")

    def column(
        self, heading: str, of: Callable[[Any], float | None], rank: int = 0, unit: str | None = None
    ) -> Column:
        """Return a column of costs.

        Args:
            heading: heading of the column.
            of: function that returns a row's cost [cents/h, or cents if the unit is `sum_unit`].
            rank: rank of the column; higher ranks are hidden first.
            unit: unit in the heading; None: that of costs per hour.
        """
        return Column(heading, lambda item: self.number(of(item)), unit or self.unit, ",.2f", rank)

    def change(self, cents_per_h: float | None) -> FormattedValue | None:
        """Return a cost difference, given in cents/h, as a table cell with its sign; None if unknown."""
        return difference(self.number(cents_per_h), ",.2f")


def difference(value: float | None, form: str) -> FormattedValue | None:
    """Return a difference as a table cell with its sign; None if unknown. `form` is a number format."""
    return None if value is None else FormattedValue(signed(value, form), value)


def signed(value: float, form: str) -> str:
    """Return a difference as text with its sign, or without one if it reads as zero.

    `form` is a number format.
    """
    text = format(value, f"+{form}")
    return text if any(digit in text for digit in "123456789") else format(abs(value), form)
