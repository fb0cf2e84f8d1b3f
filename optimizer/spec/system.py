"""The system: documents joined, cross-checked and indexed by name, immutable from here on.

Whatever the order of the input, accelerators, profiles, classes and servers are in the order of their
names; this is what makes every later answer independent of it.
"""

import difflib
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from optimizer.errors import SpecError
from optimizer.spec.assumptions import check_load, check_profile, check_target, check_variability
from optimizer.spec.currency import check_one_currency, first_currency
from optimizer.spec.files import Part, read_parts, spec_from_value
from optimizer.spec.messages import validated
from optimizer.spec.schema import (
    Accelerator,
    Capacity,
    Load,
    ModelProfile,
    ModelTarget,
    OptimizerOptions,
    Server,
    ServiceClass,
    SystemSpec,
)


@dataclass(frozen=True, slots=True)
class System:
    """A fleet to be planned: what can be bought, what runs on it, its targets, and how to choose."""

    accelerators: Mapping[str, Accelerator]
    """By name, in the order of the names (as are all of these)."""
    profiles: Mapping[tuple[str, str], ModelProfile]
    """By model and accelerator."""
    service_classes: Mapping[str, ServiceClass]
    targets: Mapping[tuple[str, str], ModelTarget]
    """By service class and model."""
    servers: Mapping[str, Server]
    capacity: Mapping[str, int]
    """Units by accelerator type."""
    options: OptimizerOptions

    @property
    def currency(self) -> str | None:
        """The currency that a price names; none where costs are plain numbers [cents/h]."""
        return first_currency(self.accelerators.values(), self.servers.values())

    def with_options(self, **changes: object) -> "System":
        """Return a copy with some optimizer options changed, given by their Python names.

        Raises:
            SpecError: an option does not exist or its value is out of range.
        """
        unknown = [name for name in changes if name not in OptimizerOptions.model_fields]
        if unknown:
            raise SpecError(f"optimizer.{unknown[0]}: unknown option")
        values = self.options.model_dump() | changes
        return replace(self, options=validated(OptimizerOptions, values, "optimizer."))

    def with_servers(self, changed: Mapping[str, Server]) -> "System":
        """Return a copy in which some servers, by name, are replaced.

        Raises:
            SpecError: a server does not exist.
        """
        for name, server in changed.items():
            _must_exist(name, self.servers, f"servers.{name}", "server")
            check_variability(server.current.load, f"servers.{name}.load.", self.profiles_of(server.model))
        return replace(self, servers=MappingProxyType({**self.servers, **changed}))

    def with_load(self, server_name: str, **changes: float) -> "System":
        """Return a copy with another load of one server, given by the Python names (``arrival_rate_rpm``).

        Raises:
            SpecError: the server or a field does not exist, or a value is out of range.
        """
        _must_exist(server_name, self.servers, f"servers.{server_name}", "server")
        return self.with_servers({server_name: with_changed_load(self.servers[server_name], **changes)})

    def with_target(self, service_class: str, model: str, **changes: float) -> "System":
        """Return a copy with another target of a model in a class, given by the Python names (``ttft_ms``).

        Raises:
            SpecError: there is no such target, a field does not exist, or a value is out of range.
        """
        place = f"serviceClasses.{service_class}.modelTargets.{model}"
        if (service_class, model) not in self.targets:
            raise SpecError(f"{place}: class {service_class!r} has no target for {model!r}")
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
        """Return a copy with other capacities of some accelerator types.

        Raises:
            SpecError: a number of units is out of range.
        """
        changed = {
            kind: validated(Capacity, {"type": kind, "count": count}, f"count.{kind}.").count
            for kind, count in units.items()
        }
        capacity = {**self.capacity, **changed}
        return replace(self, capacity=MappingProxyType({kind: capacity[kind] for kind in sorted(capacity)}))

    def profiles_of(self, model: str) -> list[ModelProfile]:
        """Return the profiles of a model."""
        return [profile for (name, _), profile in self.profiles.items() if name == model]

    def priority(self, server: Server) -> int:
        """Return the priority of a server, that of its class."""
        return self.service_classes[server.service_class].priority

    def to_spec(self) -> SystemSpec:
        """Return the system as one document, sections in the order of the names."""
        return SystemSpec(
            accelerators=tuple(self.accelerators.values()),
            models=tuple(self.profiles.values()),
            service_classes=tuple(self.service_classes.values()),
            servers=tuple(self.servers.values()),
            count=tuple(Capacity(type=kind, count=units) for kind, units in self.capacity.items()),
            optimizer=self.options,
        )


def load_system(source: str | os.PathLike[str] | Mapping[str, Any]) -> System:
    """Read a system from a file, a directory, ``-`` (standard input) or a document in memory.

    Raises:
        SpecError: a document cannot be read, breaks the schema, or contradicts another.
    """
    parts = [Part(spec_from_value(source))] if isinstance(source, Mapping) else read_parts(source)
    return join_parts(parts)


def join_parts(parts: Sequence[Part]) -> System:
    """Join documents into one cross-checked system; one without servers is a system with an empty plan.

    Raises:
        SpecError: a name occurs twice, or refers to nothing; the text has the path of the offender.
    """
    accelerators = _indexed(parts, "accelerators", lambda item: item.name)
    profiles = _indexed(parts, "models", lambda item: (item.name, item.accelerator))
    classes = _indexed(parts, "serviceClasses", lambda item: item.name)
    servers = _indexed(parts, "servers", lambda item: item.name)
    capacity = _indexed(parts, "count", lambda item: item.type)
    targets: dict[tuple[str, str], ModelTarget] = {}
    by_model: dict[str, list[ModelProfile]] = defaultdict(list)
    for place, profile in profiles.values():
        _must_exist(profile.accelerator, accelerators, f"{place}.acc", "accelerator")
        check_profile(profile, place)
        by_model[profile.name].append(profile)
    for place, service_class in classes.values():
        for i, target in enumerate(service_class.model_targets):
            here = f"{place}.modelTargets[{i}]"
            if (service_class.name, target.model) in targets:
                raise SpecError(
                    f"{here}.model: {target.model!r} occurs twice in class {service_class.name!r}"
                )
            check_target(target, here, by_model.get(target.model, ()))
            targets[service_class.name, target.model] = target
    check_one_currency(parts)
    for place, server in servers.values():
        _check_server(server, place, accelerators, classes, by_model)

    def values(index: Mapping[Any, tuple[str, Any]]) -> Mapping[Any, Any]:
        return MappingProxyType({name: index[name][1] for name in sorted(index)})

    return System(
        accelerators=values(accelerators),
        profiles=values(profiles),
        service_classes=values(classes),
        targets=MappingProxyType({key: targets[key] for key in sorted(targets)}),
        servers=values(servers),
        capacity=MappingProxyType({kind: capacity[kind][1].count for kind in sorted(capacity)}),
        options=_options(parts),
    )


def _indexed(parts: Sequence[Part], section: str, key: Callable[[Any], Any]) -> dict[Any, tuple[str, Any]]:
    """Return the items of a section by name, each with its place; a name that occurs twice is an error."""
    index: dict[Any, tuple[str, Any]] = {}
    field = {"serviceClasses": "service_classes"}.get(section, section)
    for part in parts:
        for i, item in enumerate(getattr(part.spec, field)):
            place, name = part.place(f"{section}[{i}]"), key(item)
            if name in index:
                shown = " on ".join(map(repr, name)) if isinstance(name, tuple) else repr(name)
                raise SpecError(f"{place}: {shown} occurs twice; it is also at {index[name][0]}")
            index[name] = (place, item)
    return index


def _options(parts: Sequence[Part]) -> OptimizerOptions:
    given = [part for part in parts if "optimizer" in part.spec.model_fields_set]
    if len(given) > 1:
        raise SpecError(given[1].place(f"optimizer: the section is also in {given[0].source}; keep one"))
    return given[0].spec.optimizer if given else OptimizerOptions()


def _check_server(
    server: Server,
    place: str,
    accelerators: Mapping[str, object],
    classes: Mapping[str, object],
    models: Mapping[str, Iterable[ModelProfile]],
) -> None:
    default = "" if "service_class" in server.model_fields_set else " (the default)"
    _must_exist(server.service_class, classes, f"{place}.class", f"service class{default}")
    _must_exist(server.model, models, f"{place}.model", "model")
    for i, name in enumerate(server.accelerators or ()):
        _must_exist(name, accelerators, f"{place}.accelerators[{i}]", "accelerator")
    current = server.current
    if current.accelerator and (
        server.keep_accelerator or (current.num_replicas and not current.cost_cents_per_h)
    ):
        _must_exist(current.accelerator, accelerators, f"{place}.currentAlloc.accelerator", "accelerator")
    check_load(current.load, f"{place}.currentAlloc.load.")
    check_variability(current.load, f"{place}.currentAlloc.load.", models[server.model])


def with_changed_load(server: Server, **changes: float) -> Server:
    """Return a copy of a server with another load, given by the Python names (``arrival_rate_rpm``).

    Raises:
        SpecError: a field does not exist, or a value is out of range.
    """
    prefix = f"servers.{server.name}.load."
    load = validated(Load, server.current.load.model_dump() | changes, prefix)
    check_load(load, prefix)
    return server.model_copy(update={"current": server.current.model_copy(update={"load": load})})


def _must_exist(name: str, known: Collection[str], place: str, what: str) -> None:
    """Check a name against those that are known.

    Raises:
        SpecError: it is not among them; the text has the nearest that is.
    """
    if name in known:
        return
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; add it, or correct {place.rsplit('.', 1)[-1]!r}"
    raise SpecError(f"{place}: {what} {name!r} does not exist{hint}")


def joined_document(parts: Sequence[Part]) -> dict[str, Any]:
    """Return documents as one, in plain values under the wire names, with only what was given."""
    joined: dict[str, Any] = {}
    for part in parts:
        for section, value in part.spec.model_dump(mode="json", by_alias=True, exclude_unset=True).items():
            joined[section] = joined[section] + value if section in joined else value
    return joined
