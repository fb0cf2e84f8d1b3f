"""Limit on the cards that all nodes of a type have for replicas of at least some size."""

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.limits.limit import Limit, Replicas, Stock

IN_NODES = "nodes"


class CardsInNodes(str):
    """Item of the limit: the cards of a type that replicas of at least a size use; it reads as its name."""

    __slots__ = ("largest", "least", "type")

    type: str
    least: int
    """Least number of cards of the replicas, or of their parts, that count."""
    largest: int
    """Cards of the largest node; larger replicas are parts of this size."""

    def __new__(cls, type_name: str, least: int, largest: int, *, is_first: bool) -> Self:
        """Create the item; only the first one of a type counts all replicas, and has the name of the type."""
        result = super().__new__(cls, type_name if is_first else f"{type_name} in groups of {least}")
        result.type, result.least, result.largest = type_name, least, largest
        return result

    def __getnewargs_ex__(self) -> tuple[tuple[str, int, int], dict[str, bool]]:
        """Return the arguments that create an equal item, for copies in other processes."""
        return (self.type, self.least, self.largest), {"is_first": self == self.type}


class Nodes(Limit):
    """Cards of nodes, by the size of replicas; only types all of whose nodes have `maxNodes` are limited."""

    name: ClassVar[str] = IN_NODES
    unit: ClassVar[str] = "card"
    has_steps: ClassVar[bool] = False

    def amounts(self, stock: Stock) -> Mapping[str, float]:
        """Return the cards of all nodes of a type for each size that needs a row of its own."""
        return stock.of_features.get(self.name, {})

    def use(self, replicas: Replicas, item: str) -> FloatArray:
        """Return the cards of a replica, if it or its parts have at least the item's size, shape (C,)."""
        if not isinstance(item, CardsInNodes):
            raise TypeError(f"{item!r} is no item of nodes")
        here = replicas.type == replicas.type_names.index(item.type)
        here &= np.minimum(replicas.cards, item.largest) >= item.least
        return np.where(here, replicas.cards, 0.0)

    def label(self, item: str) -> str:
        """Return a short name of an item: ``H100 in nodes``."""
        return f"{item} in nodes"

    def amount_text(self, item: str, amount: float) -> str:
        """Format an amount for messages: ``4 cards of H100 in nodes``."""
        return f"{self.counted(amount)} of {item} in nodes"
