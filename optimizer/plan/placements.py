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
class PlanRow:
    """A row of a plan: a server at a placement that serves it, with its replicas, cost and metrics."""

    server: str
    """Name of the planned server, or of the member of a shared queue."""
    spot: Spot
    mode: PoolMode
    role: str | None
    """Role of replicas that do not serve requests of their server; None for all others."""
    count: int
    """Number of replicas of the placement, or of shared cards; 1 for an external service."""
    figures: Pool | QueueMember | Rented
    """Metrics of the server at its load; a `SharedPool` on shared cards."""
    rate_rpm: float
    """Load of the server on the placement [requests/min]."""
    max_rate_rpm: float
    """Maximum rate within all targets [requests/min]; for a member or a rental, its load."""
    replicas: int = 0
    """Number of replicas; 0 for members of queues and for rentals."""
    cost_cents_per_h: float = 0.0
    """The server's part of the cost of the placement at list prices [cents/h]; 0 for members of queues."""
    is_member: bool = False
    """Whether the server is a member of the shared queue to which the replicas belong."""

    @property
    def place(self) -> tuple[PoolMode, str]:
        """Mode and accelerator of the placement, as in current pools."""
        return self.mode, self.spot.accelerator

    @property
    def pool(self) -> Pool | None:
        """Metrics of the replicas; None for members of queues and for rentals."""
        return self.figures if isinstance(self.figures, Pool) else None


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """A placement: replicas of a server or queue, a group of shared cards, or an external service."""

    spot: Spot
    mode: PoolMode
    count: int
    """Number of replicas, or of shared cards; 1 for an external service."""
    cost_cents_per_h: float
    """Cost of the placement at list prices [cents/h]."""
    rows: tuple[PlanRow, ...]
    """The served servers: the server or queue itself, or all servers on shared cards. The first placement of
    a queue also has a row for each of its members.
    """


def place_name(mode: PoolMode, accelerator: str) -> str:
    """Return the name by which changes call a place: the accelerator, "shared cards" or "external"."""
    return {"own": accelerator, "shared": SHARED, "external": EXTERNAL}[mode]


def placements_of(plan: Plan) -> tuple[PlacementGroup, ...]:
    """Return the placements of a plan: first replicas, then shared cards, then external services."""
    members = {name: use.members for name, use in plan.shared_queues.items()}
    return tuple(placement_groups(plan.allocations, plan.shared_cards, plan.rented, members))


def all_rows(plan: Plan) -> Iterator[PlanRow]:
    """Yield the rows of all placements of a plan."""
    return (row for placement in placements_of(plan) for row in placement.rows)


def placement_groups(
    pools: Mapping[str, Iterable[Pool]],
    cards: Iterable[SharedCardUse],
    rented: Iterable[Rented],
    members: Mapping[str, Mapping[str, QueueMember]] | None = None,
) -> Iterator[PlacementGroup]:
    """Yield pools by planned server, shared cards and rentals as placements.

    Args:
        pools: pools by planned server.
        cards: groups of shared cards.
        rented: rented external services.
        members: served members of shared queues, by queue; None omits them.
    """
    for name, of_server in pools.items():
        of_queue = (members or {}).get(name, {})
        for pool in of_server:
            spot, count = Spot(name, pool.accelerator), pool.num_replicas
            rows = [_row(name, pool, spot, "own", count)]
            for member, item in of_queue.items():
                rates = item.arrival_rate_rpm, item.arrival_rate_rpm
                rows.append(PlanRow(member, spot, "own", None, count, item, *rates, is_member=True))
            # Members are shown once, whatever the number of pools.
            of_queue = {}
            yield PlacementGroup(spot, "own", count, pool.cost_cents_per_h, tuple(rows))
    for use in cards:
        spot = Spot(use.name, use.accelerator)
        on_card = tuple(_row(item.server, item, spot, "shared", use.num_cards) for item in use.servers)
        yield PlacementGroup(spot, "shared", use.num_cards, use.cost_cents_per_h, on_card)
    for service in rented:
        rate, cost = service.arrival_rate_rpm, service.cost_cents_per_h
        spot = Spot(service.server, "")
        row = PlanRow(service.server, spot, "external", None, 1, service, rate, rate, cost_cents_per_h=cost)
        yield PlacementGroup(spot, "external", 1, cost, (row,))


def _row(server: str, pool: Pool, spot: Spot, mode: PoolMode, count: int) -> PlanRow:
    rates = pool.arrival_rate_rpm, pool.max_arrival_rate_rpm
    return PlanRow(
        server, spot, mode, pool.role, count, pool, *rates, pool.num_replicas, pool.cost_cents_per_h
    )


def services_of(plan: Plan) -> tuple[str, ...]:
    """Return the names of servers whose requests external services answer in a plan."""
    return tuple(row.spot.group for row in placements_of(plan) if row.mode == "external")


def rows_of(plan: Plan) -> dict[str, list[PlanRow]]:
    """Return the rows of each planned server in a plan, by name."""
    return rows_by_server(placements_of(plan))


def rows_by_server(placements: Iterable[PlacementGroup]) -> dict[str, list[PlanRow]]:
    """Group the rows of placements by planned server."""
    return grouped((row.server, row) for placed in placements for row in placed.rows if not row.is_member)
