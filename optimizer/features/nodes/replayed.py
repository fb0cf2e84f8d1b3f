"""Nodes in a replay: the cheapest ones for the replicas that exist, paid for by the servers in them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from optimizer.spec.system import System


class OnNodes(NamedTuple):
    """Replicas, or shared cards, of some servers."""

    servers: Collection[str]
    type: str
    cards: int
    """Number of cards of one of them."""
    number: int


def node_costs_cents_per_h(system: System, items: Iterable[OnNodes]) -> Mapping[str, float]:
    """Return the cost of the cheapest nodes for some replicas by server [cents/h], in proportion to cards.

    If they need more nodes than exist for a while, their cards cost as much as those of full nodes.
    """
    node_costs_cents, every = defaultdict[str, float](float), [*items]
    for pool in system.node_pools:
        of_type = [item for item in every if item.type == pool.type and item.number]
        counts = pool.cheapest(pool.need((item.cards, item.number) for item in of_type))
        used = sum(item.cards * item.number for item in of_type)
        cost = used * pool.card_price if counts is None else float(pool.cost @ counts) + pool.spare_cost
        for item in of_type:
            for server in item.servers:
                node_costs_cents[server] += cost * item.cards * item.number / used / len(item.servers)
    return node_costs_cents
