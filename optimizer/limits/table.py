"""The table of limits: a limit is a file beside this one, and an entry here."""

from optimizer.documents import Document
from optimizer.limits.cards import Cards
from optimizer.limits.limit import Limit

LIMITS: tuple[Limit, ...] = (Cards(),)
"""All limits, in the order in which plans list them."""


class LimitOptions(Document):
    """Fields of the optimizer's options that limits bring; a limit's own class of fields becomes a base."""
