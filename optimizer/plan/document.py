"""The document of a plan, which the library, the command line and the REST service use."""

from collections.abc import Sequence
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field

from optimizer.arrays import grouped
from optimizer.documents import OutputDocument, OutputShare, is_none
from optimizer.errors import IncompletePlanError, SpecError
from optimizer.features.caches.uses import CacheUse
from optimizer.features.disaggregation.streams import ROLES, pool_name, with_role_allocations
from optimizer.features.disaggregation.uses import ROLE_NOTE, RoleUse
from optimizer.features.external.uses import Rented
from optimizer.features.length_pools.uses import LengthUse
from optimizer.features.nodes.uses import NodeMove, NodeUse, machines_of
from optimizer.features.offline.uses import DeadlineUse
from optimizer.features.reserves.uses import ReplicaPurposes, ReserveUse
from optimizer.features.rollouts.uses import RolloutUse
from optimizer.features.routes.uses import RouteUse, traffic_rpm
from optimizer.features.shared_cards.uses import SharedCardUse, SharedPool
from optimizer.features.shared_queues.uses import QueueMember, SharedQueueUse
from optimizer.features.versions.uses import SplitUse
from optimizer.money import cost_amount, cost_unit
from optimizer.plan.notebook import MARK, are_mixed, notebook_table, plan_section
from optimizer.plan.tabular import MEAN_LIMITS, data_frame, mean_limits, placed_values
from optimizer.printed import Printed
from optimizer.quantities import counted, counted_of
from optimizer.schema import AllocationData, CurrentPool, Load, Server
from optimizer.schema.allocations import PoolMode
from optimizer.schema.pools import Placement, Pool
from optimizer.section import Section
from optimizer.solvers.solution import SolverName
from optimizer.spec.streams import planned_name, with_allocations
from optimizer.spec.system import System
from optimizer.text import some_names

SHARED = "shared cards"
"""Name that changes show instead of an accelerator for a server on shared cards."""
EXTERNAL = "external"
"""Name that changes show instead of an accelerator for a server that rents an external service."""


class Unserved(OutputDocument):
    """A server that is not fully served, with the reason."""

    server: str
    """Name of the server."""
    service_class: str
    """Service class of the server."""
    model: str
    """Model of the server."""
    priority: int
    """Priority of the server."""
    reason: str
    """Code of the reason, one of a closed set."""
    detail: str
    """Explanation of the reason, with numbers."""
    served_fraction: OutputShare = 0.0
    """Fraction of the server's load that is served."""


class PlanWarning(OutputDocument):
    """A warning about the system of a plan: the plan is valid, but probably not what was meant."""

    path: str
    """Location in the document, with names instead of indices: `servers.chat.model`."""
    message: str
    """Description of the problem, with numbers and what to do."""
    code: str = Field("", exclude_if=not_)
    """`steep_target` if the cost of a server explodes near the limit of a target; otherwise absent."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Warned(OutputDocument):
    """A result about a system, with the warnings about it."""

    warnings: tuple[PlanWarning, ...] = Field((), exclude_if=not_, strict=False)
    """Warnings about the system, which are those of `inferplan check`. Absent if there are none."""


class CapacityUse(OutputDocument):
    """Use of the cards of one accelerator type."""

    type: str
    """Name of the accelerator type."""
    limit: int | None = None
    """Number of available cards; null if unlimited."""
    used: int
    """Number of cards that the plan uses."""


class LimitUse(OutputDocument):
    """Use of a limit other than cards."""

    limit: str
    """Name of the limit, such as `budget`, `power` or `roll-out`."""
    item: str
    """Name of the limited item, such as the accelerator type."""
    unit: str
    """Unit of the amounts: `cents/h`, `W` or `card`."""
    amount: float
    """Available amount."""
    used: float
    """Amount that the plan uses."""
    used_at_load: float | None = Field(None, exclude_if=is_none)
    """Amount used at the load; absent for limits that do not depend on the load. Power is limited at the
    maximum rate of each replica, and is lower at the load.
    """


class TierUse(OutputDocument):
    """Cost of an accelerator with price tiers, or of a card type that has a price for additional cards."""

    accelerator: str | None = Field(None, exclude_if=is_none)
    """Name of the accelerator; absent if the entry is about a type."""
    type: str | None = Field(None, exclude_if=is_none)
    """Name of the accelerator type; absent if the entry is about an accelerator."""
    used: int
    """Number of accelerators, or of cards of the type, that the plan uses."""
    cost_cents_per_h: float
    """Cost of the used accelerators or cards, including unused commitments [cents/h]."""
    difference_cents_per_h: float
    """Cost minus the cost at list prices, which the pools state [cents/h]."""

    @property
    def name(self) -> str:
        """Name of the accelerator, or of the cards of the type, for tables and messages."""
        return self.accelerator or f"cards of {self.type}"


class PlanCost(OutputDocument):
    """A cost of a plan beyond the list prices of its pools and shared cards."""

    name: str
    """Accelerator or cards with other prices than the list price, node type, or server with a rented service.
    """
    amount_cents_per_h: float
    """Amount [cents/h]: the cost at tier prices minus that at list prices, or the cost of the nodes or of the
    service.
    """
    origin: str
    """Origin of the cost: price tiers (`tiers`), whole nodes (`nodes`), or a rented service (`external`)."""


class Kept(Placement):
    """Replicas that keep running in addition to the plan and occupy cards."""

    server: str
    """Name of the server, which cannot be served or whose new replicas are not ready yet. With 0 replicas,
    the server must stop before it can be served elsewhere.
    """


class Change(OutputDocument):
    """A server whose accelerator or replicas differ from the current ones."""

    server: str
    """Name of the server."""
    before: tuple[Placement, ...] = Field(strict=False)
    """Current placement; empty if the server is not running."""
    after: tuple[Placement, ...] = Field(strict=False)
    """Planned placement; empty if the server stops."""
    cost_change_cents_per_h: float
    """Planned cost minus current cost of the server [cents/h]."""


class PlanLevel(OutputDocument):
    """Result of one lexicographic objective."""

    name: str
    """Name of the quantity that is minimised."""
    unit: str
    """Unit of value and bound: `requests/min`, `servers` or `cents/h`."""
    value: float
    """Value that the plan reaches."""
    bound: float | None = None
    """Lower bound, given the values of the previous levels; null if unproved."""
    gap: float | None = None
    """Relative gap between value and bound; null without a bound."""


class Plan(Printed, Warned):
    """A plan for all servers; every server of the system is in `allocations` or in `unserved`."""

    inferplan_version: str
    """Version of inferplan that made the plan."""
    document_hash: str
    """SHA-256 of the planned document with its options, in normalised form: equal for equal inputs."""
    status: Literal["optimal", "feasible", "heuristic"]
    """`optimal`: proved within the allowed gap; `feasible`: the solver stopped early; `heuristic`: without
    proof.
    """
    solver: SolverName
    """Solver that found the plan."""
    complete: bool
    """Whether every server is fully served."""
    total_cost_cents_per_h: float
    """Cost of all allocations, with tier prices and rentals [cents/h]."""
    currency: str | None = Field(None, exclude_if=is_none)
    """Currency of the system's prices, of which a cent is a hundredth: 12,920 `CentsPerH` are 129.20 USD/h.
    Absent if prices state none.
    """
    objective: float = Field(alias="costChangeWithPenaltyCentsPerH")
    """Objective, the transition value [cents/h]: the total cost minus the current cost, plus the transition
    penalty of servers that start or move. The penalty keeps plans steady and is not paid.
    """
    bound: float | None = Field(None, alias="boundCentsPerH")
    """Proved lower bound of the objective [cents/h]; null if unproved."""
    gap: float | None = None
    """Relative gap between objective and bound; null without a bound."""
    levels: tuple[PlanLevel, ...] = Field(strict=False)
    """Results of the lexicographic objectives, in order."""
    allocations: dict[str, Annotated[tuple[Pool, ...], Field(strict=False)]] = Field(strict=False)
    """Pools by server or shared queue; an empty list if the server needs no replicas, or if no member of the
    queue is served.
    """
    shared_queues: dict[str, SharedQueueUse] = Field(default_factory=dict, exclude_if=not_)
    """Shared queues with their servers, by queue; absent if there are none."""
    routes: dict[str, RouteUse] = Field(default_factory=dict, exclude_if=not_)
    """Routes with their divisions, by name; absent if there are none."""
    unserved: tuple[Unserved, ...] = Field(strict=False)
    """Servers that are not fully served."""
    capacity: tuple[CapacityUse, ...] = Field(strict=False)
    """Use of the cards of every accelerator type."""
    limits: tuple[LimitUse, ...] = Field((), exclude_if=not_, strict=False)
    """Use of limits other than cards; absent if there are none."""
    shared_cards: tuple[SharedCardUse, ...] = Field((), exclude_if=not_, strict=False)
    """Groups of cards that servers share; these servers have no pools. Absent if there are none."""
    rented: tuple[Rented, ...] = Field((), exclude_if=not_, strict=False)
    """Servers whose requests external services answer; they have no pools. Absent if there are none."""
    not_rented: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Servers whose external services the plan ignores, because the REST service with a running fleet cannot
    use them. Absent if there are none.
    """
    reserves: tuple[ReserveUse, ...] = Field((), exclude_if=not_, strict=False)
    """Reserves of all servers that require one, even if they are not served; absent if none does."""
    rollouts: dict[str, RolloutUse] = Field({}, exclude_if=not_)
    """Extra replicas and cards during roll-outs, by server; absent if there are none."""
    replica_counts: dict[str, ReplicaPurposes] = Field({}, exclude_if=not_)
    """Replicas by purpose, for each served server with an availability target or a roll-out; absent if there
    are none.
    """
    deadlines: tuple[DeadlineUse, ...] = Field((), exclude_if=not_, strict=False)
    """Offline work and its completion times; absent if there is none."""
    caches: tuple[CacheUse, ...] = Field((), exclude_if=not_, strict=False)
    """Servers with a result cache; their pools, `unserved` and levels count misses only. Absent if there are
    none.
    """
    versions: dict[str, SplitUse] = Field({}, exclude_if=not_)
    """Versions of split servers, by name of the server; absent if there are none."""
    length_pools: dict[str, LengthUse] = Field({}, exclude_if=not_)
    """Servers with pools by length, and what one pool or several pools cost, by name; absent if there are
    none.
    """
    disaggregation: dict[str, RoleUse] = Field({}, exclude_if=not_)
    """Servers that can have prefill and decode pools, and what both ways cost, by name; absent if there are
    none.
    """
    tiers: tuple[TierUse, ...] = Field((), exclude_if=not_, strict=False)
    """Costs of accelerators with price tiers; absent if there are none."""
    costs: tuple[PlanCost, ...] = Field((), exclude_if=not_, strict=False)
    """Costs that add up with those of the pools and shared cards to `totalCostCentsPerH`; absent if there are
    none.
    """
    nodes: tuple[NodeUse, ...] = Field((), exclude_if=not_, strict=False)
    """Nodes that the plan uses, and the replicas in them; absent if the system has no nodes."""
    node_moves: tuple[NodeMove, ...] = Field((), exclude_if=not_, strict=False)
    """Replicas that move to another node, start or stop; absent if `currentAlloc` states no nodes."""
    changes: tuple[Change, ...] = Field(strict=False)
    """Servers whose allocation differs from the current one."""
    rate_factors: dict[str, dict[str, float]] = Field(default_factory=dict, exclude_if=not_)
    """Usable fraction of a replica's maximum rate, by server and accelerator, if a simulation showed missed
    targets at higher rates; 0 if no rate is usable. Absent if there are none.
    """

    kept: tuple[Kept, ...] = Field((), exclude_if=not_, strict=False)
    """Replicas that keep their cards in addition to the plan, if the REST service plans for a running fleet;
    `used` of `capacity` excludes them. Absent if there are none.
    """

    @property
    def factor_of_pair(self) -> dict[tuple[str, str], float]:
        """Usable fractions of maximum rates (`rate_factors`), by server and accelerator."""
        return {
            (server, accelerator): factor
            for server, factors in self.rate_factors.items()
            for accelerator, factor in factors.items()
        }

    @property
    def kept_replicas(self) -> dict[tuple[str, str], int]:
        """Number of kept replicas (`kept`), by server and accelerator."""
        return {(item.server, item.accelerator): item.num_replicas for item in self.kept}

    @property
    def estimated_pools(self) -> int:
        """Number of pools with estimated token times."""
        return sum(pool.estimated is not None for pools in self.allocations.values() for pool in pools)

    def to_dataframe(self, system: System | None = None) -> Any:
        """Return the plan as a pandas data frame, with a row for each pool and for each server without pools.

        The columns are `server`, the fields of `Pool` by Python name with the targets on means
        (`itl_target_ms`, `ttft_target_ms`), `served_fraction` and `reason`.

        Args:
            system: the planned system; with it, servers without pools have a class, a model and targets, too.

        Raises:
            MissingExtraError: pandas is not installed.
            SpecError: the plan is not for this system.
        """
        rows = self._rows()
        if system is not None:
            rows = [{**row, **placed_values(system, row)} for row in rows]
        return data_frame(rows, _COLUMNS)

    def to_section(self) -> Section:
        """Return the plan as a table, below a line with cost and service."""
        section = plan_section(self._caption, self._rows(), self.currency)
        section.notes += [f"warning: {warning}" for warning in self.warnings]
        return section

    def _repr_html_(self) -> str:
        """Return the plan as an HTML table for notebooks."""
        return notebook_table(self._caption, self._rows(), self.currency)

    @property
    def _caption(self) -> str:
        """Status, cost and service of the plan in one line."""
        cost = f"{cost_amount(self.total_cost_cents_per_h, self.currency)} {cost_unit(self.currency)}"
        estimated = ""
        if self.estimated_pools:
            mark = MARK if are_mixed(pool for pools in self.allocations.values() for pool in pools) else ""
            estimated = f";{mark} token times are estimated, not measured"
        reserves = f"; {self.reserve_text}" if self.reserves else ""
        return f"{self.status} plan, {cost}, {self.service_text}{reserves}{estimated}"

    def _rows(self) -> list[dict[str, object]]:
        unserved = {item.server: item for item in self.unserved}
        rows: list[dict[str, object]] = []
        for name in sorted({*self.allocations, *unserved}):
            item = unserved.get(name)
            fraction, reason = (1.0, None) if item is None else (item.served_fraction, item.reason)
            rest = {"server": name, "served_fraction": fraction, "reason": reason}
            owner = {} if item is None else {field: getattr(item, field) for field in _OWNER}
            pools = [
                {**dict(pool), **mean_limits(pool), "pool": pool} for pool in self.allocations.get(name, ())
            ]
            rows += ({**_NO_POOL, **pool, **rest} for pool in pools or [owner])
        return rows

    @property
    def server_of(self) -> dict[str, str]:
        """Name of the document's server to which each version and each pool by length belongs, by name."""
        versions = {part.server: name for name, use in self.versions.items() for part in use.versions}
        pools = {part.server: name for name, use in self.length_pools.items() for part in use.pools}
        roles = {pool_name(name, role): name for name in self.disaggregation for role in ROLES}
        return versions | pools | roles

    @property
    def documented(self) -> frozenset[str]:
        """Names of the document's servers: members of queues, but no queues, versions or pools by length."""
        names = (self._server_names() - self.groups) | self.queued_servers
        return frozenset(self.server_of.get(name, name) for name in names)

    @property
    def short_servers(self) -> frozenset[str]:
        """Names of the document's servers that are not served in full."""
        return frozenset(self.server_of.get(item.server, item.server) for item in self.unserved)

    @property
    def service_text(self) -> str:
        """Describe the number of servers that are served in full."""
        servers = len(self.documented)
        return f"{counted_of(servers - len(self.short_servers), servers, 'server')} served in full"

    @property
    def requires_reserve(self) -> tuple[str, ...]:
        """Names of servers that require a reserve, served or not."""
        return tuple(item.server for item in self.reserves)

    @property
    def lacks_reserve(self) -> tuple[str, ...]:
        """Names of servers that do not have their required reserve, served or not."""
        return tuple(item.server for item in self.reserves if not item.has_reserve)

    @property
    def reserve_text(self) -> str:
        """Describe the number and the names of servers that lack their reserve."""
        names = self.lacks_reserve
        if not names:
            return "no server lacks its reserve"
        verb = "lack their reserves" if len(names) > 1 else "lacks its reserve"
        return f"{counted(len(names), 'server')} {verb}: {some_names(names)}"

    def raise_for_status(self, *, service: bool = True, reserves: bool = False) -> None:
        """Raise an error if a server is not fully served or, if requested, lacks its reserve.

        Args:
            service: whether every server must be served in full.
            reserves: whether every server must have the reserve that it requires.

        Raises:
            IncompletePlanError: a requirement is not met; the message names the servers.
        """
        short, shortages = [item.server for item in self.unserved], []
        if service and short:
            shortages.append(f"{len(short)} of the servers cannot be served in full: {some_names(short)}")
        if reserves and self.lacks_reserve:
            shortages.append(self.reserve_text)
        if shortages:
            raise IncompletePlanError("; ".join(shortages))

    @property
    def partitions(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """Request shapes of each pool by length, or roles of pools, by server."""
        lengths = {name: tuple(pool.shapes for pool in use.pools) for name, use in self.length_pools.items()}
        return lengths | {name: use.choice for name, use in self.disaggregation.items()}

    @property
    def workload_notes(self) -> dict[str, dict[str, str]]:
        """Annotations of Kubernetes workloads, by planned server: the shapes or the role of its pools."""
        by_length = (use.pools for use in self.length_pools.values() if len(use.pools) > 1)
        notes = {pool.server: pool.notes for pools in by_length for pool in pools}
        return notes | {pool_name(s, role): {ROLE_NOTE: role} for s in self.disaggregation for role in ROLES}

    def planned_in(self, system: System) -> System:
        """Return the system with only the pools by length of the plan."""
        return system.partitioned(self.partitions)

    def applied_to(self, system: System) -> System:
        """Return the system with the plan as its current allocations.

        Raises:
            SpecError: the plan is not for the servers and accelerators of this system.
        """
        self._check_is_for(system)
        pools, planned = self._current_pools, self.planned_in(system).servers
        current = {name: _as_allocation(pools.get(name, ()), Load()) for name in planned}
        return system.with_items(*(with_allocations(server, current) for server in system.spec.servers))

    def allocation_of(self, server: Server) -> AllocationData:
        """Return the planned allocation of a server with its current load.

        Raises:
            SpecError: the server is not in the plan.
        """
        name, roles = planned_name(server), self.roles_of(server)
        if roles:
            found = {one: _as_allocation(self._current_pools[one], Load()) for one in roles}
            return with_role_allocations(server, found, "current").current
        if name not in self.allocations and name not in self._server_names():
            raise SpecError(
                f"servers.{server.name}: not in the plan; plan again with the servers of this system"
            )
        return _as_allocation(self._current_pools.get(name, ()), server.current.load)

    def has_allocation_of(self, server: Server) -> bool:
        """Return whether a server has an allocation in the plan."""
        names = self.roles_of(server) or (planned_name(server),)
        return all(name in self.allocations and name not in self.left_out for name in names)

    def roles_of(self, server: Server) -> tuple[str, ...]:
        """Return the names of the prefill and decode pool of a server; empty if the plan has none."""
        use = self.disaggregation.get(server.name)
        return () if use is None else use.pool_names

    @property
    def _current_pools(self) -> dict[str, list[tuple[CurrentPool, Pool | None]]]:
        """Pools of each planned server as current pools; pools on own cards also with their metrics."""
        current_pools: dict[str, list[tuple[CurrentPool, Pool | None]]] = {}
        machines = machines_of(self.nodes)
        for name in self.allocations:
            current_pools[name] = [
                (_current_pool(pool, pool.accelerator, "own", *place), pool)
                for pool in self.serving_pools_of(name)
                for place in _places(pool, machines.get((name, pool.accelerator), ()))
            ]
        for use in self.shared_cards:
            for item in use.servers:
                pool = _current_pool(item, use.accelerator, "shared")
                current_pools.setdefault(item.server, []).append((pool, None))
        for rented in self.rented:
            cost = rented.cost_cents_per_h
            pool = CurrentPool.model_construct(num_replicas=1, cost_cents_per_h=cost, mode="external")
            current_pools.setdefault(rented.server, []).append((pool, None))
        return current_pools

    def reference_answer(self, system: System) -> dict[str, Any]:
        """Return the allocations in llm-inferno's format.

        If a server has several pools, llm-inferno's fields show the largest one, and ``pools`` shows all.

        Raises:
            SpecError: the plan is not for the servers and accelerators of this system.
        """
        self._check_is_for(system)
        answer: dict[str, Any] = {}
        for name, pools in self.allocations.items():
            load = system.servers[name].current.load
            answer[name] = _reference_allocation(pools, load)
        return {"allocations": answer}

    def _server_names(self) -> set[str]:
        """Return the names of planned servers; a shared queue counts as one server."""
        named = {*self.allocations, *(item.server for item in self.unserved)}
        return named - self.queued_servers

    @property
    def left_out(self) -> dict[str, Unserved]:
        """Return planned servers that need an allocation but have none, with the reason, by name.

        A fully unserved shared queue has the reason of its member of highest priority. Both servers of an
        unserved route have the reason of the large one.
        """
        result = {item.server: item for item in self.unserved if item.server not in self.allocations}
        for name, use in self.shared_queues.items():
            missed = [result.pop(server) for server in (*use.unserved, *use.members) if server in result]
            if missed and not self.allocations.get(name):
                first = min(missed, key=lambda item: (item.priority, item.server))
                result[name] = first.model_copy(update={"server": name})
        for route in self.routes.values():
            if route.large in result:
                result[route.small] = result[route.large].model_copy(update={"server": route.small})
        return result

    @property
    def groups(self) -> frozenset[str]:
        """Names of planned servers whose replicas several servers share: shared queues."""
        return frozenset(self.shared_queues)

    @property
    def group_of(self) -> dict[str, str]:
        """Name of the planned server (shared queue) that serves each served member, by member."""
        return {name: group for group, use in self.shared_queues.items() for name in use.members}

    @property
    def members(self) -> dict[str, QueueMember]:
        """Served members of shared queues with their metrics, by name."""
        return {name: member for use in self.shared_queues.values() for name, member in use.members.items()}

    @property
    def routed(self) -> dict[str, tuple[str, RouteUse]]:
        """Name and entry of the route that each server of a route belongs to, by server."""
        return {server: (name, use) for name, use in self.routes.items() for server in (use.small, use.large)}

    @property
    def queued_servers(self) -> set[str]:
        """Names of servers of shared queues, including unserved ones."""
        return {name for use in self.shared_queues.values() for name in (*use.members, *use.unserved)}

    @property
    def served_in_queues_rpm(self) -> dict[str, dict[str, float]]:
        """Served arrival rates of shared queues [requests/min], by queue and server."""
        return {
            name: {server: member.arrival_rate_rpm for server, member in use.members.items()}
            for name, use in self.shared_queues.items()
        }

    def serving_pools_of(self, server: str) -> tuple[Pool, ...]:
        """Return the pools of a planned server that serve its requests: on own cards and without a role."""
        return tuple(pool for pool in self.allocations.get(server, ()) if pool.role is None)

    def pools_of(self, server: str) -> tuple[Pool, ...]:
        """Return the pools of a server, including those on shared cards."""
        return *self.allocations.get(server, ()), *self.on_shared_cards.get(server, ())

    @property
    def costs_of_no_pool(self) -> list[PlanCost]:
        """Costs beyond list prices that overviews state apart; pools share the costs of nodes."""
        return [cost for cost in self.costs if cost.origin != "nodes"]

    @property
    def shared_costs(self) -> list[PlanCost]:
        """Costs of what all servers use together, beyond list prices, such as nodes."""
        return [cost for cost in self.costs if cost.origin != "external"]

    @property
    def on_shared_cards(self) -> dict[str, list[SharedPool]]:
        """Pools on shared cards, by server."""
        return grouped((item.server, item) for use in self.shared_cards for item in use.servers)

    @property
    def served_rpm(self) -> dict[str, dict[str, float]]:
        """Served arrival rates of shared queues and routes [requests/min], in the form of `as_served`."""
        return self.served_in_queues_rpm | self.routed_rpm

    @property
    def routed_rpm(self) -> dict[str, dict[str, float]]:
        """Arrival rates of servers of routes [requests/min], keyed by the server's name on both levels."""
        routed = {name: rate for use in self.routes.values() for name, rate in use.loads_rpm.items()}
        return {
            name: {name: traffic_rpm(rate, has_replicas=bool(self.allocations.get(name)))}
            for name, rate in routed.items()
        }

    def _check_is_for(self, system: System) -> None:
        """Raise an error unless the system has the same servers as the plan, and all its accelerators."""
        hint, possible = "the plan was made for another system", system.with_all_pools().servers.keys()
        system = self.planned_in(system)
        # A pool by length that stops is in the plan, but not in a system where it does not run.
        stopped = {name for name, pools in self.allocations.items() if not pools and name in possible}
        named = self._server_names() - (stopped - system.servers.keys())
        for name in sorted(named - system.servers.keys()):
            raise SpecError(f"servers.{name}: in the plan, but not in the system; {hint}")
        for name in sorted(system.servers.keys() - named):
            raise SpecError(f"servers.{name}: in the system, but not in the plan; {hint}")
        for name, pools in self.allocations.items():
            for pool in pools:
                if pool.accelerator not in system.accelerators:
                    raise SpecError(
                        f"allocations.{name}: accelerator {pool.accelerator!r} is not in the system; {hint}"
                    )


_NO_POOL: dict[str, object] = {
    "pool": None,
    "accelerator": None,
    "cards": 0,
    "num_replicas": 0,
    "cost_cents_per_h": 0.0,
    "arrival_rate_rpm": 0.0,
    "max_arrival_rate_rpm": 0.0,
}
"""Row of a data frame for a server without pools; other columns are missing values."""
_OWNER = ("service_class", "model", "priority")
_COLUMNS = ("server", *Pool.model_fields, *MEAN_LIMITS, "served_fraction", "reason")


_OF_LARGEST = ("accelerator", "num_replicas", "max_batch", "cost_cents_per_h", "itl_ms", "ttft_ms")
"""Fields of the largest pool that the allocation of a server states, by Python name."""


def _largest(pools: tuple[Pool, ...]) -> Pool | None:
    return max(pools, key=lambda pool: pool.arrival_rate_rpm, default=None)


def _places(pool: Pool, machines: Sequence[tuple[str, int]]) -> Sequence[tuple[()] | tuple[str, int]]:
    """Return node and number of the replicas of a pool on each node, or nothing if not all are known."""
    return machines if sum(n for _, n in machines) == pool.num_replicas else [()]


def _current_pool(
    pool: Pool, accelerator: str, mode: PoolMode, node: str | None = None, replicas: int | None = None
) -> CurrentPool:
    number = pool.num_replicas if replicas is None else replicas
    return CurrentPool.model_construct(  # planned costs can exceed the limits of documents
        accelerator=accelerator,
        num_replicas=number,
        max_batch=pool.max_batch,
        cost_cents_per_h=pool.cost_cents_per_h * number / pool.num_replicas,
        mode=mode,
        node=node,
    )


def _as_allocation(pools: Sequence[tuple[CurrentPool, Pool | None]], load: Load) -> AllocationData:
    """Return current pools as an allocation; its main fields state the largest pool with metrics."""
    values: dict[str, Any] = {"load": load}
    main = _largest(tuple(own for _, own in pools if own is not None))
    if main is not None:
        values |= {name: getattr(main, name) for name in _OF_LARGEST}
    if len(pools) > 1 or (pools and (main is None or pools[0][0].node)):
        values["pools"] = tuple(pool for pool, _ in pools)
    return AllocationData.model_construct(**values)  # planned costs can exceed the limits of documents


def _reference_allocation(pools: tuple[Pool, ...], load: Load) -> dict[str, Any]:
    main = _largest(pools) or AllocationData()
    of_load = ("arrival_rate_rpm", "in_tokens", "out_tokens")
    wire = {AllocationData.model_fields[name].alias or name: getattr(main, name) for name in _OF_LARGEST}
    wire["load"] = {Load.model_fields[name].alias or name: getattr(load, name) for name in of_load}
    if len(pools) > 1:
        wire["pools"] = [_reference_pool(pool) for pool in pools]
    return wire


_REFERENCE_NAMES = {
    "costCentsPerH": "cost",
    "arrivalRateRpm": "arrivalRate",
    "maxArrivalRateRpm": "maxArrivalRate",
    "itlMs": "itlAverage",
    "ttftMs": "ttftAverage",
    "waitMs": "waitAverage",
    "meanBatch": "avgBatch",
    "batchWindowMs": "batchWindow",
    "requestShapes": "shapes",
}
"""Keys of pools in llm-inferno's format where plans have others."""


def _reference_pool(pool: Pool) -> dict[str, Any]:
    """Return a pool with llm-inferno's keys; its server and cards are those of the allocation."""
    stated = pool.model_dump(mode="json", by_alias=True, exclude={*_OWNER, "type", "cards"})
    return {_REFERENCE_NAMES.get(key, key): value for key, value in stated.items()}
