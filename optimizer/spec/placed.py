"""Converts a system and its placed replicas to the form in which limits count them."""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from optimizer.arrays import IntArray
from optimizer.features.nodes.limit import IN_NODES
from optimizer.limits.limit import Limit, PlacedReplicas, Replicas, Stock
from optimizer.limits.rollout import extra_replicas
from optimizer.limits.table import LIMITS
from optimizer.spec.system import System


def stock_of(system: System) -> Stock:
    """Return the stock of a system: the data from which the amounts of its limits are computed."""
    surging = tuple(name for name, server in system.servers.items() if server.surge)
    return Stock(
        system.options,
        system.options.unlimited,
        system.capacity,
        types_of(system),
        surging,
        system.currency,
        {IN_NODES: {item: n for pool in system.node_pools for item, n in pool.amounts.items()}},
    )


def types_of(system: System) -> tuple[str, ...]:
    """Return the accelerator types of a system, sorted by name."""
    return tuple(sorted({item.type for item in system.accelerators.values()} | system.capacity.keys()))


class PlacedUnits:
    """Placed replicas, cards and other costs.

    Limits compute the use of these as they do for a solver's columns.
    """

    def __init__(self, system: System, items: Iterable[PlacedReplicas]) -> None:
        """Store the items in their order."""
        self.system, self.items = system, [*items]
        self._used: dict[tuple[str, str], float] = {}

    @cached_property
    def count(self) -> IntArray:
        """Number of replicas of each item."""
        return np.array([item.replicas for item in self.items], np.int64)

    @cached_property
    def replicas(self) -> Replicas:
        """One replica of each item, in the form that limits count."""
        names = {name: a for a, name in enumerate(self.system.accelerators)}
        types = {name: t for t, name in enumerate(types_of(self.system))}
        servers = {name: s for s, name in enumerate(self.system.servers)}
        documents, items = tuple(self.system.accelerators.values()), self.items
        slices = [*(item.multiplicity for item in documents), 1]
        place = np.array([names.get(item.accelerator, len(names)) for item in items], np.int64)
        cards = np.array([item.cards for item in items], np.int64)
        extra = [
            extra_replicas(item.surge, item.replicas) / item.replicas if item.surge and item.replicas else 0.0
            for item in items
        ]
        power_w = np.array([item.power_w for item in items])
        return Replicas(
            accelerator=place,
            accelerator_names=tuple(names),
            type=np.array([types.get(item.type, len(types)) for item in items], np.int64),
            type_names=tuple(types),
            cards=cards,
            cost=np.array([item.cost for item in items], np.float64),
            accelerators=cards // np.array(slices)[place],
            server=np.array([servers.get(item.server, len(servers)) for item in items], np.int64),
            server_names=tuple(servers),
            extra=np.array(extra, np.float64),
            largest_power=lambda: power_w,
            accelerator_documents=documents,
        )

    def used(self, limit: Limit, item: str) -> float:
        """Return the amount of an item of a limit that the placed replicas use."""
        key = limit.name, item
        if key not in self._used:
            self._used[key] = limit.total(self.replicas, self.count, item) if self.items else 0.0
        return self._used[key]

    def without(self, servers: Iterable[str]) -> "PlacedUnits":
        """Return all items except those of some servers."""
        gone = {*servers}
        if not gone:
            return self
        return PlacedUnits(self.system, [item for item in self.items if item.server not in gone])

    def only(self, servers: Iterable[str]) -> "PlacedUnits":
        """Return only the items of some servers."""
        kept = {*servers}
        return PlacedUnits(self.system, [item for item in self.items if item.server in kept])

    def __add__(self, other: "PlacedUnits") -> "PlacedUnits":
        """Return the items of both operands."""
        return PlacedUnits(self.system, [*self.items, *other.items])


def kept_replicas(system: System) -> PlacedUnits:
    """Return the replicas that keep their cards in addition to the plan."""
    kept = (placed(system, server, on, count) for (server, on), count in system.kept.items())
    return PlacedUnits(system, [item._replace(surge=0.0) for item in kept])


def placed(
    system: System, server: str, accelerator: str, count: int, power_w: float | None = None
) -> PlacedReplicas:
    """Return replicas of a server on an accelerator, in the form that limits count.

    Args:
        count: number of replicas.
        power_w: power of one replica at its largest rate [W]; None uses full power if any limit counts power.
    """
    type_name, cards = system.units_per_replica(server, accelerator)
    one = system.accelerators.get(accelerator)
    cost = one.cost_cents_per_h * (cards // one.multiplicity) if one else 0.0
    if power_w is None and one and needs_power(system):
        power_w = float(one.power.at(np.ones(1))[0]) * cards / one.multiplicity
    surge = system.servers[server].surge
    return PlacedReplicas(accelerator, type_name, count, cards, cost, power_w or 0.0, server, surge)


def placed_cards(system: System, accelerator: str, count: int, name: str) -> PlacedReplicas:
    """Return shared cards in the form that limits count.

    Args:
        accelerator: name of the accelerator.
        count: number of cards.
        name: name of the owner.
    """
    one = system.accelerators[accelerator]
    return PlacedReplicas(accelerator, one.type, count, one.multiplicity, one.cost_cents_per_h, 0.0, name)


def placed_cost(name: str, cost: float) -> PlacedReplicas:
    """Return a cost other than that of replicas [cents/h], in the form that limits count."""
    return PlacedReplicas(name, "", 1, 0, cost)


def needs_power(system: System) -> bool:
    """Return whether any limit of a system counts the power of replicas."""
    return any(limit.counts_power and limit.applies(system.options) for limit in LIMITS)
