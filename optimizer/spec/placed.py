"""Converts a system and its replicas to the form that limits count: stock and placed replicas."""

from collections.abc import Iterable

import numpy as np

from optimizer.limits.limit import PlacedReplicas, Stock
from optimizer.limits.table import LIMITS
from optimizer.spec.system import System


def stock_of(system: System, types: tuple[str, ...]) -> Stock:
    """Return the limits of a system."""
    surging = tuple(name for name, server in system.servers.items() if server.surge)
    return Stock(system.options, system.options.unlimited, system.capacity, types, surging)


def kept_replicas(system: System) -> Iterable[PlacedReplicas]:
    """Yield the replicas that are kept in addition to a plan."""
    for (server, accelerator), count in system.kept.items():
        yield placed(system, server, accelerator, count)._replace(surge=0.0)


def placed(
    system: System, server: str, accelerator: str, count: int, power_w: float | None = None
) -> PlacedReplicas:
    """Return replicas of a server on an accelerator in the form that limits count.

    Args:
        system: the system.
        server: the server.
        accelerator: the accelerator.
        count: number of replicas.
        power_w: power of one replica at its largest rate [W]; None uses full power if any limit counts power.
    """
    kind, cards = system.units_per_replica(server, accelerator)
    one = system.accelerators.get(accelerator)
    cost = one.cost_cents_per_h * (cards // one.multiplicity) if one else 0.0
    if power_w is None and one and needs_power(system):
        power_w = float(one.power.at(np.ones(1))[0]) * cards / one.multiplicity
    surge = system.servers[server].surge
    return PlacedReplicas(accelerator, kind, count, cards, cost, power_w or 0.0, server, surge)


def placed_cards(system: System, accelerator: str, count: int, name: str) -> PlacedReplicas:
    """Return shared cards in the form that limits count."""
    one = system.accelerators[accelerator]
    return PlacedReplicas(accelerator, one.type, count, one.multiplicity, one.cost_cents_per_h, 0.0, name)


def placed_cost(name: str, cost: float) -> PlacedReplicas:
    """Return a cost other than that of replicas [cents/h] in the form that limits count."""
    return PlacedReplicas(name, "", 1, 0, cost)


def needs_power(system: System) -> bool:
    """Return whether a limit of a system counts the power of replicas."""
    return any(limit.needs_power(system.options) for limit in LIMITS)
