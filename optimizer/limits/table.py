"""The table of limits: a limit is a file beside this one, and an entry here."""

from optimizer.limits.budget import Budget, BudgetOption
from optimizer.limits.cards import Cards
from optimizer.limits.limit import Limit
from optimizer.limits.power import MaxPower, PowerOption

LIMITS: tuple[Limit, ...] = (Cards(), Budget(), MaxPower())
"""All limits, in the order in which plans list them."""


class LimitOptions(PowerOption, BudgetOption):
    """Fields of the optimizer's options that limits bring; a limit's own class of fields becomes a base."""
