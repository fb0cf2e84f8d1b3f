"""The fleet of a stateful service as one immutable value: its items by name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from optimizer.features.routes.streams import routes_by_server, without_routed_loads
from optimizer.features.shared_queues.streams import with_shared_queues
from optimizer.features.versions.streams import (
    with_allocation,
    with_desired_applied,
    with_versions,
)
from optimizer.plan import Plan
from optimizer.schema import (
    Accelerator,
    AllocationData,
    Capacity,
    CurrentPool,
    ModelProfile,
    OptimizerOptions,
    Route,
    Server,
    ServiceClass,
    SystemSpec,
)
from optimizer.schema.files import Part
from optimizer.spec.streams import planned_name, planned_names
from optimizer.spec.system import System, join_parts


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Entities:
    """All items of a fleet by name, in order of arrival; references between items can be undefined."""

    accelerators: Mapping[str, Accelerator] = field(default_factory=_nothing)
    """Accelerators by name."""
    models: Mapping[str, Mapping[str, ModelProfile]] = field(default_factory=_nothing)
    """Model profiles by model and accelerator; a model can have none."""
    service_classes: Mapping[str, ServiceClass] = field(default_factory=_nothing)
    """Service classes by name."""
    servers: Mapping[str, Server] = field(default_factory=_nothing)
    """Servers by name, with their current and desired allocations."""
    capacity: Mapping[str, int] = field(default_factory=_nothing)
    """Number of cards by accelerator type."""
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    """Optimizer options of the fleet."""
    routes: Mapping[str, Route] = field(default_factory=_nothing)
    """Routes by name; the servers of a route have no separate load."""

    def __post_init__(self) -> None:
        for name in ("accelerators", "service_classes", "servers", "capacity", "routes"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        models = {model: _frozen(profiles) for model, profiles in self.models.items()}
        object.__setattr__(self, "models", MappingProxyType(models))

    @classmethod
    def of(cls, document: SystemSpec) -> "Entities":
        """Return the items of a document; if a name occurs several times, the last item counts."""
        models: dict[str, dict[str, ModelProfile]] = {}
        for profile in document.models:
            models.setdefault(profile.name, {})[profile.accelerator] = profile
        return cls(
            {item.name: item for item in document.accelerators},
            models,
            {item.name: item for item in document.service_classes},
            {item.name: item for item in document.servers},
            {item.type: item.cards for item in document.count},
            document.optimizer,
            {item.name: item for item in document.routes},
        )

    @cached_property
    def routed(self) -> Mapping[str, str]:
        """Name of the route from which a server gets its load, by server."""
        return {name: route.name for name, route in routes_by_server(self.routes.values()).items()}

    @cached_property
    def owners(self) -> Mapping[str, Server | Route]:
        """Servers and routes by the names under which loads are stated."""
        return {**self.servers, **self.routes}

    def with_routes(self, changed: Mapping[str, Route]) -> "Entities":
        """Return a copy in which some routes, given by name, are replaced."""
        return replace(self, routes={**self.routes, **changed})

    def with_routes_of(self, servers: Collection[str]) -> "tuple[Entities, list[str]]":
        """Return a copy with only the routes whose servers are given, and the names of the other routes."""
        routes = {name: one for name, one in self.routes.items() if {one.small, one.large} <= {*servers}}
        return replace(self, routes=routes), [name for name in self.routes if name not in routes]

    def profiles_of(self, model: str) -> Collection[ModelProfile]:
        """Return the profiles of a model; empty if the model is unknown."""
        return self.models.get(model, {}).values()

    def spec(self) -> SystemSpec:
        """Return all items as one document, which cannot contain models without profiles."""
        return SystemSpec.model_construct(
            accelerators=tuple(self.accelerators.values()),
            models=tuple(profile for profiles in self.models.values() for profile in profiles.values()),
            service_classes=tuple(self.service_classes.values()),
            servers=tuple(self.servers.values()),
            count=tuple(Capacity.of(kind, cards) for kind, cards in self.capacity.items()),
            optimizer=self.optimizer,
            routes=tuple(self.routes.values()),
        )

    def with_loads_of(self, system: System) -> "Entities":
        """Return a copy with the loads of a system that has the same servers and routes."""
        servers = without_routed_loads(system.stated, system.routes.values())
        return replace(self, servers=servers, routes=system.routes)

    def system(self) -> System:
        """Return the cross-checked system of the fleet.

        As in llm-inferno, token lengths that are not stated are 0, and a server without output length is
        idle.

        Raises:
            SpecError: there is no server, or a name is undefined.
        """
        return join_parts([Part(self.spec())], lengths_optional=True)

    @property
    def planned(self) -> Mapping[str, Server]:
        """Servers in planned form, by name: shared queues replace their servers, versions are separate."""
        known = self.service_classes

        def priority(server: Server) -> int:
            return known[server.service_class].priority if server.service_class in known else 100

        return with_shared_queues(with_versions(self.servers), priority)

    def loose_system(self) -> System:
        """Return a system without cross-checks; only its references to classes must be defined."""
        named = {server.service_class for server in self.servers.values()} - self.service_classes.keys()
        servers = self.planned
        system = System(
            accelerators=self.accelerators,
            profiles={
                (model, accelerator): profile
                for model, profiles in self.models.items()
                for accelerator, profile in profiles.items()
            },
            service_classes={
                **self.service_classes,
                **{name: ServiceClass.model_construct(name=name) for name in named},
            },
            targets={},
            servers=servers,
            capacity=self.capacity,
            options=self.optimizer,
        )
        routes = dict(sorted(self.with_routes_of(servers)[0].routes.items()))
        return system.with_routes(routes) if routes else system

    def with_desired(self, desired: Mapping[str, AllocationData]) -> "Entities":
        """Return a copy with other desired allocations, by server or version; unknown names are ignored."""
        servers = dict(self.servers)
        for name, server in self.servers.items():
            names = {name, *planned_names(server)} if server.split else {name}
            for one in names & desired.keys():
                servers[name] = with_allocation(servers[name], one, desired[one], "desired")
        return replace(self, servers=servers)

    def with_desired_applied(self) -> "Entities":
        """Return a copy in which the desired allocation of every server is its current one.

        Loads are kept.
        """
        servers = {name: with_desired_applied(server) for name, server in self.servers.items()}
        return replace(self, servers=servers)


def desired_allocations(plan: Plan, servers: Mapping[str, Server]) -> dict[str, AllocationData]:
    """Return the desired allocations of servers and versions.

    Unserved ones have their retained allocation.
    """
    return {
        name: plan.allocation_of(server)
        if planned_name(server) in plan.allocations and planned_name(server) not in plan.left_out
        else kept_allocation(plan, server)
        for name, server in with_versions(servers).items()
    }


def kept_allocation(plan: Plan, server: Server) -> AllocationData:
    """Return the allocation that an unserved server retains; it can have no replicas."""
    current = server.current
    own = planned_name(server)
    kept = {on: number for (name, on), number in plan.kept_replicas.items() if name == own}
    largest = max(kept, key=lambda on: (kept[on], on == current.accelerator), default=current.accelerator)
    if largest != current.accelerator:
        return AllocationData(accelerator=largest, num_replicas=kept[largest], load=current.load)
    if not current.num_replicas:
        return current
    found = resized(current, kept.get(largest, 0))
    pools = [pool for pool in current.pools if pool.mode == "own" and kept.get(pool.accelerator)]
    more = tuple(_scaled_pool(pool, kept[pool.accelerator]) for pool in pools)
    return found.model_copy(update={"pools": more}) if len(more) > 1 else found


def _scaled_pool(pool: CurrentPool, replicas: int) -> CurrentPool:
    cost = pool.cost_cents_per_h * replicas / pool.num_replicas
    return pool.model_copy(update={"num_replicas": replicas, "cost_cents_per_h": cost})


def resized(current: AllocationData, replicas: int) -> AllocationData:
    """Return the largest current pool with another number of replicas.

    With 0 replicas, the name of the accelerator is kept.
    """
    changes: dict[str, object] = {
        "num_replicas": replicas,
        "cost_cents_per_h": current.cost_cents_per_h * replicas / current.num_replicas,
        "pools": (),
    }
    if not replicas:
        changes |= {"itl_ms": 0.0, "ttft_ms": 0.0, "avg_concurrency": 0.0}
    return current.model_copy(update=changes)


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping if isinstance(mapping, MappingProxyType) else MappingProxyType(dict(mapping))
