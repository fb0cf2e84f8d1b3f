"""Nodes of a plan: their numbers and cost, and where each replica lies."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from optimizer.arrays import totals
from optimizer.features.nodes.packing import MOST_CARDS, NodePool
from optimizer.features.nodes.uses import NodeContents, NodeReplicas, NodeUse
from optimizer.limits.limit import PlacedReplicas
from optimizer.spec.placed import PlacedUnits
from optimizer.spec.system import System


class Lot(NamedTuple):
    """Replicas of a server on an accelerator, or parts of larger replicas that take whole nodes."""

    server: str
    accelerator: str
    cards: int
    """Number of cards in one node."""


def node_uses(system: System, units: PlacedUnits, kept: PlacedUnits) -> tuple[NodeUse, ...]:
    """Return the nodes of each type for placed replicas, and for those that keep their cards in addition."""
    return tuple(
        use
        for pool in system.node_pools
        for use in _uses(pool, _of_type(pool, units.items), _of_type(pool, kept.items))
    )


def _of_type(pool: NodePool, items: Iterable[PlacedReplicas]) -> list[PlacedReplicas]:
    return [item for item in items if item.type == pool.type and item.cards]


def need_of(pool: NodePool, items: Iterable[PlacedReplicas]) -> tuple[int, ...]:
    """Return the cards of a type that replicas need at each level."""
    return pool.need((item.cards, item.replicas) for item in items if item.type == pool.type)


def _uses(
    pool: NodePool, placed: Sequence[PlacedReplicas], kept: Sequence[PlacedReplicas]
) -> Iterator[NodeUse]:
    every = [*placed, *kept]
    need = need_of(pool, every)
    counts, before = pool.cheapest(need), pool.cheapest(need_of(pool, kept))
    if counts is None or max(need) > MOST_CARDS:  # more cards than all nodes have, which the limit reports
        return
    inside = packed(
        lots_of(pool, every),
        [n.cards for n, each in zip(pool.nodes, counts, strict=True) for _ in range(each)],
    )
    paid = [n - m for n, m in zip(counts, before or [0] * len(counts), strict=True)]
    each = float(pool.cost @ paid) / need[0] if need[0] else 0.0
    begin = 0
    for node, count, new in zip(pool.nodes, counts, paid, strict=True):
        held = sorted(sorted(each.items()) for each in inside[begin : begin + count])
        begin += count
        contents = tuple(_contents(node.cards, mine, len([*same]), each) for mine, same in groupby(held))
        yield NodeUse(
            node=node.name,
            type=node.type,
            num_nodes=count,
            cards=count * node.cards,
            free_cards=sum(each.free_cards * each.num_nodes for each in contents),
            cost_cents_per_h=new * float(node.cost_cents_per_h),
            contents=contents,
        )


def lots_of(pool: NodePool, items: Iterable[PlacedReplicas]) -> Counter[Lot]:
    """Return the replicas in nodes of a pool with their numbers; larger ones as parts of whole nodes."""
    lots: Counter[Lot] = Counter()
    for item in items:
        cards = min(item.cards, pool.largest)
        lots[Lot(item.server or item.accelerator, item.accelerator, cards)] += item.replicas * (
            item.cards // cards
        )
    return lots


def packed(lots: Counter[Lot], nodes: Sequence[int]) -> list[Counter[Lot]]:
    """Return the replicas in each node, given the cards of each node.

    The largest replicas are placed first, each in the first node of those with the least free cards that
    suffice (eq. 269).
    """
    inside: list[Counter[Lot]] = [Counter() for _ in nodes]
    with_free = defaultdict[int, list[int]](list)
    for node, cards in reversed([*enumerate(nodes)]):
        with_free[cards].append(node)
    for lot, count in sorted(lots.items(), key=lambda item: (-item[0].cards, item[0])):
        for _ in range(count):
            frees = sorted(free for free, some in with_free.items() if some)
            free = frees[bisect_left(frees, lot.cards)]
            node = with_free[free].pop()
            inside[node][lot] += 1
            with_free[free - lot.cards].append(node)
    return inside


def _contents(cards: int, mine: Sequence[tuple[Lot, int]], count: int, card_cost: float) -> NodeContents:
    replicas = tuple(
        NodeReplicas(
            server=lot.server,
            accelerator=lot.accelerator,
            num_replicas=n,
            cards=lot.cards,
            cost_cents_per_h=card_cost * lot.cards * n * count,
        )
        for lot, n in mine
    )
    used = sum(item.cards * item.num_replicas for item in replicas)
    return NodeContents(num_nodes=count, free_cards=cards - used, replicas=replicas)


def node_shares_cents_per_h(uses: Iterable[NodeUse]) -> dict[tuple[str, str], float]:
    """Return the share in the cost of nodes [cents/h] by server and accelerator."""
    inside = (one for use in uses for item in use.contents for one in item.replicas)
    return totals(((one.server, one.accelerator), one.cost_cents_per_h) for one in inside)
