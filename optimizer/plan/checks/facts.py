"""A plan with valid names and its system, as the checks read them; nothing comes from the solver."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optimizer.candidates.arrays import SystemArrays, server_loads_rps
from optimizer.candidates.measuring import MemberMetrics
from optimizer.candidates.replica_power import largest_power_w
from optimizer.features.shared_queues.view import measured_members
from optimizer.plan.document import Plan, Unserved
from optimizer.plan.placements import services_of
from optimizer.plan.rows import pool_rows
from optimizer.plan.views import PlanPlacements
from optimizer.schema.pools import Pool
from optimizer.solvers.problem import topologies_of
from optimizer.spec.placed import PlacedUnits, kept_replicas, needs_power
from optimizer.spec.prices import tiered
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


@dataclass(frozen=True)
class Facts:
    """A plan with valid names, and its system."""

    plan: Plan
    system: System
    """The system with only the load that the plan serves of queues and routes; each unserved member of a
    queue is a separate server.
    """
    arrays: SystemArrays
    """The system as arrays, for queue models, with only the served load."""
    whole: System
    """The planned system."""

    @cached_property
    def placed(self) -> PlanPlacements:
        """What the plan places."""
        return PlanPlacements.of_plan(self.plan, self.whole, self.arrays, self._pool_power_w)

    @cached_property
    def _pool_power_w(self) -> Mapping[tuple[str, str], float]:
        pools = [(name, pool) for name in self.plan.allocations for pool in self.pools_of(name)]
        if not needs_power(self.whole) or not pools:
            return {}
        most = [pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE / pool.num_replicas for _, pool in pools]
        rows = pool_rows(self.arrays, pools)._replace(rate_rps=np.array(most))
        powers = [item.power for item in self.whole.accelerators.values()]
        found = largest_power_w(self.arrays, powers, *rows).tolist()
        return {(name, pool.accelerator): each for (name, pool), each in zip(pools, found, strict=True)}

    @cached_property
    def members(self) -> list[tuple[tuple[str, str], MemberMetrics]]:
        """Metrics of the loaded members of queues, by queue and member."""
        return [*measured_members(self.arrays, self.placed.named_pools)]

    @cached_property
    def listed(self) -> dict[str, Unserved]:
        """Servers listed as unserved in the plan."""
        return {item.server: item for item in self.plan.unserved}

    @cached_property
    def short(self) -> set[str]:
        """Planned servers that are not served in full, and queues with such a member."""
        short = {*self.listed, *self.plan.left_out}
        return short | {name for member, name in self.plan.group_of.items() if member in short}

    @cached_property
    def load_rpm(self) -> dict[str, float]:
        """Load of each server [requests/min]: its arrival rate, or that of its throughput target."""
        return _loads_rpm(self.system)

    @cached_property
    def whole_load_rpm(self) -> dict[str, float]:
        """Load of each planned server with the full load of shared queues [requests/min]."""
        return _loads_rpm(self.whole)

    @cached_property
    def on_cards(self) -> frozenset[str]:
        """Servers on shared cards."""
        return frozenset(self.plan.on_shared_cards)

    @cached_property
    def renting(self) -> frozenset[str]:
        """Servers whose requests external services answer."""
        return frozenset(services_of(self.plan))

    @cached_property
    def kept(self) -> PlacedUnits:
        """Kept replicas."""
        return kept_replicas(self.whole)

    @property
    def is_limited(self) -> bool:
        """Whether there is any limit."""
        return any(self.placed.amounts.values())

    @property
    def is_shared(self) -> bool:
        """Whether servers share any resource, so that their choices are not independent."""
        return (
            self.is_limited
            or bool(tiered(self.whole.accelerators, self.whole.capacity))
            or any(topology.extra_servers for topology in topologies_of(self.whole))
        )

    @property
    def mixed(self) -> bool:
        """Whether a server can have several pools; the greedy heuristic never mixes."""
        return self.system.options.heterogeneous and self.system.options.milp_solver

    @property
    def shares_leftover(self) -> bool:
        """Whether the options allow partial service."""
        return self.system.options.saturation_policy != "None" and self.is_limited

    def pools_of(self, name: str) -> tuple[Pool, ...]:
        """Return the pools of a server that serve its requests."""
        return self.plan.serving_pools_of(name)


def _loads_rpm(system: System) -> dict[str, float]:
    loads = server_loads_rps(system) * SECONDS_PER_MINUTE
    return dict(zip(system.servers, loads.tolist(), strict=True))
