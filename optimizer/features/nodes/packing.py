"""Which replicas fit into nodes, the cheapest nodes for them, and where each replica lies.

If of any two sizes of replicas the smaller divides the larger, replicas fit into nodes if and only if for
each size c the cards of the replicas of at least this size are at most the sum of floor(cards / c) · c over
the nodes (eq. 269). So the rows of `NodePool.levels` are exact, and placing the largest replicas first always
succeeds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray, grouped
from optimizer.features.nodes.fields import NodeType
from optimizer.features.nodes.limit import CardsInNodes
from optimizer.schema import Accelerator, ModelProfile
from optimizer.tolerances import ROUNDING

MOST_CARDS = 1_000_000
"""Cards of a type up to which the cheapest nodes are exact and the contents of nodes are listed."""


class NodeGroup(NamedTuple):
    """Node types into which the same replicas fit, the cheapest first."""

    capacity: tuple[int, ...]
    """Cards of one node that replicas of each level can use."""
    members: tuple[int, ...]
    """Indices of the node types."""


@dataclass(frozen=True)
class NodePool:
    """The nodes with cards of one type: N node types, and K levels of sizes of replicas."""

    type: str
    sizes: tuple[int, ...]
    """Numbers of cards of the replicas that can use them, or of their parts; each divides the next."""
    nodes: tuple[NodeType, ...]
    """Node types, sorted by name."""
    unlimited: bool = False
    """Whether `maxNodes` of nodes that cost something is ignored."""

    @property
    def largest(self) -> int:
        """Cards of the largest node."""
        return max(node.cards for node in self.nodes)

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """Sizes that need a row of their own; other rows follow from that of the next smaller size."""
        fits = [tuple(node.cards // size * size for node in self.nodes) for size in self.sizes]
        pairs = zip(self.sizes, fits, [None, *fits], strict=False)
        return tuple(size for size, above, below in pairs if above != below)

    @cached_property
    def items(self) -> tuple[CardsInNodes, ...]:
        """Item of the limit on nodes for each level, shape (K,)."""
        first = self.levels[0]
        return tuple(
            CardsInNodes(self.type, level, self.largest, is_first=level == first) for level in self.levels
        )

    @cached_property
    def capacity(self) -> IntArray:
        """Cards of one node of each type that replicas of at least each level can use, shape (K, N)."""
        return np.array([[n.cards // size * size for n in self.nodes] for size in self.levels], np.int64)

    @cached_property
    def cost(self) -> FloatArray:
        """Price of one node of each type [cents/h], shape (N,)."""
        return np.array([float(node.cost_cents_per_h) for node in self.nodes])

    @cached_property
    def most(self) -> FloatArray:
        """Maximum number of nodes of each type for replicas, inf without a limit, shape (N,)."""
        lifted = [self.unlimited and node.cost_cents_per_h > 0 for node in self.nodes]
        most = [None if lift else node.max_nodes for lift, node in zip(lifted, self.nodes, strict=True)]
        pairs = zip(most, self.nodes, strict=True)
        return np.array([np.inf if one is None else float(one - node.spare_nodes) for one, node in pairs])

    @property
    def spare_cost(self) -> float:
        """Cost of all spare nodes [cents/h]."""
        return sum(node.spare_cents_per_h for node in self.nodes)

    @cached_property
    def card_price(self) -> float:
        """Price of a card in a full node [cents/h]: of unlimited nodes the least, else the largest."""
        prices = self.cost / np.array([node.cards for node in self.nodes])
        endless = prices[np.isinf(self.most)]
        return float(endless.min() if len(endless) else prices.max())

    @property
    def amounts(self) -> dict[str, float]:
        """Cards that all nodes except spare ones have for each item; only items with a limit."""
        some = self.capacity > 0  # inf * 0 is not a number
        total = [(row[used] * self.most[used]).sum() for row, used in zip(self.capacity, some, strict=True)]
        return {item: float(n) for item, n in zip(self.items, total, strict=True) if np.isfinite(n)}

    @cached_property
    def groups(self) -> tuple[NodeGroup, ...]:
        """Node types by what fits into them: groups with nodes that are paid for, then larger nodes first."""
        same_capacity = grouped((tuple(column), n) for n, column in enumerate(self.capacity.T.tolist()))
        groups = [
            NodeGroup(key, tuple(sorted(alike, key=lambda n: (self.cost[n], self.nodes[n].cards))))
            for key, alike in same_capacity.items()
        ]
        return tuple(sorted(groups, key=lambda g: (self.cost[g.members[0]] > 0, *(-n for n in g.capacity))))

    def need(self, replicas: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """Return the cards that replicas use at each level, shape (K,), from pairs of size and number."""
        pairs = [*replicas]
        each = [(min(size, self.largest), size * n) for size, n in pairs]
        return tuple(sum(cards for size, cards in each if size >= level) for level in self.levels)

    def cheapest(self, need: Sequence[int]) -> tuple[int, ...] | None:
        """Return the number of nodes of each type that hold the cards at the least cost (eq. 270).

        None if no nodes suffice. Of more than `MOST_CARDS`, the rest is in nodes of the cheapest cards.
        """
        beyond = max(need) - MOST_CARDS
        if beyond <= 0:
            return _cheapest(self, tuple(need))
        each = self.capacity[-1]
        ratios = np.where(each > 0, self.cost / np.maximum(each, 1), np.inf)
        best = int(np.where(self.most >= beyond, ratios, np.inf).argmin())
        more = -(-beyond // max(int(each[best]), 1))
        if self.most[best] < more or not each[best]:
            return None
        left = (cards - more * int(row[best]) for cards, row in zip(need, self.capacity, strict=True))
        cheapest = _cheapest(self, tuple(max(cards, 0) for cards in left))
        return cheapest and tuple(n + more * (i == best) for i, n in enumerate(cheapest))

    def __hash__(self) -> int:
        """Hash what equality compares."""
        return hash((self.type, self.sizes, self.unlimited, *(n.name for n in self.nodes)))


@lru_cache(maxsize=20_000)
def _cheapest(pool: NodePool, need: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the numbers of nodes of the least cost, by branch and bound over the groups."""
    counts = _CheapestNodes(pool, need).counts
    return None if counts is None else tuple(_without_empty(pool, need, counts).tolist())


def _without_empty(pool: NodePool, need: tuple[int, ...], counts: IntArray) -> IntArray:
    """Return numbers of nodes without those that cost nothing and are not needed."""
    for n in np.flatnonzero(pool.cost == 0).tolist():
        each = pool.capacity[:, n]
        left = pool.capacity @ counts - np.array(need, np.int64)
        spare = (left[each > 0] // each[each > 0]).min(initial=counts[n])
        counts[n] -= min(int(counts[n]), max(int(spare), 0))
    return counts


class _CheapestNodes:
    """Search for the cheapest nodes of a pool: each group has a number of nodes, the last takes the rest.

    The bound of what is left is that of the level for which the cheapest cards cost most.
    """

    def __init__(self, pool: NodePool, need: tuple[int, ...]) -> None:
        self.pool, self.least, self.chosen = pool, np.inf, list[int]()
        self.prices = [self._prices(group, need) for group in pool.groups]
        self._choose(np.array(need, np.int64), 0.0, [])

    @property
    def counts(self) -> IntArray | None:
        """Number of nodes of each type, shape (N,); None if no nodes suffice."""
        if not np.isfinite(self.least):
            return None
        counts = np.zeros(len(self.pool.nodes), np.int64)
        for group, number in zip(self.pool.groups, self.chosen, strict=True):
            left = number
            for n in group.members:
                counts[n] = min(left, self.pool.most[n])
                left -= int(counts[n])
        return counts

    def _prices(self, group: NodeGroup, need: Sequence[int]) -> FloatArray:
        """Return the cost of 0, 1, 2, … useful nodes of a group, the cheapest first."""
        useful = _needed(need, group.capacity)
        each = [
            np.full(int(min(self.pool.most[n], useful)), self.pool.cost[n], np.float64) for n in group.members
        ]
        return np.concatenate([[0.0], np.cumsum(np.concatenate(each)[:useful])])

    def _bounds(self, group: int, left: IntArray) -> FloatArray:
        """Return a lower bound of the cost of the cards left for the groups from one on; `left` is (K, M)."""
        bound = np.zeros(left.shape[1])
        for level, cards in enumerate(left):
            ratios = [
                self.pool.cost[each.members[0]] / each.capacity[level]
                for each in self.pool.groups[group:]
                if each.capacity[level]
            ]
            least = min(ratios, default=np.inf)
            some = cards > 0
            bound[some] = np.maximum(bound[some], cards[some] * least)
        return bound

    def _choose(self, left: IntArray, cost: float, chosen: list[int]) -> None:
        """Choose the number of nodes of the next group, in the order of the bounds, then most nodes first."""
        group = len(chosen)
        if group == len(self.pool.groups):
            if (left <= 0).all() and cost < self.least - ROUNDING * max(1.0, cost):
                self.least, self.chosen = cost, chosen
            return
        capacity, prices = np.array(self.pool.groups[group].capacity, np.int64), self.prices[group]
        needed = _needed(left.tolist(), capacity.tolist())
        numbers = np.arange(min(needed, len(prices) - 1) + 1)
        after = left[:, None] - capacity[:, None] * numbers
        bounds = cost + prices[numbers] + self._bounds(group + 1, after)
        for place in np.lexsort((-numbers, np.round(bounds, 9))).tolist():
            if bounds[place] >= self.least - ROUNDING * max(1.0, cost):
                break
            total = cost + float(prices[numbers[place]])
            self._choose(after[:, place], total, [*chosen, int(numbers[place])])


def _needed(need: Sequence[int], capacity: Sequence[int]) -> int:
    """Return the number of nodes beyond which more of them hold no more of the needed cards."""
    each = zip(need, capacity, strict=True)
    return max((-(-cards // fits) for cards, fits in each if fits and cards > 0), default=0)


def node_pools(
    nodes: Iterable[NodeType],
    accelerators: Mapping[str, Accelerator],
    profiles: Mapping[tuple[str, str], ModelProfile],
    *,
    unlimited: bool,
) -> tuple[NodePool, ...]:
    """Return the nodes of each card type, sorted by type."""
    by_type = grouped((node.type, node) for node in sorted(nodes, key=lambda node: node.name))
    sizes = replica_sizes(accelerators, profiles)
    pools = []
    for kind in sorted(by_type):
        largest = max(node.cards for node in by_type[kind])
        parts = {min(size, largest) for size in sizes.get(kind, {1})}
        pools.append(NodePool(kind, tuple(sorted(parts)), tuple(by_type[kind]), unlimited))
    return tuple(pools)


def replica_sizes(
    accelerators: Mapping[str, Accelerator], profiles: Mapping[tuple[str, str], ModelProfile]
) -> dict[str, set[int]]:
    """Return the numbers of cards of replicas, by accelerator type."""
    result: dict[str, set[int]] = {}
    for (_, name), profile in profiles.items():
        if name in accelerators:
            one = accelerators[name]
            result.setdefault(one.type, set()).add(one.multiplicity * profile.acc_count)
    return result


def indivisible_sizes(sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield neighbouring sizes of which the smaller does not divide the larger."""
    yield from ((small, large) for small, large in pairwise(sorted(sizes)) if large % small)
