"""The `System`: all documents joined, cross-checked and indexed by name. It is immutable.

Accelerators, profiles, classes and servers are sorted by name, so that results do not depend on the order of
the input.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any

from optimizer.arrays import grouped
from optimizer.documents import WRITTEN_BY_HAND, Document, UnlimitedCards
from optimizer.errors import SpecError
from optimizer.features.caches.streams import target_of_misses
from optimizer.features.disaggregation.streams import (
    RolePool,
    target_of_role,
    with_possible_roles,
    with_roles,
)
from optimizer.features.fields import SystemFeatureFields
from optimizer.features.length_pools.streams import (
    LengthPool,
    Partition,
    as_ordinary,
    target_of_pool,
    with_pools,
    with_possible_pools,
)
from optimizer.features.nodes.fields import NodeType
from optimizer.features.nodes.packing import NodePool, node_pools
from optimizer.features.offline.streams import with_deadline_of_load, with_load_of_deadline
from optimizer.features.places.streams import may_serve, network_ms
from optimizer.features.routes.feature import ROUTES
from optimizer.features.routes.streams import (
    routes_by_server,
    served_with,
    with_routed_loads,
)
from optimizer.features.shared_queues.feature import SHARED_QUEUES
from optimizer.features.shared_queues.streams import as_served, with_shared_queues
from optimizer.features.table import used_features
from optimizer.features.versions.streams import (
    Version,
    as_separate,
    target_key,
    target_of_version,
    with_versions,
)
from optimizer.kinds.kind import Kind
from optimizer.kinds.table import KINDS, kind_of_profile
from optimizer.schema import (
    Accelerator,
    Capacity,
    Load,
    ModelProfile,
    ModelTarget,
    OptimizerOptions,
    Route,
    Server,
    ServiceClass,
    SystemSpec,
)
from optimizer.schema.assumptions import (
    check_lengths,
    check_load,
    check_target,
    check_variability,
)
from optimizer.schema.classes import OFFLINE_PRIORITY
from optimizer.schema.faults import MAX_FAULTS, FaultyDocumentsError
from optimizer.schema.files import Part, read_parts, spec_from_value
from optimizer.schema.messages import did_you_mean, known_name, validated
from optimizer.schema.names import Index, located
from optimizer.schema.system import SECTION_OF, item_key
from optimizer.spec.arguments import check_field_names, check_path
from optimizer.spec.contradictions import findings
from optimizer.spec.currency import first_currency, prices_of_sections
from optimizer.spec.prices import option_problems
from optimizer.spec.streams import Stream, members_of, streams_of
from optimizer.spec.unsupported import refused_options

COMPILED = (
    "accelerators", "profiles", "service_classes", "targets", "servers", "capacity", "options", "routes",
    "nodes",
)  # fmt: skip
"""Fields of a system that follow from its documents."""


def _unordered(value: object) -> str:
    """Return a plain value as text that does not depend on the order of keys and lists."""
    if isinstance(value, dict):
        return json.dumps(sorted((key, _unordered(item)) for key, item in value.items()))
    return json.dumps(sorted(map(_unordered, value)) if isinstance(value, list) else value)


@dataclass(frozen=True)
class System:
    """A fleet to plan: accelerators, model profiles, servers, targets and options.

    A change of the fleet edits its documents, and the other fields follow from them again. There are three
    views of its servers: those of the documents (`documented`), those with replicas of their own (`servers`),
    and the loads that are served or not (`streams`).
    """

    spec: SystemSpec = field(compare=False, repr=False)
    """The documents as one, with sections sorted by name; the fields in `COMPILED` follow from them."""
    accelerators: Mapping[str, Accelerator]
    """Accelerators by name; like all other mappings, sorted by key."""
    profiles: Mapping[tuple[str, str], ModelProfile]
    """Profiles by model and accelerator."""
    service_classes: Mapping[str, ServiceClass]
    targets: Mapping[tuple[str, str], ModelTarget]
    """Targets by service class and model."""
    servers: Mapping[str, Server]
    """Servers in planned form, by name. A shared queue replaces its members, and each version of a split
    server is a server.
    """
    capacity: Mapping[str, int]
    """Number of cards by accelerator type; `UnlimitedCards` for a type without a limit."""
    options: OptimizerOptions
    rate_factors: Mapping[tuple[str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    """Usable fraction of a replica's maximum rate, by server and accelerator, if simulations showed that the
    maximum is too high; 0 means unusable. Not part of the documents.
    """
    kept: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    """Number of replicas that keep their cards in addition to the plan, by server and accelerator. Not part
    of the documents.
    """
    not_rented: tuple[str, ...] = ()
    """Servers for which the plan must not rent an external service. Not part of the documents."""
    partitions: Mapping[str, Partition] = field(default_factory=lambda: MappingProxyType({}))
    """Request shapes of each pool by length that a plan chose, by server. Not part of the documents."""
    has_all_pools: bool = False
    """Whether every possible pool by length is a planned server. Not part of the documents."""
    routes: Mapping[str, Route] = field(default_factory=lambda: MappingProxyType({}))
    """Routes by name; each server of a route has the largest load that the route can send it."""
    nodes: Mapping[str, NodeType] = field(default_factory=lambda: MappingProxyType({}))
    """Node types by name; `capacity` has no limit on the cards of their types."""
    compiled_fields: tuple[object, ...] = field(default=(), compare=False, repr=False)
    """Values of `COMPILED` as they followed from the documents; other ones answer a question."""

    @cached_property
    def documented(self) -> Mapping[str, Server]:
        """Servers of the documents, by name."""
        return {server.name: server for server in self.spec.servers}

    def with_items(self, *items: Document) -> "System":
        """Return the system whose documents have these items instead of those of the same name.

        The items are not checked. Everything but the documents is kept, such as `kept`.
        """
        changes: dict[str, object] = {}
        for section, changed in grouped((SECTION_OF[type(item)], item) for item in items).items():
            known = {item_key(item): item for item in (*getattr(self.spec, section), *changed)}
            changes[section] = tuple(known[key] for key in sorted(known))
        return self.with_spec(self.spec.model_copy(update=changes))

    def with_spec(self, spec: SystemSpec) -> "System":
        """Return the system of other documents, which are not checked, with the same data outside them.

        Raises:
            ValueError: a field that follows from the documents was replaced, so that its value would be lost.
        """
        for name, value in zip(COMPILED, self.compiled_fields, strict=True):
            if getattr(self, name) is not value:
                raise ValueError(
                    f"{name} of this system were replaced to answer a question, so its documents, from which "
                    "they would follow again, cannot be edited"
                )
        result = compiled(spec, self)
        result = replace(result, rate_factors=self.rate_factors, kept=self.kept, not_rented=self.not_rented)
        if self.has_all_pools:
            return result.with_all_pools()
        return result.partitioned(self.partitions) if self.partitions else result

    def with_planned(
        self, servers: Mapping[str, Server], routes: Mapping[str, Route] = MappingProxyType({})
    ) -> "System":
        """Return a copy in which some planned servers and routes are replaced, by name.

        Such a copy answers a question, for example which plan measured loads need. Its documents are those
        of the system, and cannot be changed.
        """
        if not servers and not routes:
            return self
        changed = MappingProxyType({**self.servers, **servers})
        if not self.routes:
            return replace(self, servers=changed)
        routes = MappingProxyType({**self.routes, **routes})
        return replace(self, routes=routes, servers=with_routed_loads(changed, routes.values()))

    def alone(self, servers: Mapping[str, Server], **options: object) -> "System":
        """Return a copy with other servers, none of which belongs to a route or to a split server.

        Args:
            servers: servers in planned form, by name.
            options: changed optimizer options, which are not checked.
        """
        changed = self.options.model_copy(update=options)
        return replace(self, servers=as_ordinary(as_separate(servers)), options=changed, routes={})

    @cached_property
    def features(self) -> frozenset[str]:
        """Names of the features that the system uses."""
        return used_features(self.servers.values(), self.accelerators.values(), self.sections)

    @property
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        """Items of the sections of features, by section and name."""
        return {section: getattr(self, section) for section in SystemFeatureFields.model_fields}

    @cached_property
    def node_pools(self) -> tuple[NodePool, ...]:
        """Nodes of each card type, sorted by type."""
        unlimited = self.options.unlimited
        return node_pools(self.nodes.values(), self.accelerators, self.profiles, unlimited=unlimited)

    @cached_property
    def streams(self) -> Mapping[str, Stream]:
        """Streams of requests that are served separately: queue members, versions, and all other servers."""
        return streams_of(self.servers, self.priority)

    @cached_property
    def routed(self) -> Mapping[str, Route]:
        """Routes by the names of the servers that get their load from them."""
        return routes_by_server(self.routes.values())

    @cached_property
    def in_plans(self) -> Mapping[str, Server]:
        """Servers by the names that plans use: planned servers, and the members of shared queues."""
        return {**self.servers, **{name: stream.server for name, stream in self.streams.items()}}

    @property
    def currency(self) -> str | None:
        """Currency of the prices; None if costs are plain numbers in cents/h."""
        more = [card.more_cents_per_h for card in self.capacity.values() if isinstance(card, UnlimitedCards)]
        budget = self.options.budget_cents_per_h
        others = more if budget is None else [*more, budget]
        others += [price for _, price in prices_of_sections(self.sections)]
        return first_currency(self.accelerators.values(), self.servers.values(), others)

    def with_options(self, **changes: object) -> "System":
        """Return a copy with changed optimizer options, by Python name.

        Raises:
            SpecError: an option does not exist or its value is out of range.
        """
        check_field_names(OptimizerOptions, changes, "optimizer.", "option")
        values = self.options.model_dump() | changes
        options = validated(OptimizerOptions, values, "optimizer.")
        profiled = {accelerator for _, accelerator in self.profiles}
        for key, text in (
            *option_problems(options, self.accelerators, profiled, self.nodes.values()),
            *refused_options(options, self.features),
        ):
            raise SpecError(f"optimizer.{key}: {text}")
        return self.with_spec(self.spec.model_copy(update={"optimizer": options}))

    def without_external(self) -> "System":
        """Return a copy in which no server rents an external service; `not_rented` lists those that could."""
        renting = {name: server for name, server in self.servers.items() if server.external is not None}
        if not renting:
            return self
        servers = {name: server.model_copy(update={"external": None}) for name, server in renting.items()}
        return replace(self.with_planned(servers), not_rented=(*self.not_rented, *renting))

    def partitioned(self, partitions: Mapping[str, Partition]) -> "System":
        """Return the system in which servers are replaced by their pools by length, also after changes.

        Args:
            partitions: shapes of each pool, by server.
        """
        servers = with_roles(with_pools(self.servers, partitions), partitions) if partitions else self.servers
        if servers is self.servers and partitions == self.partitions:
            return self
        return self.with_pool_servers(servers, partitions=partitions)

    def with_pool_servers(self, servers: Mapping[str, Server], **changes: Any) -> "System":
        """Return a copy whose planned servers have other pools by length; its documents can be changed."""
        fields = tuple(servers if value is self.servers else value for value in self.compiled_fields)
        return replace(self, servers=servers, compiled_fields=fields, **changes)

    def with_all_pools(self) -> "System":
        """Return the system in which every possible pool by length is a planned server."""
        servers = with_possible_roles(with_possible_pools(self.servers))
        return self if servers is self.servers else self.with_pool_servers(servers, has_all_pools=True)

    def served_with(self, names: Iterable[str]) -> list[str]:
        """Return the given servers plus those that can only be served in full together with one of them."""
        return served_with(self.routes.values(), names)

    def as_served(self, served_rpm: Mapping[str, Mapping[str, float]]) -> Mapping[str, Server]:
        """Return the servers with only that load of shared queues and routes that a plan serves.

        Args:
            served_rpm: served arrival rates [requests/min], by queue and member; a server of a route has its
                own name as both keys.
        """
        if not self.features & {SHARED_QUEUES.name, ROUTES.name}:
            return self.servers
        return as_served(self.servers, served_rpm)

    def with_load(self, server_name: str, **changes: float) -> "System":
        """Return a copy with a changed load of one server; fields have Python names (``arrival_rate_rpm``).

        The members of a shared queue change in proportion.

        Raises:
            SpecError: the server or a field does not exist, or a value is out of range.
        """
        known = {**self.in_plans, **self.documented}
        changed = known[known_name(server_name, known, f"servers.{server_name}: server")]
        if isinstance(changed, Version):
            text = f"its load is a share of the load of {changed.whole.name!r}; change that"
            raise SpecError(f"servers.{server_name}: {text}")
        route = self.routed.get(server_name)
        if route is not None:
            raise SpecError(
                f"servers.{server_name}.load: it is the load of route {route.name!r}; change the route"
            )
        server = with_changed_load(changed, changes)
        for part in members_of(server):
            for model in (part.model, *(share.model for share in part.split or ())):
                check_lengths(part.current.load, f"servers.{server_name}.load.", self.profiles_of(model))
                check_variability(part.current.load, f"servers.{server_name}.load.", self.profiles_of(model))
        return self.with_items(*members_of(server))

    def with_target(self, service_class: str, model: str, **changes: float | None) -> "System":
        """Return a copy with changed targets of a model in a class; fields have Python names (``ttft_ms``).

        Raises:
            SpecError: there is no such target, a field does not exist, or a value is out of range.
        """
        place = f"serviceClasses.{service_class}.modelTargets.{model}"
        if (service_class, model) not in self.targets:
            is_class = service_class in self.service_classes
            models = [name for group, name in self.targets if group == service_class]
            given, known = (model, models) if is_class else (service_class, [*self.service_classes])
            hint = did_you_mean(given, known)
            raise SpecError(f"{place}: class {service_class!r} has no target for {model!r}{hint}")
        check_field_names(ModelTarget, changes, f"{place}.")
        values = self.targets[service_class, model].model_dump() | changes
        target = validated(ModelTarget, values, f"{place}.")
        check_target(target, place, self.profiles_of(model))
        owner = self.service_classes[service_class]
        targets = tuple(target if item.model == model else item for item in owner.model_targets)
        return self.with_items(owner.model_copy(update={"model_targets": targets}))

    def with_capacity(self, units: Mapping[str, int]) -> "System":
        """Return a copy with other numbers of cards; prices of additional cards are kept.

        Args:
            units: number of cards by accelerator type.

        Raises:
            SpecError: an accelerator type does not exist or is in nodes, or a number is out of range.
        """
        known = {item.type: item for item in self.spec.count}
        types = sorted({*known, *(item.type for item in self.spec.accelerators)})
        changed = []
        for kind, number in units.items():
            known_name(kind, types, f"count.{kind}: accelerator type")
            nodes = [node.name for node in self.nodes.values() if node.type == kind]
            if nodes:
                text = f"its cards exist only in nodes; change maxNodes of {' or '.join(nodes)}"
                raise SpecError(f"count.{kind}: {text}")
            before = known.get(kind, Capacity(type=kind, count=0)).model_dump()
            changed.append(validated(Capacity, before | {"count": number}, f"count.{kind}."))
        return self.with_items(*changed)

    def with_rate_factors(self, factors: Mapping[tuple[str, str], float]) -> "System":
        """Return a copy with other factors on the maximum rates of replicas, by server and accelerator."""
        return replace(self, rate_factors=MappingProxyType(dict(sorted(factors.items()))))

    def with_kept(self, replicas: Mapping[tuple[str, str], int]) -> "System":
        """Return a copy with other kept replicas, by server and accelerator."""
        return replace(self, kept=MappingProxyType(dict(sorted(replicas.items()))))

    def card_limit(self, kind: str) -> int | None:
        """Return the number of cards of an accelerator type; None if it is unlimited."""
        cards = self.capacity.get(kind, 0)
        return None if self.options.unlimited or isinstance(cards, UnlimitedCards) else cards

    @cached_property
    def document_hash(self) -> str:
        """SHA-256 of the documents with the options, without answers of earlier plans (`desiredAlloc`)."""
        plain = self.spec.model_dump(
            mode="json", by_alias=True, exclude={"servers": {"__all__": {"desired"}}}
        )
        return f"sha256:{hashlib.sha256(_unordered(plain).encode()).hexdigest()}"

    def units_per_replica(self, server: str, accelerator: str) -> tuple[str, int]:
        """Return the accelerator type and the number of cards of a replica.

        The number is 0 if the accelerator is unknown.
        """
        known = self.accelerators.get(accelerator)
        if known is None:
            return "", 0
        profile = self.profiles.get((self.servers[server].model, accelerator))
        return known.type, known.multiplicity * (profile.acc_count if profile else 1)

    def may_serve(self, server: Server, accelerator: str) -> bool:
        """Return whether the places of a server and an accelerator allow its requests to run there."""
        return may_serve(server, self.accelerators[accelerator])

    def delay_ms(self, server: Server, accelerator: str) -> float:
        """Return the network latency between the places of a server and an accelerator [ms].

        Raises:
            SpecError: the latency between their places is missing.
        """
        return network_ms(self.options, server, self.accelerators[accelerator])

    @cached_property
    def _profiles_by_model(self) -> Mapping[str, Sequence[ModelProfile]]:
        return grouped((model, profile) for (model, _), profile in self.profiles.items())

    def profiles_of(self, model: str) -> Sequence[ModelProfile]:
        """Return the profiles of a model."""
        return self._profiles_by_model.get(model, ())

    def accelerators_of(self, server: Server) -> list[str]:
        """Return the accelerators that a server may use and for which its model has a profile."""
        allowed, known = server.accelerators, self.profiles_of(server.model)
        return [one.accelerator for one in known if allowed is None or one.accelerator in allowed]

    def model_kinds(self) -> dict[str, Kind]:
        """Return the kind of replica of each model that has a profile."""
        return {model: kind_of_profile(profile) for (model, _), profile in self.profiles.items()}

    def server_kinds(self) -> list[Kind]:
        """Return the kind of replica of each server: that of its model, or else the default."""
        kinds = self.model_kinds()
        return [kinds.get(server.model, KINDS[0]) for server in self.servers.values()]

    def priority(self, server: Server) -> int:
        """Return the priority of a server: that of its class; offline work ranks after all classes."""
        if server.deadline is not None:
            return OFFLINE_PRIORITY
        return self.service_classes[server.service_class].priority

    def target_of(self, server: Server) -> ModelTarget | None:
        """Return the targets of a server; None if its class has none for its model.

        The targets apply to the requests that reach its replicas. Offline work has only its deadline as a
        target, whatever its class states.
        """
        if server.deadline is not None:
            return ModelTarget(model=server.model)
        target = self.targets.get(self.target_key(server))
        if target is None:
            return None
        if target.shapes:
            target = target.of_shapes([shape.name for shape in server.current.load.shapes if shape.share])
        if isinstance(server, Version):
            target = target_of_version(target, server)
        if isinstance(server, LengthPool):
            target = target_of_pool(target, server)
        if isinstance(server, RolePool):
            target = target_of_role(target, server)
        return target_of_misses(target, server.cache_hit_rate) if server.cache_hit_rate else target

    def target_key(self, server: Server) -> tuple[str, str]:
        """Return the service class and the model whose targets apply to a server."""
        if isinstance(server, Version):
            return target_key(server, self.targets)
        return server.service_class, server.model

    def to_spec(self) -> SystemSpec:
        """Return the system as one document, with sections sorted by name."""
        return self.spec


def load_system(source: str | os.PathLike[str] | Mapping[str, Any]) -> System:
    """Read a system from a file, a directory, ``-`` (standard input) or a document in memory.

    Raises:
        SpecError: a document cannot be read, breaks the schema, or contradicts another.
    """
    if isinstance(source, Mapping):
        return join_parts([Part(spec_from_value(source, context=WRITTEN_BY_HAND))])
    check_path(source, "load_system")
    return join_parts(read_parts(source))


def join_parts(parts: Sequence[Part], *, lengths_optional: bool = False) -> System:
    """Join documents to one cross-checked system; a system without servers has an empty plan.

    Args:
        parts: the documents.
        lengths_optional: whether an unstated input or output length is 0, as in the reference, instead of a
            fault; without output, a server is idle.

    Raises:
        FaultyDocumentsError: documents contradict each other; the message has the first contradiction.
    """
    _check(parts, lengths_optional=lengths_optional)
    sections = {name: [item for part in parts for item in getattr(part.spec, name)] for name in _SECTIONS}
    lists: dict[str, Any] = {name: tuple(sorted(items, key=item_key)) for name, items in sections.items()}
    given = [part.spec.optimizer for part in parts if "optimizer" in part.spec.model_fields_set]
    options = given[0] if given else OptimizerOptions()
    return compiled(SystemSpec.model_construct(optimizer=options, **lists))


def with_checked_spec(system: System, spec: SystemSpec) -> System:
    """Return the system of changed documents, whose changed items are checked.

    Raises:
        FaultyDocumentsError: a changed item contradicts another item.
    """
    _check([Part(spec)], lengths_optional=True, checked=system.spec)
    return system.with_spec(spec)


def _check(parts: Sequence[Part], *, lengths_optional: bool, checked: SystemSpec | None = None) -> None:
    result = findings(parts, Index.of(parts), lengths_optional=lengths_optional, checked=checked)
    problems = list(islice(result, MAX_FAULTS + 1))
    if problems:
        raise FaultyDocumentsError(located(problems[:MAX_FAULTS]), others=max(0, len(problems) - MAX_FAULTS))


def compiled(spec: SystemSpec, before: System | None = None) -> System:
    """Return the system of joined documents, which are not checked.

    Args:
        spec: the documents.
        before: a system of the same documents with some items changed, whose planned servers stay if theirs
            did not change.
    """
    classes = _by_key(spec.service_classes)
    targets = {
        (name, target.model): target for name, item in classes.items() for target in item.model_targets
    }
    if before is not None and all(
        getattr(spec, section) is getattr(before.spec, section) for section in _OF_PLANNED_SERVERS
    ):
        servers, routes = before.servers, before.routes
    else:
        servers, routes = planned_servers(_by_key(spec.servers), classes), _by_key(spec.routes)
        servers = with_routed_loads(servers, spec.routes)
    system = System(
        spec=spec,
        accelerators=_by_key(spec.accelerators),
        profiles=_by_key(spec.models),
        service_classes=classes,
        targets=MappingProxyType({key: targets[key] for key in sorted(targets)}),
        servers=servers,
        capacity=_capacity(spec),
        options=spec.optimizer,
        routes=routes,
        nodes=_by_key(spec.nodes),
    )
    return replace(system, compiled_fields=tuple(getattr(system, name) for name in COMPILED))


_SECTIONS = tuple(name for name in SystemSpec.model_fields if name != "optimizer")
_OF_PLANNED_SERVERS = ("servers", "service_classes", "routes")
"""Sections on which the planned servers depend."""


def _capacity(spec: SystemSpec) -> Mapping[str, int]:
    """Return the number of cards by type, sorted by type; nodes limit the cards of their types."""
    cards = {item.type: item.cards for item in spec.count} | dict.fromkeys(
        (node.type for node in spec.nodes), UnlimitedCards()
    )
    return MappingProxyType({kind: cards[kind] for kind in sorted(cards)})


def _by_key(items: Iterable[Any]) -> Mapping[Any, Any]:
    return MappingProxyType({item_key(item): item for item in items})


def planned_servers(
    servers: Mapping[str, Server], classes: Mapping[str, ServiceClass]
) -> Mapping[str, Server]:
    """Convert the servers of documents to planned servers, by name: with versions and shared queues."""
    if any(server.deadline is not None for server in servers.values()):
        servers = MappingProxyType({name: with_load_of_deadline(one) for name, one in servers.items()})
    if any(server.split for server in servers.values()):
        servers = with_versions(servers)
    if any(server.shared_queue is not None for server in servers.values()):
        servers = with_shared_queues(servers, lambda server: classes[server.service_class].priority)
    return servers


def with_changed_load(server: Server, changes: Mapping[str, Any], place: str = "") -> Server:
    """Return a copy of a server with changed load fields.

    Args:
        changes: new values by Python name (``arrival_rate_rpm``).
        place: prefix of messages; by default, the path of the load.

    Raises:
        SpecError: a field does not exist, or a value is out of range.
    """
    prefix = place or f"servers.{server.name}.load."
    check_field_names(Load, changes, prefix)
    load = validated(Load, {**server.current.load.model_dump(exclude_unset=True), **changes}, prefix)
    check_load(load, prefix)
    changed = server.with_load(load)
    return with_deadline_of_load(changed) if "arrival_rate_rpm" in changes else changed


def joined_document(parts: Sequence[Part]) -> dict[str, Any]:
    """Return several documents joined to one, as plain values by wire name, without defaults."""
    joined: dict[str, Any] = {}
    for part in parts:
        for section, value in part.spec.model_dump(mode="json", by_alias=True, exclude_unset=True).items():
            joined[section] = joined[section] + value if section in joined else value
    return joined
