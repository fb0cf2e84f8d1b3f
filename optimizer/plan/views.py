"""The placements of a plan for a system, and the values that follow: costs, uses of limits, and changes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from optimizer.arrays import FloatArray, totals
from optimizer.candidates.arrays import SystemArrays, current_cost_cents_per_h
from optimizer.features.external.uses import Rented
from optimizer.features.nodes.feature import NODES
from optimizer.features.nodes.view import NodePlacement, node_placement
from optimizer.features.shared_cards.uses import SharedCardUse
from optimizer.features.shared_queues.view import Members, measured_members
from optimizer.limits.cards import CARDS
from optimizer.limits.limit import Limit, PlacedReplicas
from optimizer.limits.power_limit import POWER
from optimizer.limits.table import LIMITS
from optimizer.plan.document import CapacityUse, Change, LimitUse, Plan, PlanCost, TierUse
from optimizer.plan.placements import PlacementGroup, PlanRow, place_name, placement_groups, rows_by_server
from optimizer.plan.power_uses import power_at_load_w
from optimizer.plan.tier_uses import tier_uses
from optimizer.prices.price import SharedPrice
from optimizer.prices.table import prices_of
from optimizer.schema.pools import Placement, Pool
from optimizer.spec.placed import PlacedUnits, kept_replicas, placed, placed_cards, placed_cost, stock_of
from optimizer.spec.prices import tiered
from optimizer.spec.system import System


@dataclass(frozen=True)
class PlanPlacements:
    """The placements of a plan for a system: pools, shared cards and rentals."""

    system: System
    arrays: SystemArrays
    """The system as arrays; shared queues and routes have only the load that the plan serves."""
    pools: Mapping[str, tuple[Pool, ...]]
    """Pools by planned server; empty for servers that need none."""
    pool_power_w: Mapping[tuple[str, str], float]
    """Power of one replica at its maximum rate [W], by server and accelerator; full power if absent."""
    cards: tuple[SharedCardUse, ...] = ()
    rented: Mapping[str, Rented] = field(default_factory=dict)
    """Rented external services by server."""

    @classmethod
    def of_plan(
        cls,
        plan: Plan,
        system: System,
        arrays: SystemArrays,
        pool_power_w: Mapping[tuple[str, str], float] = MappingProxyType({}),
    ) -> "PlanPlacements":
        """Create the placements of a plan for its system."""
        rented = {item.server: item for item in plan.rented}
        return cls(system, arrays, plan.allocations, pool_power_w, plan.shared_cards, rented)

    @property
    def elsewhere(self) -> frozenset[str]:
        """Servers on shared cards and servers that rent, which have no pools."""
        return frozenset(self.rented).union(item.server for use in self.cards for item in use.servers)

    @cached_property
    def named_pools(self) -> list[tuple[str, Pool]]:
        """All pools with the names of their servers."""
        return [(name, pool) for name, of_server in self.pools.items() for pool in of_server]

    @cached_property
    def members(self) -> Members:
        """Names of queue and member, and metrics, of each loaded member of a shared queue."""
        return [*measured_members(self.arrays, self.named_pools)]

    @cached_property
    def placements(self) -> tuple[PlacementGroup, ...]:
        """All placements, without members of shared queues."""
        return tuple(placement_groups(self.pools, self.cards, self.rented.values()))

    @cached_property
    def rows(self) -> dict[str, list[PlanRow]]:
        """Rows of each planned server, by name, without replicas that do not serve its requests."""
        return {
            name: serving
            for name, rows in rows_by_server(self.placements).items()
            if (serving := [row for row in rows if row.role is None])
        }

    @cached_property
    def tiers(self) -> tuple[TierUse, ...]:
        """Costs of accelerators with price tiers, and of types with a different price for further cards."""
        priced = tiered(self.system.accelerators, self.system.capacity)
        return tier_uses(self.system, self.placements) if priced else ()

    @cached_property
    def costs(self) -> tuple[PlanCost, ...]:
        """Costs beyond the list prices of pools and shared cards, rentals last (eq. 147, 270)."""
        shared = (
            PlanCost(name=part.name, amount_cents_per_h=part.cents_per_h, origin=price.origin)
            for price in prices_of(self.system)
            for part in price.parts(used_by(price, self.placed_units), used_by(price, self.kept))
        )
        rentals = (
            PlanCost(name=name, amount_cents_per_h=self.rented[name].cost_cents_per_h, origin="external")
            for name in sorted(self.rented)
        )
        return tuple(cost for cost in (*shared, *rentals) if cost.amount_cents_per_h)

    @cached_property
    def kept(self) -> PlacedUnits:
        """Replicas that keep their cards in addition to the plan."""
        return kept_replicas(self.system)

    @cached_property
    def nodes(self) -> NodePlacement:
        """Nodes that hold the placed replicas and those that keep their cards."""
        if NODES.name not in self.system.features:
            return NodePlacement((), ())
        return node_placement(self.system, self.placed_units, self.kept)

    @cached_property
    def placed_units(self) -> PlacedUnits:
        """All placed replicas and shared cards."""
        return PlacedUnits(
            self.system, [self._units_of(row) for row in self.placements if row.mode != "external"]
        )

    @cached_property
    def units(self) -> PlacedUnits:
        """All placed replicas, shared cards and other costs that count towards limits."""
        costs = [placed_cost(cost.name, cost.amount_cents_per_h) for cost in self.costs]
        return self.placed_units + PlacedUnits(self.system, costs) if costs else self.placed_units

    def _units_of(self, row: PlacementGroup) -> PlacedReplicas:
        group, accelerator = row.spot
        if row.mode == "own":
            return placed(self.system, group, accelerator, row.count, self.pool_power_w.get(row.spot))
        return placed_cards(self.system, accelerator, row.count, group)

    @cached_property
    def amounts(self) -> dict[Limit, Mapping[str, float]]:
        """Available amount of each limited item, by limit."""
        stock = stock_of(self.system)
        applying = (limit for limit in LIMITS if limit.applies(self.system.options))
        return {limit: limit.amounts(stock) for limit in applying}

    @cached_property
    def limits(self) -> tuple[LimitUse, ...]:
        """Use of limits other than cards, and the power at the served load if power is limited."""
        return tuple(
            LimitUse(
                limit=limit.name,
                item=item,
                unit=limit.unit,
                amount=amount,
                used=self.units.used(limit, item),
                used_at_load=self._power_at_load_w if limit.name == POWER else None,
            )
            for limit, items in self.amounts.items()
            if limit.name != CARDS
            for item, amount in items.items()
        )

    @cached_property
    def _power_at_load_w(self) -> float:
        return float(power_at_load_w(self.system, self.arrays, self.named_pools).sum())

    @cached_property
    def capacity(self) -> tuple[CapacityUse, ...]:
        """Use of the cards of each accelerator type."""
        system = self.system
        (cards,) = (limit for limit in LIMITS if limit.name == CARDS)
        return tuple(
            CapacityUse(
                type=type_name,
                limit=system.card_limit(type_name),
                used=int(self.units.used(cards, type_name)),
            )
            for type_name in self.arrays.type_names
        )

    @cached_property
    def total_cost_cents_per_h(self) -> float:
        """Total cost of the plan, with tier prices and rentals [cents/h]."""
        # Placements at list prices, plus what tiers, nodes and rentals add; fsum rounds once.
        listed = [row.cost_cents_per_h for row in self.placements if row.mode != "external"]
        return math.fsum([*listed, *(cost.amount_cents_per_h for cost in self.costs)])

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Servers whose accelerator or replicas differ from the current ones."""
        return tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        for name, server in self.system.servers.items():
            rows = self.rows.get(name, ())
            # Only places and numbers count; a changed batch is no change of the plan.
            now = [pool for pool in server.current.stated_pools if pool.num_replicas]
            before = {place_name(pool.mode, pool.accelerator): 1 for pool in now}
            before |= totals((pool.accelerator, pool.num_replicas) for pool in now if pool.mode == "own")
            after = {place_name(*row.place): row.count if row.mode == "own" else 1 for row in rows}
            # Shared cards and rentals count as one replica, because their number does not matter here.
            if before != after:
                cost = sum(row.cost_cents_per_h for row in rows)
                yield Change(
                    server=name,
                    before=tuple(Placement(accelerator=at, num_replicas=n) for at, n in before.items()),
                    after=tuple(Placement(accelerator=at, num_replicas=n) for at, n in after.items()),
                    cost_change_cents_per_h=cost - current_cost_cents_per_h(self.system, name),
                )


def used_by(price: SharedPrice, units: PlacedUnits) -> FloatArray:
    """Return the use of each row of a price by placed replicas, shape (K,)."""
    return np.array([units.used(limit, item) for limit, item in price.rows], np.float64)
