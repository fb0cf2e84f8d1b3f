"""Limit on the total cost."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from optimizer.arrays import FloatArray
from optimizer.documents import Cost, Document, is_none
from optimizer.limits.limit import Limit, Replicas, Stock
from optimizer.money import cost_amount, cost_text
from optimizer.quantities import precise

BUDGET = "budget"
ITEM = "total cost"


class BudgetOption(Document):
    """The options field of the budget."""

    budget_cents_per_h: Cost | None = Field(None, alias="budget", exclude_if=is_none)
    """Maximum cost of the plan, including commitments and rentals [cents/h]; absent: not limited."""


class Budget(Limit):
    """Limit on the cost per hour; it applies whether or not cards are limited."""

    name: ClassVar[str] = BUDGET
    unit: ClassVar[str] = "cents/h"
    field: ClassVar[str] = "budget_cents_per_h"
    whole: ClassVar[bool] = False

    def __init__(self, currency: str | None = None) -> None:
        """Create the limit; its messages state costs in a currency, or in cents."""
        self._currency = currency

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the budget as the amount of its only item; empty without a budget."""
        assert isinstance(stock.options, BudgetOption)
        budget = stock.options.budget_cents_per_h
        return {} if budget is None else {ITEM: float(budget)}

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is a single item
        """Return the cost of one replica of each candidate."""
        return replicas.cost

    def in_currency(self, currency: str | None) -> "Budget":
        """Return the limit with messages that state costs in a currency."""
        return Budget(currency)

    def amount_text(self, item: str, amount: float) -> str:  # noqa: ARG002  there is a single item
        """Format an amount for messages: ``90 cents/h of the budget``, ``0.90 USD/h of the budget``."""
        return f"{self.counted(amount)} of the budget"

    def label(self, item: str) -> str:  # noqa: ARG002  there is a single item
        """Return the name of the limit."""
        return self.name

    def number(self, amount: float) -> str:
        """Format an amount as a number: ``90``, ``0.90``."""
        return precise(amount) if self._currency is None else cost_amount(amount, self._currency)

    def counted(self, amount: float) -> str:
        """Format an amount: ``90 cents/h``, ``0.90 USD/h``."""
        return cost_text(amount, self._currency)
