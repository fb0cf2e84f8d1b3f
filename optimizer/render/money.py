"""Costs as text: in the currency that a system's prices name, else in cents/h, the unit of its numbers.

The one place where tables and pages turn a cost into text: they ask here for the amount, and for the unit
that stands above it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from optimizer.money import CENTS, cost_amount, cost_unit, in_cost_unit
from optimizer.plan import Plan
from optimizer.quantities import quantity
from optimizer.render.columns import Column

HALF_A_HUNDREDTH = 0.005
"""An amount below this reads as nothing."""


@dataclass(frozen=True, slots=True)
class Money:
    """How the costs of one plan are written."""

    currency: str | None = None
    """Code of the currency; none: cents/h of whatever the document counts in."""

    @classmethod
    def of(cls, *plans: Plan) -> "Money":
        """Return how the costs of plans are written: in the currency that the first of them names."""
        return cls(next((plan.currency for plan in plans if plan.currency is not None), None))

    @property
    def unit(self) -> str:
        """The unit, for headings: ``cents/h``, ``USD/h``."""
        return cost_unit(self.currency)

    def amount(self, cents_per_h: float) -> str:
        """Return a cost without its unit."""
        return cost_amount(cents_per_h, self.currency)

    def text(self, cents_per_h: float) -> str:
        """Return a cost with its unit."""
        return f"{self.amount(cents_per_h)} {self.unit}"

    def change(self, cents_per_h: float) -> str:
        """Return a difference with its sign; one that reads as nothing has none."""
        return signed(in_cost_unit(cents_per_h, self.currency), ",.2f")

    def distance(self, cents_per_h: float) -> str:
        """Return how far two costs are apart, without unit; with more digits if it would read as nothing."""
        amount = abs(in_cost_unit(cents_per_h, self.currency))
        return f"{amount:,.2f}" if amount >= HALF_A_HUNDREDTH or not amount else quantity(amount)

    def number(self, cents_per_h: float | None) -> float | None:
        """Return a cost as a number for a column of `columns`; none stays none."""
        return None if cents_per_h is None else in_cost_unit(cents_per_h, self.currency)

    def columns(self, columns: Iterable[Column]) -> tuple[Column, ...]:
        """Return the columns of a table with this unit above the costs."""
        return tuple(
            column._replace(unit=self.unit) if column.unit == CENTS else column for column in columns
        )


def signed(value: float, form: str) -> str:
    """Return a difference with its sign; one that reads as nothing has none."""
    text = format(value, f"+{form}")
    return text if any(digit in text for digit in "123456789") else format(abs(value), form)
