"""A plan as placements: replicas, shared cards and rentals, with the servers that they serve.

All sections of a plan follow from its placements.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from optimizer.arrays import grouped
from optimizer.features.external.uses import Rented
from optimizer.features.shared_cards.uses import SharedCardUse
from optimizer.features.shared_queues.uses import QueueMember
from optimizer.plan.document import EXTERNAL, SHARED, Plan
from optimizer.schema.allocations import PoolMode
from optimizer.schema.pools import Pool


class Spot(NamedTuple):
    """Key of a placement: a server, queue or group of shared cards, and the accelerator."""

    group: str
    """Name of the planned server, the shared queue, or the group of shared cards."""
    accelerator: str
    """Name of the accelerator; empty for an external service."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that a placement serves, with its metrics."""

    server: str
    """Name of the planned server, or of the member of a shared queue."""
    figures: Pool | QueueMember | Rented
    """Metrics of the server at its load; a `SharedPool` on shared cards."""
    rate_rpm: float
    """Load of the server on the placement [requests/min]."""
    max_rate_rpm: float
    """Maximum rate within all targets [requests/min]; for a member or a rental, its load."""
    replicas: int
    """Number of replicas; 0 for members of queues and for rentals."""
    cost_cents_per_h: float
    """The server's part of the cost of the placement [cents/h]; 0 for members of queues."""
    is_member: bool = False
    """Whether the server is a member of the shared queue to which the replicas belong."""


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """A placement: replicas of a server or queue, a group of shared cards, or an external service."""

    spot: Spot
    mode: PoolMode
    count: int
    """Number of replicas, or of shared cards; 1 for an external service."""
    cost_cents_per_h: float
    """Cost of the placement at list prices [cents/h]."""
    role: str | None
    """Role of replicas that do not serve requests of their server; None for all others."""
    serves: tuple[Serving, ...]
    """Served servers: the server or queue itself and then its members, or all servers on shared cards."""

    @property
    def place(self) -> tuple[PoolMode, str]:
        """Mode and accelerator of the placement, as in current pools."""
        return self.mode, self.spot.accelerator


def place_name(mode: PoolMode, accelerator: str) -> str:
    """Return the name by which changes call a place: the accelerator, "shared cards" or "external"."""
    return {"own": accelerator, "shared": SHARED, "external": EXTERNAL}[mode]


def placements_of(plan: Plan) -> tuple[PlacementRow, ...]:
    """Return the placements of a plan: first replicas, then shared cards, then external services."""
    members = {name: use.members for name, use in plan.shared_queues.items()}
    return tuple(placement_rows(plan.allocations, plan.shared_cards, plan.rented, members))


def placement_rows(
    pools: Mapping[str, Iterable[Pool]],
    cards: Iterable[SharedCardUse],
    rented: Iterable[Rented],
    members: Mapping[str, Mapping[str, QueueMember]] | None = None,
) -> Iterator[PlacementRow]:
    """Yield pools by planned server, shared cards and rentals as placements.

    Args:
        pools: pools by planned server.
        cards: groups of shared cards.
        rented: rented external services.
        members: served members of shared queues, by queue; None omits them.
    """
    for name, mine in pools.items():
        of_queue = [
            Serving(member, item, item.arrival_rate_rpm, item.arrival_rate_rpm, 0, 0.0, is_member=True)
            for member, item in (members or {}).get(name, {}).items()
        ]
        for pool in mine:
            serves = (_serving(name, pool), *of_queue)
            spot = Spot(name, pool.accelerator)
            yield PlacementRow(spot, "own", pool.num_replicas, pool.cost_cents_per_h, pool.role, serves)
    for use in cards:
        serves = tuple(_serving(item.server, item) for item in use.servers)
        spot = Spot(use.name, use.accelerator)
        yield PlacementRow(spot, "shared", use.num_cards, use.cost_cents_per_h, None, serves)
    for item in rented:
        rate, cost = item.arrival_rate_rpm, item.cost_cents_per_h
        serves = (Serving(item.server, item, rate, rate, 0, cost),)
        yield PlacementRow(Spot(item.server, ""), "external", 1, cost, None, serves)


def _serving(server: str, pool: Pool) -> Serving:
    rates = pool.arrival_rate_rpm, pool.max_arrival_rate_rpm
    return Serving(server, pool, *rates, pool.num_replicas, pool.cost_cents_per_h)


def services_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of servers whose requests external services answer in a plan."""
    return tuple(row.spot.group for row in placements_of(plan) if row.mode == "external")


def parts_of(plan: Plan) -> dict[str, list[tuple[PlacementRow, Serving]]]:
    """Return the placements that serve each planned server, with the server's part of each, by name."""
    return parts_by_server(placements_of(plan))


def parts_by_server(rows: Iterable[PlacementRow]) -> dict[str, list[tuple[PlacementRow, Serving]]]:
    """Group placements by planned server; each placement comes with the server's part of it."""
    return grouped((part.server, (row, part)) for row in rows for part in row.serves if not part.is_member)
