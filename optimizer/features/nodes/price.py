"""Nodes as a price: cards of a type cost nothing, and the nodes that hold them are variables."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.features.nodes.limit import Nodes
from optimizer.features.nodes.packing import NodePool
from optimizer.prices.price import CostPart, SharedPrice
from optimizer.spec.prices import ENDLESS
from optimizer.spec.system import System


@dataclass(frozen=True, eq=False, kw_only=True)
class NodePrice(SharedPrice):
    """Prices of nodes of one card type: a row for each level of sizes, a variable for each node type."""

    pool: NodePool
    origin: ClassVar[str] = "nodes"
    noun: ClassVar[str] = "nodes"

    @classmethod
    def of(cls, system: System) -> Iterator["NodePrice"]:
        """Yield the prices of nodes of each card type."""
        for pool in system.node_pools:
            yield cls(
                name=pool.type,
                rows=tuple((Nodes(), item) for item in pool.items),
                first=np.zeros(len(pool.items)),
                upper=np.minimum(pool.most, ENDLESS),
                cost=pool.cost,
                adds=pool.capacity.astype(np.float64),
                meanings=tuple(f"nodes of type {node.name}" for node in pool.nodes),
                fixed=pool.spare_cost,
                pool=pool,
            )

    def values(self, used: FloatArray) -> FloatArray:
        """Return the numbers of the cheapest nodes that hold some cards, shape (N,)."""
        counts = self.pool.cheapest([*map(int, np.round(used).tolist())])
        return np.full(len(self.upper), np.inf) if counts is None else np.array(counts, np.float64)

    def parts(self, used: FloatArray, before: FloatArray) -> Iterator[CostPart]:
        """Yield the cost of the nodes of each type, with spare ones; use is that of each row, shape (K,)."""
        every, already = self.values(used + before), self.values(before)
        counts = np.where(np.isfinite(every), every - already, 0.0)  # the limit reports missing nodes
        for node, count, cost in zip(self.pool.nodes, counts.tolist(), self.cost.tolist(), strict=True):
            yield CostPart(node.name, count * cost + node.spare_cents_per_h)

    def most_of(self, use: FloatArray) -> FloatArray:
        """Return the cost of nodes of its own for each replica [cents/h], shape (C,).

        They are the cheapest ones without a limit, or else the dearest ones: then each node has a replica.
        """
        kinds, of = np.unique(use, axis=0, return_inverse=True)
        return np.array([self._alone(cards) for cards in kinds])[of.ravel()]

    def _alone(self, cards: FloatArray) -> float:
        if not cards.any():
            return 0.0
        level = int(np.flatnonzero(cards)[-1])
        fits = self.adds[level] > 0
        costs = np.ceil(cards[level] / self.adds[level][fits]) * self.cost[fits]
        endless = costs[self.upper[fits] >= ENDLESS]
        return float(endless.min()) if len(endless) else float(costs.max(initial=0.0))

    def usual_of(self, use: FloatArray) -> FloatArray:
        """Return the price of the cards of each replica in full nodes [cents/h], shape (C,)."""
        return use[:, 0] * self.pool.card_price
