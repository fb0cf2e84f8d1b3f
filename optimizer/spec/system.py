"""The `System`: all documents joined, cross-checked and indexed by name. It is immutable.

Accelerators, profiles, classes and servers are sorted by name, so that results do not depend on the order of
the input.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from optimizer.arrays import grouped
from optimizer.documents import WRITTEN_BY_HAND, UnlimitedCards
from optimizer.errors import SpecError
from optimizer.features.caches.streams import target_of_misses
from optimizer.features.offline.feature import OFFLINE
from optimizer.features.offline.streams import offline_faults, with_deadline_of_load, with_load_of_deadline
from optimizer.features.places.streams import may_serve, network_ms
from optimizer.features.routes.feature import ROUTES
from optimizer.features.routes.streams import (
    largest_shares,
    routes_by_server,
    undivided_servers,
    with_partners,
    with_routed_loads,
    with_undivided_lengths,
    without_routed_loads,
)
from optimizer.features.shared_queues.feature import SHARED_QUEUES
from optimizer.features.shared_queues.streams import as_served, planned_servers, with_shared_queues
from optimizer.features.table import FEATURES, used_features
from optimizer.features.versions.feature import VERSIONS
from optimizer.features.versions.streams import (
    Version,
    as_separate,
    target_key,
    target_of_version,
    whole_servers,
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
    check_profile,
    check_server,
    check_target,
    check_variability,
)
from optimizer.schema.classes import OFFLINE_PRIORITY
from optimizer.schema.current_pools import pool_problems, undefined_accelerators
from optimizer.schema.faults import MAX_FAULTS, Fault, FaultyDocumentsError
from optimizer.schema.files import Part, read_parts, spec_from_value
from optimizer.schema.messages import did_you_mean, known_name, validated
from optimizer.schema.names import Entry, Finding, Index, Names, located
from optimizer.schema.positions import Location
from optimizer.spec.arguments import check_field_names, check_path
from optimizer.spec.currency import currency_problems, first_currency
from optimizer.spec.feature import Documents
from optimizer.spec.prices import option_problems, price_problems
from optimizer.spec.streams import Stream, members_of, owner_of, streams_of
from optimizer.spec.unsupported import refused_options, refused_problems


@dataclass(frozen=True)
class System:
    """A fleet to plan: accelerators, model profiles, servers, targets and options."""

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
    routes: Mapping[str, Route] = field(default_factory=lambda: MappingProxyType({}))
    """Routes by name; each server of a route has the largest load that the route can send it."""

    @property
    def stated(self) -> Mapping[str, Server]:
        """Servers as named in documents, by name; the versions of a server are not separate."""
        return whole_servers({name: stream.server for name, stream in self.streams.items()})

    @property
    def wholes(self) -> Mapping[str, Server]:
        """Servers in planned form, by name, but with the versions of a server combined into one."""
        return whole_servers(self.servers)

    def alone(self, servers: Mapping[str, Server], **options: object) -> "System":
        """Return a copy with other servers, none of which belongs to a route or to a split server.

        Args:
            servers: servers in planned form, by name.
            options: changed optimizer options, which are not checked.
        """
        changed = self.options.model_copy(update=options)
        return replace(self, servers=as_separate(servers), options=changed, routes={})

    @cached_property
    def features(self) -> frozenset[str]:
        """Names of the features that the system uses."""
        return used_features(self.servers.values(), self.accelerators.values(), self.routes)

    @cached_property
    def streams(self) -> Mapping[str, Stream]:
        """Streams of requests that are served separately: queue members, versions, and all other servers."""
        return streams_of(self.servers, self.priority)

    @cached_property
    def routed(self) -> Mapping[str, Route]:
        """Routes by the names of the servers that get their load from them."""
        return routes_by_server(self.routes.values())

    @cached_property
    def owners(self) -> tuple[Server | Route, ...]:
        """Planned servers and routes with their own load: first servers, then routes, each sorted by name."""
        servers = (server for name, server in self.servers.items() if name not in self.routed)
        return (*servers, *self.routes.values())

    @property
    def named(self) -> Mapping[str, Server]:
        """All servers that a what-if question can name, in planned form and as in documents, by name."""
        streams = {name: stream.server for name, stream in self.streams.items()}
        return {**self.servers, **streams, **whole_servers(streams)}

    @property
    def currency(self) -> str | None:
        """Currency of the prices; None if costs are plain numbers in cents/h."""
        more = [card.more_cents_per_h for card in self.capacity.values() if isinstance(card, UnlimitedCards)]
        budget = self.options.budget_cents_per_h
        others = more if budget is None else [*more, budget]
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
            *option_problems(options, self.accelerators, profiled),
            *refused_options(options, self.features),
        ):
            raise SpecError(f"optimizer.{key}: {text}")
        return replace(self, options=options)

    def without_external(self) -> "System":
        """Return a copy in which no server rents an external service; `not_rented` lists those that could."""
        renting = {name: server for name, server in self.servers.items() if server.external is not None}
        if not renting:
            return self
        servers = {name: server.model_copy(update={"external": None}) for name, server in renting.items()}
        changed = replace(self, servers=MappingProxyType({**self.servers, **servers}))
        return replace(changed, not_rented=(*self.not_rented, *renting))

    def with_servers(self, changed: Mapping[str, Server]) -> "System":
        """Return a copy in which some servers, given by name, are replaced.

        Raises:
            SpecError: a server does not exist.
        """
        known = self.named
        for name in changed:
            known_name(name, known, f"servers.{name}: server")
        for name, server in with_versions(changed).items():
            for part in members_of(server):
                check_variability(part.current.load, f"servers.{name}.load.", self.profiles_of(part.model))
        found = replace(self, servers=MappingProxyType({**self.servers, **self.planned(changed)}))
        return found.with_routes({}) if self.routes else found

    def with_routes(self, changed: Mapping[str, Route]) -> "System":
        """Return a copy in which some routes, given by name, are replaced.

        Loads of servers change with them.
        """
        routes = MappingProxyType({**self.routes, **changed})
        servers = with_routed_loads(self.servers, routes.values())
        return replace(self, routes=routes, servers=servers)

    def owner_name(self, name: str) -> str:
        """Return the name under which a planned server's load is stated: that of its route, or its own."""
        route = self.routed.get(name)
        return owner_of(self.named[name]) if route is None else route.name

    @property
    def load_names(self) -> list[str]:
        """Names of the servers and routes for which loads can be stated."""
        return [*self.stated, *self.routes]

    def owner_named(self, name: str) -> Server | Route:
        """Return the server or the route for which a load of this name is stated.

        Raises:
            SpecError: there is neither, there are both, or the server gets its load from a route.
        """
        server, route, owner = self.stated.get(name), self.routes.get(name), self.routed.get(name)
        if server is not None and owner is None and route is not None:
            raise SpecError(f"{name!r} is the name of a server and of a route; rename one of them")
        if server is not None and owner is not None and route is None:
            text = f"server {name!r} gets its load from route {owner.name!r}; give the load of that route"
            raise SpecError(text)
        found = route or server
        if found is None:
            raise SpecError(
                f"server {name!r} does not exist in the system{did_you_mean(name, self.load_names)}"
            )
        return found

    def with_owners(self, owners: Iterable[Server | Route]) -> "System":
        """Return a copy in which some owners of loads are replaced.

        Args:
            owners: servers, in planned form or as in documents, and routes.

        Raises:
            SpecError: a server does not exist.
        """
        found = tuple(owners)
        changed = self.with_servers({item.name: item for item in found if isinstance(item, Server)})
        return changed.with_routes({item.name: item for item in found if isinstance(item, Route)})

    def together(self, names: Iterable[str]) -> list[str]:
        """Return the given servers plus those that can only be served in full together with one of them."""
        return with_partners(self.routes.values(), names)

    def shares_of(self, route: Route) -> dict[str, float]:
        """Return the planned load of each server of a route, divided by the rate of the route."""
        return largest_shares(route)

    def undivided(self, names: Iterable[str]) -> "System":
        """Return a copy in which the large servers of given routes have the token lengths of all requests."""
        routes = [self.routes[name] for name in names if name in self.routes]
        servers = {**self.servers, **undivided_servers(self.servers, routes)}
        return replace(self, servers=MappingProxyType(servers)) if routes else self

    def as_served(self, served_rpm: Mapping[str, Mapping[str, float]]) -> Mapping[str, Server]:
        """Return the servers with only that load of shared queues and routes that a plan serves.

        Args:
            served_rpm: served arrival rates [requests/min], by queue and member; a server of a route has its
                own name as both keys.
        """
        if not self.features & {SHARED_QUEUES.name, ROUTES.name}:
            return self.servers
        return with_undivided_lengths(as_served(self.servers, served_rpm), self.routes.values())

    def planned(self, changed: Mapping[str, Server]) -> dict[str, Server]:
        """Convert changed servers of documents to planned form, with queues and versions."""
        return planned_servers(self.servers, with_versions(changed))

    def with_load(self, server_name: str, **changes: float) -> "System":
        """Return a copy with a changed load of one server; fields have Python names (``arrival_rate_rpm``).

        Raises:
            SpecError: the server or a field does not exist, or a value is out of range.
        """
        known = self.named
        known_name(server_name, known, f"servers.{server_name}: server")
        found = known[server_name]
        if isinstance(found, Version):
            text = f"its load is a share of the load of {found.whole.name!r}; change that"
            raise SpecError(f"servers.{server_name}: {text}")
        route = self.routed.get(server_name)
        if route is not None:
            raise SpecError(
                f"servers.{server_name}.load: it is the load of route {route.name!r}; change the route"
            )
        server = with_changed_load(found, changes)
        check_lengths(server.current.load, f"servers.{server_name}.load.", self.profiles_of(server.model))
        return self.with_servers({server_name: server})

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
        changed = owner.model_copy(update={"model_targets": targets})
        return replace(
            self,
            targets=MappingProxyType({**self.targets, (service_class, model): target}),
            service_classes=MappingProxyType({**self.service_classes, service_class: changed}),
        )

    def with_capacity(self, units: Mapping[str, int]) -> "System":
        """Return a copy with other numbers of cards; prices of additional cards are kept.

        Args:
            units: number of cards by accelerator type.

        Raises:
            SpecError: an accelerator type does not exist, or a number of cards is out of range.
        """
        capacity = dict(self.capacity)
        known = sorted({*capacity, *(item.type for item in self.accelerators.values())})
        for kind, number in units.items():
            known_name(kind, known, f"count.{kind}: accelerator type")
            before = Capacity.of(kind, capacity.get(kind, 0)).model_dump()
            capacity[kind] = validated(Capacity, before | {"count": number}, f"count.{kind}.").cards
        return replace(self, capacity=MappingProxyType({kind: capacity[kind] for kind in sorted(capacity)}))

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

    def units_per_replica(self, server: str, accelerator: str) -> tuple[str, int]:
        """Return the accelerator type and the number of cards of a replica.

        The number is 0 if the accelerator is unknown.
        """
        found = self.accelerators.get(accelerator)
        if found is None:
            return "", 0
        profile = self.profiles.get((self.servers[server].model, accelerator))
        return found.type, found.multiplicity * (profile.acc_count if profile else 1)

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
        if isinstance(server, Version):
            target = target_of_version(target, server)
        return target_of_misses(target, server.cache_hit_rate) if server.cache_hit_rate else target

    def target_key(self, server: Server) -> tuple[str, str]:
        """Return the service class and the model whose targets apply to a server."""
        if isinstance(server, Version):
            return target_key(server, self.targets)
        return server.service_class, server.model

    def to_spec(self) -> SystemSpec:
        """Return the system as one document, with sections sorted by name."""
        return SystemSpec.model_construct(  # its items are valid
            accelerators=tuple(self.accelerators.values()),
            models=tuple(self.profiles.values()),
            service_classes=tuple(self.service_classes.values()),
            servers=tuple(without_routed_loads(self.stated, self.routes.values()).values()),
            count=tuple(Capacity.of(kind, cards) for kind, cards in self.capacity.items()),
            optimizer=self.options,
            routes=tuple(self.routes.values()),
        )


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
    index = Index.of(parts)
    found = _findings(parts, index, lengths_optional=lengths_optional)
    problems = list(islice(found, MAX_FAULTS + 1))
    if problems:
        raise FaultyDocumentsError(located(problems[:MAX_FAULTS]), others=max(0, len(problems) - MAX_FAULTS))

    def values(section: Mapping[Any, Entry]) -> Mapping[Any, Any]:
        return MappingProxyType({name: section[name].item for name in sorted(section)})

    targets = {
        (name, target.model): target
        for name, entry in index.classes.items()
        for target in entry.item.model_targets
    }
    given = [part.spec.optimizer for part in parts if "optimizer" in part.spec.model_fields_set]
    classes = values(index.classes)
    system = System(
        accelerators=values(index.accelerators),
        profiles=values(index.profiles),
        service_classes=classes,
        targets=MappingProxyType({key: targets[key] for key in sorted(targets)}),
        servers=_planned_servers(values(index.servers), _features(index), classes),
        capacity=MappingProxyType({kind: index.capacity[kind].item.cards for kind in sorted(index.capacity)}),
        options=given[0] if given else OptimizerOptions(),
    )
    return system.with_routes(values(index.routes)) if index.routes else system


def _features(index: Index) -> frozenset[str]:
    """Return the names of the features that documents use."""
    servers = (entry.item for entry in index.servers.values())
    return used_features(servers, (entry.item for entry in index.accelerators.values()), index.routes)


def _planned_servers(
    servers: Mapping[str, Server], features: frozenset[str], classes: Mapping[str, ServiceClass]
) -> Mapping[str, Server]:
    """Convert the servers of documents to planned form, by name."""
    if OFFLINE.name in features:
        servers = MappingProxyType({name: with_load_of_deadline(one) for name, one in servers.items()})
    if VERSIONS.name in features:
        servers = with_versions(servers)
    if SHARED_QUEUES.name in features:
        servers = with_shared_queues(servers, lambda server: classes[server.service_class].priority)
    return servers


def contradictions(parts: Sequence[Part], incomplete: Collection[str]) -> list[Fault]:
    """Return the contradictions in documents, with their locations.

    Args:
        parts: the valid parts of the documents.
        incomplete: sections with missing items, which undefined names might refer to.
    """
    index = Index.of(parts)
    return located(list(islice(_findings(parts, index, incomplete), MAX_FAULTS)))


def _findings(
    parts: Sequence[Part],
    index: Index,
    incomplete: Collection[str] = (),
    *,
    lengths_optional: bool = False,
) -> Iterator[Finding]:
    """Yield the contradictions within documents and between them."""
    used = _features(index)
    profiles: dict[str, list[ModelProfile]] = defaultdict(list)
    for (model, _), (part, at, profile) in index.profiles.items():
        if at not in part.repaired:  # the kind of a repaired item is unknown, so its fields cannot be checked
            profiles[model].append(profile)
    names = {
        "accelerators": Names("accelerator", index.accelerators, "accelerators" in incomplete),
        "classes": Names("service class", index.classes, "serviceClasses" in incomplete),
        "models": Names("model", {model for model, _ in index.profiles}, "models" in incomplete),
        "servers": Names("server", index.servers, "servers" in incomplete),
    }
    documents = Documents(parts, index, profiles, names, lengths_optional)
    if used:
        yield from refused_problems(documents, used)
    yield from _contradictions(documents)
    for feature in FEATURES:
        if feature.name in used:
            yield from feature.faults(documents)
    yield from price_problems(parts, index)


def _contradictions(documents: Documents) -> Iterator[Finding]:
    """Yield the contradictions between names, and those within items."""
    index, by_model, names = documents.index, documents.profiles, documents.names
    yield from index.twice
    yield from currency_problems(index, documents.parts)
    for part, at, service_class in index.classes.values():
        models: set[str] = set()
        for i, target in enumerate(service_class.model_targets):
            here = (*at, "modelTargets", i)
            if target.model in models:
                text = f"{target.model!r} occurs twice in class {service_class.name!r}"
                yield Finding(part, (*here, "model"), text)
            models.add(target.model)
            yield from _caught(
                part, here, partial(check_target, profiles=by_model.get(target.model, ())), target
            )
    for part, at, profile in index.profiles.values():
        yield from names["accelerators"].missing(part, (*at, "acc"), profile.accelerator)
        yield from _caught(part, at, check_profile, profile)
    for entry in index.servers.values():
        profiles = by_model.get(entry.item.model, ())
        yield from _server_problems(entry, profiles, names)
        yield from _load_problems(entry, profiles, lengths_optional=documents.lengths_optional)


def _caught(part: Part, at: Location, check: Callable[[Any, str], None], item: object) -> Iterator[Finding]:
    """Yield the error of a check, if any, as a finding.

    Args:
        part: the document.
        at: location of the item.
        check: function that checks an item, given the prefix of its messages.
        item: the item.
    """
    try:
        check(item, "")
    except SpecError as error:
        path, _, text = str(error).partition(": ")
        yield Finding(part, (*at, *path.strip(".").split(".")) if path.strip(".") else at, text)


def _server_problems(
    entry: Entry, profiles: Sequence[ModelProfile], names: Mapping[str, Names]
) -> Iterator[Finding]:
    part, at, server = entry
    accelerators = names["accelerators"]
    default = "" if "service_class" in server.model_fields_set else " (the default)"
    yield from names["classes"].missing(part, (*at, "class"), server.service_class, default)
    yield from names["models"].missing(part, (*at, "model"), server.model)
    for i, name in enumerate(server.accelerators or ()):
        yield from accelerators.missing(part, (*at, "accelerators", i), name)
    for i, name in enumerate(server.preferred or ()):
        yield from accelerators.missing(part, (*at, "preferred", i), name)
    yield from _caught(part, at, lambda item, place: check_server(item, f"{place}.", profiles), server)
    current, free = (*at, "currentAlloc"), not server.keep_accelerator
    yield from pool_problems(part, current, server.current)
    yield from undefined_accelerators(part, current, server.current, accelerators, unless_priced=free)


def _load_problems(
    entry: Entry, profiles: Sequence[ModelProfile], *, lengths_optional: bool
) -> Iterator[Finding]:
    part, at, server = entry
    if server.deadline is not None:
        if any(offline_faults(server)):
            return
        server = with_load_of_deadline(server)
    here, load = (*at, "currentAlloc", "load"), server.current.load
    yield from _caught(part, here, lambda item, place: check_load(item, f"{place}."), load)
    yield from _caught(part, here, lambda item, place: check_variability(item, f"{place}.", profiles), load)
    if not lengths_optional:
        yield from _caught(part, here, lambda item, place: check_lengths(item, f"{place}.", profiles), load)


def with_changed_load(server: Server, changes: Mapping[str, float], place: str = "") -> Server:
    """Return a copy of a server with changed load fields.

    Args:
        server: the server.
        changes: new values by Python name (``arrival_rate_rpm``).
        place: prefix of messages; by default, the path of the load.

    Raises:
        SpecError: a field does not exist, or a value is out of range.
    """
    prefix = place or f"servers.{server.name}.load."
    check_field_names(Load, changes, prefix)
    load = validated(Load, {**server.current.load.model_dump(exclude_unset=True), **changes}, prefix)
    check_load(load, prefix)
    return with_deadline_of_load(server.with_load(load))


def joined_document(parts: Sequence[Part]) -> dict[str, Any]:
    """Return several documents joined to one, as plain values by wire name, without defaults."""
    joined: dict[str, Any] = {}
    for part in parts:
        for section, value in part.spec.model_dump(mode="json", by_alias=True, exclude_unset=True).items():
            joined[section] = joined[section] + value if section in joined else value
    return joined
