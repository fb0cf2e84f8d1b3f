"""Limit on the total cost of a plan."""

from typing import ClassVar

from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Cost, Document, is_none
from optimizer.limits.limit import LimitOfTotal, Replicas
from optimizer.money import cost_amount, cost_text
from optimizer.quantities import precise

BUDGET = "budget"
ITEM = "total cost"


class BudgetOption(Document):
    """Optimizer option for the budget."""

    budget_cents_per_h: Cost | None = Field(None, alias="budget", exclude_if=is_none)
    """Maximum cost of the plan, including commitments and rentals [cents/h]; absent for no limit."""


class Budget(LimitOfTotal):
    """Limit on the cost per hour; it applies even if cards are unlimited."""

    name: ClassVar[str] = BUDGET
    unit: ClassVar[str] = "cents/h"
    field: ClassVar[str] = "budget_cents_per_h"
    item: ClassVar[str] = ITEM
    total_name: ClassVar[str] = "the budget"

    def __init__(self, currency: str | None = None) -> None:
        """Create the limit; its messages state costs in the currency, or in cents/h for None."""
        self._currency = currency

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is a single item
        """Return the cost of one replica of each candidate [cents/h], shape (C,)."""
        return replicas.cost

    def in_currency(self, currency: str | None) -> "Budget":
        """Return the limit with messages that state costs in the currency."""
        return Budget(currency)

    def number(self, amount: float) -> str:
        """Format an amount [cents/h] as a number in the displayed unit: ``90``, ``0.90``."""
        return precise(amount) if self._currency is None else cost_amount(amount, self._currency)

    def counted(self, amount: float) -> str:
        """Format an amount [cents/h] with its unit: ``90 cents/h``, ``0.90 USD/h``."""
        return cost_text(amount, self._currency)
