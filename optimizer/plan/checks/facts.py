"""The facts that checks use: a plan with valid names and its system, without data from the solver."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.candidates.arrays import SystemArrays, server_loads_rps
from optimizer.candidates.replica_power import largest_power_w
from optimizer.plan.document import Plan, Unserved
from optimizer.plan.placements import services_of
from optimizer.plan.rows import pool_pairs
from optimizer.plan.views import PlanPlacements
from optimizer.prices.table import prices_of
from optimizer.schema.pools import Pool
from optimizer.solvers.problem import topologies_of
from optimizer.spec.placed import PlacedUnits, kept_replicas, needs_power
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True)
class Facts:
    """A plan with valid names, and its system."""

    plan: Plan
    system: System
    """The system, in which queues and routes have only the load that the plan serves; each unserved member of
    a queue is a separate server.
    """
    arrays: SystemArrays
    """The system as arrays, for queue models, with only the load that the plan serves."""
    whole: System
    """The planned system with all loads."""

    @cached_property
    def placed(self) -> PlanPlacements:
        """Placements of the plan: pools, shared cards and rentals."""
        return PlanPlacements.of_plan(self.plan, self.whole, self.arrays, self._pool_power_w)

    @cached_property
    def _pool_power_w(self) -> Mapping[tuple[str, str], float]:
        pools = [(name, pool) for name in self.plan.allocations for pool in self.pools_of(name)]
        if not needs_power(self.whole) or not pools:
            return {}
        powers = [item.power for item in self.whole.accelerators.values()]
        # Limits on power count each replica at its maximum rate.
        most = [pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE / pool.num_replicas for _, pool in pools]
        pairs, _ = pool_pairs(self.arrays, pools)
        pool_power_w = largest_power_w(self.arrays, powers, pairs, np.array(most)).tolist()
        return {
            (name, pool.accelerator): each for (name, pool), each in zip(pools, pool_power_w, strict=True)
        }

    @cached_property
    def listed(self) -> dict[str, Unserved]:
        """Servers that the plan lists as unserved, by name."""
        return {item.server: item for item in self.plan.unserved}

    @cached_property
    def short(self) -> set[str]:
        """Names of planned servers that are not served in full, and of queues with such a member."""
        # A queue is short if one of its members is, because they share its replicas.
        short = {*self.listed, *self.plan.left_out}
        return short | {name for member, name in self.plan.group_of.items() if member in short}

    @cached_property
    def load_rpm(self) -> dict[str, float]:
        """Load of each server [requests/min], by name: its arrival rate, or that of its throughput target."""
        return _loads_rpm(self.system)

    @cached_property
    def whole_load_rpm(self) -> dict[str, float]:
        """Load of each planned server [requests/min], by name, with the full load of shared queues."""
        return _loads_rpm(self.whole)

    @cached_property
    def on_cards(self) -> frozenset[str]:
        """Names of servers on shared cards."""
        return frozenset(self.plan.on_shared_cards)

    @cached_property
    def renting(self) -> frozenset[str]:
        """Names of servers whose requests external services answer."""
        return frozenset(services_of(self.plan))

    @cached_property
    def kept(self) -> PlacedUnits:
        """Replicas that keep running in addition to the plan."""
        return kept_replicas(self.whole)

    @property
    def is_limited(self) -> bool:
        """Whether any limit applies."""
        return any(self.placed.amounts.values())

    @property
    def is_shared(self) -> bool:
        """Whether servers share any resource, so that their placements are not independent."""
        return (
            self.is_limited
            or bool(prices_of(self.whole))
            or any(topology.extra_servers for topology in topologies_of(self.whole))
        )

    @property
    def mixed(self) -> bool:
        """Whether the plan is mixed, so that a server can have several pools; greedy plans never are."""
        return self.system.options.heterogeneous and self.system.options.milp_solver

    @property
    def shares_leftover(self) -> bool:
        """Whether the options allow partial service of servers."""
        return self.system.options.saturation_policy != "None" and self.is_limited

    def pools_of(self, name: str) -> tuple[Pool, ...]:
        """Return the pools of a server that serve its requests."""
        return self.plan.serving_pools_of(name)


def _loads_rpm(system: System) -> dict[str, float]:
    loads = server_loads_rps(system) * SECONDS_PER_MINUTE
    return dict(zip(system.servers, loads.tolist(), strict=True))
