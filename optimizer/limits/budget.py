"""Limit on the total cost of a plan."""

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
    """Optimizer option for the budget."""

    budget_cents_per_h: Cost | None = Field(None, alias="budget", exclude_if=is_none)
    """Maximum cost of the plan, including commitments and rentals [cents/h]; absent for no limit."""


class Budget(Limit):
    """Limit on the cost per hour; it applies even if cards are unlimited."""

    name: ClassVar[str] = BUDGET
    unit: ClassVar[str] = "cents/h"
    field: ClassVar[str] = "budget_cents_per_h"
    whole: ClassVar[bool] = False

    def __init__(self, currency: str | None = None) -> None:
        """Create the limit; its messages state costs in the currency, or in cents/h for None."""
        self._currency = currency

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the budget [cents/h] as the amount of the only item; empty without a budget."""
        assert isinstance(stock.options, BudgetOption)
        budget = stock.options.budget_cents_per_h
        return {} if budget is None else {ITEM: float(budget)}

    def use(self, replicas: Replicas, item: str) -> FloatArray:  # noqa: ARG002  there is a single item
        """Return the cost of one replica of each candidate [cents/h], shape (C,)."""
        return replicas.cost

    def in_currency(self, currency: str | None) -> "Budget":
        """Return the limit with messages that state costs in the currency."""
        return Budget(currency)

    def amount_text(self, item: str, amount: float) -> str:  # noqa: ARG002  there is a single item
        """Format an amount [cents/h] for messages: ``90 cents/h of the budget`` or in the currency."""
        return f"{self.counted(amount)} of the budget"

    def label(self, item: str) -> str:  # noqa: ARG002  there is a single item
        """Return the name of the limit."""
        return self.name

    def number(self, amount: float) -> str:
        """Format an amount [cents/h] as a number in the displayed unit: ``90``, ``0.90``."""
        return precise(amount) if self._currency is None else cost_amount(amount, self._currency)

    def counted(self, amount: float) -> str:
        """Format an amount [cents/h] with its unit: ``90 cents/h``, ``0.90 USD/h``."""
        return cost_text(amount, self._currency)
