"""The table of all prices: each is a class with an entry here."""

from optimizer.features.tiers.price import TierPrice
from optimizer.prices.price import SharedPrice
from optimizer.spec.system import System

PRICES: tuple[type[SharedPrice], ...] = (TierPrice,)
"""All prices, in the order in which their rows and variables are added to models."""


def prices_of(system: System) -> tuple[SharedPrice, ...]:
    """Return the prices of a system."""
    return tuple(price for kind in PRICES for price in kind.of(system))
