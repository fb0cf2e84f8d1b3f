"""The table of all limits: each is a module in this package and has an entry here."""

from optimizer.documents import Document
from optimizer.features.nodes.limit import Nodes
from optimizer.limits.budget import Budget, BudgetOption
from optimizer.limits.cards import Cards
from optimizer.limits.limit import Limit
from optimizer.limits.power_limit import MaxPower, PowerOption
from optimizer.limits.rollout import RolloutOfAll, RolloutOfOne, RolloutOption

LIMITS: tuple[Limit, ...] = (Cards(), Nodes(), Budget(), MaxPower(), RolloutOfAll(), RolloutOfOne())
"""All limits, in the order in which plans list them."""


def limit_named(name: str) -> Limit | None:
    """Return the limit with a name; None if it is unknown, as in plans of other versions."""
    return next((limit for limit in LIMITS if limit.name == name), None)


def limit_label(limit: str, item: str) -> str:
    """Return a short name of a limited item: ``H100`` for cards, ``power``."""
    known = limit_named(limit)
    return f"{limit} of {item}" if known is None else known.label(item)


class AcceleratorFields(Document):
    """Fields that limits add to accelerators; each limit with such fields is a base class."""


class LimitOptions(RolloutOption, PowerOption, BudgetOption):
    """Fields that limits add to the optimizer options; each limit with such fields is a base class."""
