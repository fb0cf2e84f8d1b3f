"""The fleet of a stateful service as one immutable value: its items by name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from optimizer.documents import Document
from optimizer.features.disaggregation.streams import with_role_allocations, with_role_names
from optimizer.features.nodes.fields import NodeType
from optimizer.features.routes.streams import routes_by_server
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
from optimizer.schema.current_pools import of_replicas
from optimizer.schema.files import Part
from optimizer.spec.streams import planned_name, planned_names
from optimizer.spec.system import System, compiled, join_parts
from optimizer.stabilisation.keeping import by_server

Key = tuple[str, ...]
"""Names of an item: one name, or model and accelerator of a profile; empty for the options."""


class FleetSection(NamedTuple):
    """A section of the fleet's document."""

    field: str
    """Field of `Entities` that stores the items."""
    document: type[Document]


MODELS = "profilelessModels"
"""Name of the section of models themselves, which no document contains: they can exist without profiles."""
SECTIONS: Mapping[str, FleetSection] = {
    "accelerators": FleetSection("accelerators", Accelerator),
    "serviceClasses": FleetSection("service_classes", ServiceClass),
    "servers": FleetSection("servers", Server),
    "count": FleetSection("count", Capacity),
    "routes": FleetSection("routes", Route),
    "nodes": FleetSection("nodes", NodeType),
    "optimizer": FleetSection("optimizer", OptimizerOptions),
    MODELS: FleetSection("models", ModelProfile),
    "models": FleetSection("models", ModelProfile),
}
"""Sections in which fleets can differ, by name."""
_NAMED = ("accelerators", "service_classes", "servers", "count", "routes", "nodes")
"""Fields of `Entities` that store items by name; documents have them as lists."""


def key_of(item: Any) -> Key:
    """Return the key of a named item."""
    if isinstance(item, ModelProfile):
        return item.name, item.accelerator
    return (item.type if isinstance(item, Capacity) else item.name,)


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
    count: Mapping[str, Capacity] = field(default_factory=_nothing)
    """Capacities by accelerator type."""
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    """Optimizer options of the fleet."""
    routes: Mapping[str, Route] = field(default_factory=_nothing)
    """Routes by name; the servers of a route have no separate load."""
    nodes: Mapping[str, NodeType] = field(default_factory=_nothing)
    """Node types by name; they are replaced only with the whole fleet."""

    def __post_init__(self) -> None:
        for name in _NAMED:
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        if not isinstance(self.models, MappingProxyType):
            models = {model: _frozen(profiles) for model, profiles in self.models.items()}
            object.__setattr__(self, "models", MappingProxyType(models))

    @classmethod
    def of(cls, document: SystemSpec) -> "Entities":
        """Return the items of a document; if a name occurs several times, the last item counts."""
        models: dict[str, dict[str, ModelProfile]] = {}
        for profile in document.models:
            models.setdefault(profile.name, {})[profile.accelerator] = profile
        named: dict[str, Any] = {
            name: {key_of(item)[0]: item for item in getattr(document, name)} for name in _NAMED
        }
        return cls(models=models, optimizer=document.optimizer, **named)

    def section(self, name: str) -> Mapping[Any, Any]:
        """Return the items of a section: by name, profiles by model and accelerator, options by ``()``."""
        if name == "models":
            return {
                (model, accelerator): profile
                for model, profiles in self.models.items()
                for accelerator, profile in profiles.items()
            }
        if name == "optimizer":
            return {(): self.optimizer}
        items: Mapping[str, Any] = getattr(self, SECTIONS[name].field)
        return dict.fromkeys(items) if name == MODELS else items

    @property
    def capacity(self) -> dict[str, int]:
        """Number of cards by accelerator type."""
        return {name: item.cards for name, item in self.count.items()}

    @cached_property
    def routed(self) -> Mapping[str, str]:
        """Name of the route from which a server gets its load, by server."""
        return {name: route.name for name, route in routes_by_server(self.routes.values()).items()}

    @cached_property
    def owners(self) -> Mapping[str, Server | Route]:
        """Servers and routes by the names under which loads are stated."""
        return {**self.servers, **self.routes}

    def with_items(self, field: str, changed: Mapping[str, Any]) -> "Entities":
        """Return a copy with some items of a field added, replaced in their positions, or removed if None."""
        items = {**getattr(self, field), **changed}
        changes: dict[str, Any] = {field: {name: item for name, item in items.items() if item is not None}}
        return replace(self, **changes)

    def with_routes_of(self, servers: Collection[str]) -> "tuple[Entities, list[str]]":
        """Return a copy with only the routes whose servers are given, and the names of the other routes."""
        routes = {name: one for name, one in self.routes.items() if {one.small, one.large} <= {*servers}}
        return replace(self, routes=routes), [name for name in self.routes if name not in routes]

    def profiles_of(self, model: str) -> Collection[ModelProfile]:
        """Return the profiles of a model; empty if the model is unknown."""
        return self.models.get(model, {}).values()

    def spec(self) -> SystemSpec:
        """Return all items as one document, which cannot contain models without profiles."""
        lists: dict[str, Any] = {name: tuple(getattr(self, name).values()) for name in _NAMED}
        lists["models"] = tuple(self.section("models").values())
        return SystemSpec.model_construct(optimizer=self.optimizer, **lists)

    def with_loads_of(self, system: System) -> "Entities":
        """Return a copy with the planned rates of a system that has the same servers and routes.

        The rate of a shared queue is divided among its servers as before.
        """
        before, servers = self.planned, dict(self.servers)
        for name in servers.keys() - self.routed.keys():
            load = servers[name].current.load
            names = [one for one in planned_names(servers[name]) if one in system.servers]
            then, now = (
                sum(known[one].current.load.arrival_rate_rpm for one in names)
                for known in (before, system.servers)
            )
            if now != then:
                rate_rpm = load.arrival_rate_rpm * now / then if load.arrival_rate_rpm != then else now
                changed = load.model_copy(update={"arrival_rate_rpm": rate_rpm})
                servers[name] = servers[name].with_load(changed)
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

    @property
    def planned_by_role(self) -> Mapping[str, Server]:
        """Servers in planned form, with the prefill and decode pools that they can have."""
        return with_role_names(self.planned)

    def loose_system(self) -> System:
        """Return a system without cross-checks; only its references to classes must be defined."""
        named = {server.service_class for server in self.servers.values()} - self.service_classes.keys()
        classes = tuple(ServiceClass.model_construct(name=name, model_targets=()) for name in sorted(named))
        known = self.with_routes_of(self.servers)[0].spec()
        return compiled(known.model_copy(update={"service_classes": (*known.service_classes, *classes)}))

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
        name: plan.allocation_of(server) if plan.has_allocation_of(server) else kept_allocation(plan, server)
        for name, server in with_versions(servers).items()
    }


def kept_allocation(plan: Plan, server: Server) -> AllocationData:
    """Return the allocation that an unserved server retains; it can have no replicas."""
    current, every = server.current, by_server(plan.kept_replicas)
    if roles := plan.roles_of(server):
        found = {name: of_replicas(every.get(name, {})) for name in roles}
        return with_role_allocations(server, found, "current").current
    kept = every.get(planned_name(server), {})
    if any(pool.node for pool in current.pools) and kept == current.replicas:
        return current
    largest = max(kept, key=lambda on: (kept[on], on == current.accelerator), default=current.accelerator)
    if largest != current.accelerator:
        return AllocationData(accelerator=largest, num_replicas=kept[largest], load=current.load)
    if not current.num_replicas:
        return current
    allocation = resized(current, kept.get(largest, 0))
    pools = [pool for pool in current.stated_pools if pool.mode == "own" and kept.get(pool.accelerator)]
    more = tuple(_scaled_pool(pool, kept[pool.accelerator]) for pool in pools)
    return allocation.model_copy(update={"pools": more}) if len(more) > 1 else allocation


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
