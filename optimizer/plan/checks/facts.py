"""Values shared by the checks, recomputed from a plan and its system.

Everything is derived from the documents, and nothing from the solver or its input.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.candidates.arrays import SystemArrays, server_loads_rps
from optimizer.candidates.power import largest_power_w
from optimizer.limits.cards import CARDS
from optimizer.limits.limit import Limit, PlacedReplicas, Stock
from optimizer.limits.table import LIMITS
from optimizer.plan.checks.prices import cost_with_tiers, rent
from optimizer.plan.document import EXTERNAL, SHARED, Plan, Pool, Rented, SharedPool, Unserved
from optimizer.plan.rows import pool_rows
from optimizer.quantities import precise
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE

RELATIVE_TOLERANCE = 1e-6
"""Relative tolerance for rounding; absolute for small costs and times."""
SHARE_TOLERANCE = 1e-9
"""Absolute tolerance for rounding of fractions (loss, utilisation, gap)."""

PoolCounts = tuple[tuple[str, int], ...]
"""Number of replicas on each accelerator."""


def close(a: float, b: float, absolute: float = RELATIVE_TOLERANCE) -> bool:
    """Return whether two values differ only by rounding."""
    return math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=absolute)


def differing(
    what: str, true: float, stated: float, unit: str = "", absolute: float = RELATIVE_TOLERANCE
) -> Iterator[str]:
    """Yield an error if a plan's value differs from the recomputed one: ``cost is`` 3, the plan says 4."""
    if not close(true, stated, absolute):
        yield f"{what} {precise(true)}{unit}, the plan says {precise(stated)}{unit}"


@dataclass(frozen=True)
class Facts:
    """A plan with valid names, and its system."""

    plan: Plan
    system: System
    arrays: SystemArrays
    """The system as arrays, for queue models."""
    whole: System
    """The system with the full load of shared queues; `system` has only the load that the plan serves."""

    @cached_property
    def pools(self) -> list[tuple[str, Pool]]:
        """Return all pools with the names of their servers."""
        return [(name, pool) for name, pools in self.plan.allocations.items() for pool in pools]

    @cached_property
    def listed(self) -> dict[str, Unserved]:
        """Servers listed as unserved in the plan."""
        return {item.server: item for item in self.plan.unserved}

    @cached_property
    def load_rpm(self) -> dict[str, float]:
        """Load of each server [requests/min]: its arrival rate, or that of its throughput target."""
        loads = server_loads_rps(self.system) * SECONDS_PER_MINUTE
        return dict(zip(self.system.servers, loads.tolist(), strict=True))

    @cached_property
    def whole_load_rpm(self) -> dict[str, float]:
        """Load of each planned server with the full load of shared queues [requests/min]."""
        loads = server_loads_rps(self.whole) * SECONDS_PER_MINUTE
        return dict(zip(self.whole.servers, loads.tolist(), strict=True))

    @cached_property
    def in_queues(self) -> set[str]:
        """Servers of shared queues."""
        return self.plan.queued_servers

    @cached_property
    def cost_cents_per_h(self) -> dict[str, float]:
        """Cost of the pools of each server, by the prices of the system."""
        return {
            name: math.fsum(self.cost_of(name, pool) for pool in self.pools_of(name))
            + self.rent_of(name)
            + self.cards_cost(name)
            for name in self.system.servers
        }

    @cached_property
    def on_cards(self) -> dict[str, list[SharedPool]]:
        """Replicas on shared cards, by server."""
        return self.plan.on_shared_cards

    def cards_cost(self, name: str) -> float:
        """Return the part of shared cards that a server pays [cents/h]; `check_shared_cards` checks it."""
        return math.fsum(item.cost_cents_per_h for item in self.on_cards.get(name, ()))

    @cached_property
    def rented(self) -> dict[str, Rented]:
        """Return the rentals of the plan by server."""
        return {item.server: item for item in self.plan.rented}

    def rent_of(self, name: str) -> float:
        """Return the cost of a server's external service [cents/h]; 0 if it rents none."""
        server = self.system.servers[name]
        if name not in self.rented or server.external is None:
            return 0.0
        return rent(server.external, server.current.load, self.load_rpm[name])

    @cached_property
    def units(self) -> Counter[str]:
        """Cards of each type used by the pools."""
        return _cards(self.used)

    @cached_property
    def kept_units(self) -> Counter[str]:
        """Cards of each type used by kept replicas."""
        return _cards(self.kept_use)

    @cached_property
    def stock(self) -> Stock:
        """The limits of the system."""
        types = {item.type for item in self.system.accelerators.values()} | self.system.capacity.keys()
        return Stock(
            self.system.options,
            self.system.options.unlimited,
            self.system.capacity,
            tuple(sorted(types)),
            tuple(name for name, server in self.system.servers.items() if server.surge),
        )

    @cached_property
    def amounts(self) -> dict[Limit, Mapping[str, float]]:
        """Available amount of each item, by limit."""
        return {limit: limit.amounts(self.stock) for limit in LIMITS}

    @cached_property
    def items(self) -> list[PlacedReplicas]:
        """Return all replicas and cards of the plan that count towards limits."""
        pools = [
            self.placed_as(name, pool.accelerator, pool.num_replicas, each)
            for (name, pool), each in zip(self.pools, self.pool_power_w, strict=True)
        ]
        pools += [
            PlacedReplicas(use.accelerator, one.type, use.num_cards, one.multiplicity, one.cost_cents_per_h)
            for use in self.plan.shared_cards
            for one in [self.system.accelerators[use.accelerator]]
        ]
        beside = [*self.cost_beside.items(), *((name, self.rent_of(name)) for name in self.rented)]
        return pools + [PlacedReplicas(name, "", 1, 0, cost) for name, cost in beside]

    @cached_property
    def used(self) -> dict[Limit, Mapping[str, float]]:
        """Use of each item by the pools, by limit."""
        return {limit: limit.used(self.items) for limit in LIMITS}

    @cached_property
    def tiered(self) -> dict[str, tuple[int, float]]:
        """Number used and cost [cents/h] of each accelerator with tiers."""
        used: Counter[str] = Counter()
        for name, pool in self.pools:
            count = self.system.profiles[self.system.servers[name].model, pool.accelerator].acc_count
            used[pool.accelerator] += count * pool.num_replicas
        for use in self.plan.shared_cards:
            used[use.accelerator] += use.num_cards
        return {
            name: (used[name], cost_with_tiers(item, used[name]))
            for name, item in self.system.accelerators.items()
            if item.tiers
        }

    @cached_property
    def cost_beside(self) -> dict[str, float]:
        """Costs other than pools at list price [cents/h], by name."""
        return {
            name: cost - used * self.system.accelerators[name].cost_cents_per_h
            for name, (used, cost) in self.tiered.items()
        }

    @cached_property
    def needs_power(self) -> bool:
        """Whether a limit counts the power of replicas."""
        return any(limit.needs_power(self.system.options) for limit in LIMITS)

    @cached_property
    def pool_power_w(self) -> list[float | None]:
        """Power of one replica of each pool at its largest rate [W]; None if no limit needs it."""
        if not self.needs_power or any(pool.num_replicas < 1 for _, pool in self.pools):
            return [None] * len(self.pools)
        most = [pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE / pool.num_replicas for _, pool in self.pools]
        rows = pool_rows(self.arrays, self.pools)._replace(rate_rps=np.array(most))
        powers = [item.power for item in self.system.accelerators.values()]
        return [*largest_power_w(self.arrays, powers, *rows).tolist()]

    @cached_property
    def kept_use(self) -> dict[Limit, Mapping[str, float]]:
        """Use of each item by kept replicas, by limit."""
        kept = [
            self.placed_as(item.server, item.accelerator, item.num_replicas)._replace(surge=0.0)
            for item in self.plan.kept
        ]
        return {limit: limit.used(kept) for limit in LIMITS}

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return any(self.amounts.values())

    @property
    def is_shared(self) -> bool:
        """Whether servers share any resource, so that their choices are not independent."""
        return (
            self.is_limited
            or any(item.tiers for item in self.system.accelerators.values())
            or any(server.shared_card for server in self.system.servers.values())
        )

    def placed_as(
        self, server: str, accelerator: str, replicas: int, power_w: float | None = None
    ) -> PlacedReplicas:
        """Return replicas of a server as counted by limits; without `power_w`, at full power."""
        profile = self.system.profiles.get((self.system.servers[server].model, accelerator))
        count, one = profile.acc_count if profile else 1, self.system.accelerators[accelerator]
        cards, cost = count * one.multiplicity, count * one.cost_cents_per_h
        if power_w is None and self.needs_power:
            power_w = count * float(one.power.at(np.ones(1))[0])
        surge = self.system.servers[server].surge
        return PlacedReplicas(accelerator, one.type, replicas, cards, cost, power_w or 0.0, server, surge)

    @cached_property
    def placed(self) -> dict[str, tuple[PoolCounts, PoolCounts]]:
        """Current and planned placement of each server."""
        return {
            name: (
                ((server.current.accelerator, server.current.num_replicas),)
                if server.current.is_running
                else (),
                tuple((pool.accelerator, pool.num_replicas) for pool in self.pools_of(name))
                + (((EXTERNAL, 1),) if name in self.rented else ())
                + (((SHARED, 1),) if name in self.on_cards else ()),
            )
            for name, server in self.system.servers.items()
        }

    @cached_property
    def changed(self) -> set[str]:
        """Servers whose planned accelerators or replicas differ from the current ones."""
        return {name for name, (before, after) in self.placed.items() if before != after}

    @property
    def mixed(self) -> bool:
        """Whether a server can have several pools; the greedy heuristic never mixes."""
        return self.system.options.heterogeneous and self.system.options.milp_solver

    @property
    def counts_unchanged(self) -> bool:
        """Whether the value also counts unchanged servers, by the difference from their stated cost."""
        return self.mixed or any(route.arrival_rate_rpm for route in self.system.routes.values())

    @property
    def shares_leftover(self) -> bool:
        """Whether the options allow partial service."""
        return self.system.options.saturation_policy != "None" and self.is_limited

    def pools_of(self, name: str) -> tuple[Pool, ...]:
        """Return the pools of a server."""
        return self.plan.allocations.get(name, ())

    def is_preferred(self, name: str, accelerator: str) -> bool:
        """Return whether a server prefers an accelerator, or has no preference."""
        preferred = self.system.servers[name].preferred
        return preferred is None or accelerator in preferred

    def is_to_serve(self, name: str) -> bool:
        """Return whether a server needs replicas, because it has load or a minimum."""
        return self.load_rpm[name] > 0 or self.system.servers[name].min_num_replicas > 0

    def cost_of(self, name: str, pool: Pool) -> float:
        """Return the cost of a pool of a server [cents/h]."""
        count = self.system.profiles[self.system.servers[name].model, pool.accelerator].acc_count
        return self.system.accelerators[pool.accelerator].cost_cents_per_h * count * pool.num_replicas

    def limit_of(self, kind: str) -> int | None:
        """Return the available cards of a type, or None if unlimited."""
        return None if self.system.options.unlimited else self.system.capacity.get(kind, 0)


def _cards(used: Mapping[Limit, Mapping[str, float]]) -> Counter[str]:
    """Return the used cards by type."""
    return Counter(
        {
            kind: int(cards)
            for limit, items in used.items()
            if limit.name == CARDS
            for kind, cards in items.items()
        }
    )
