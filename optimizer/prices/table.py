"""The table of all prices: each is a class with an entry here."""

from collections.abc import Mapping
from types import MappingProxyType

from optimizer.features.nodes.price import NodePrice
from optimizer.features.tiers.price import TierPrice
from optimizer.prices.price import SharedPrice
from optimizer.spec.system import System

PRICES: tuple[type[SharedPrice], ...] = (TierPrice, NodePrice)
"""All prices, in the order in which their rows and variables are added to models."""
ORIGINS: Mapping[str, str] = MappingProxyType(
    {price.origin: price.noun for price in PRICES} | {"external": "rented services"}
)
"""Nouns for the origins of costs beyond list prices."""


def prices_of(system: System) -> tuple[SharedPrice, ...]:
    """Return the prices of a system."""
    return tuple(price for kind in PRICES for price in kind.of(system))
