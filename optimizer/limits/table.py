"""The table of limits: each limit is a module in this package, and an entry here."""

from optimizer.limits.budget import Budget, BudgetOption
from optimizer.limits.cards import Cards
from optimizer.limits.limit import Limit
from optimizer.limits.power import MaxPower, PowerOption

LIMITS: tuple[Limit, ...] = (Cards(), Budget(), MaxPower())
"""All limits, in the order of plans."""


class LimitOptions(PowerOption, BudgetOption):
    """Fields of the optimizer's options that belong to limits; a limit adds its class of fields as a base."""
