"""The system: documents joined, cross-checked and indexed by name, immutable from here on.

Whatever the order of the input, accelerators, profiles, classes and servers are in the order of their
names; this is what makes every later answer independent of it.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from optimizer.errors import SpecError
from optimizer.queueing.measures import LATENCIES, Measure
from optimizer.queueing.table import QUEUE_MODELS
from optimizer.spec.faults import MAX_FAULTS, Fault, FaultyDocumentsError
from optimizer.spec.files import Part, read_parts, spec_from_value
from optimizer.spec.messages import did_you_mean, path_text, validated
from optimizer.spec.names import Entry, Index, Names, Problem, located
from optimizer.spec.positions import Location
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
from optimizer.timing import laws_known


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
        for name in changed:
            _must_exist(name, self.servers, f"servers.{name}", "server")
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
        FaultyDocumentsError: a name occurs twice, or refers to nothing; the text has the first offender.
    """
    index = Index.of(parts)
    problems = list(islice(_contradictions(index), MAX_FAULTS + 1))
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
    return System(
        accelerators=values(index.accelerators),
        profiles=values(index.profiles),
        service_classes=values(index.classes),
        targets=MappingProxyType({key: targets[key] for key in sorted(targets)}),
        servers=values(index.servers),
        capacity=MappingProxyType({kind: index.capacity[kind].item.count for kind in sorted(index.capacity)}),
        options=given[0] if given else OptimizerOptions(),
    )


def contradictions(parts: Sequence[Part], incomplete: Collection[str]) -> list[Fault]:
    """Return what documents say that contradicts them, each with its place.

    Args:
        parts: what is sound of the documents.
        incomplete: sections from which something is missing, so that names may refer to it.
    """
    return located(list(islice(_contradictions(Index.of(parts), incomplete), MAX_FAULTS)))


def _contradictions(index: Index, incomplete: Collection[str] = ()) -> Iterator[Problem]:
    """Yield everything in which documents contradict themselves or one another."""
    yield from index.twice
    for part, at, service_class in index.classes.values():
        models: set[str] = set()
        for i, target in enumerate(service_class.model_targets):
            here = (*at, "modelTargets", i)
            if target.model in models:
                text = f"{target.model!r} occurs twice in class {service_class.name!r}"
                yield Problem(part, (*here, "model"), text)
            models.add(target.model)
            yield from _caught(part, here, check_target, target)
    known = {
        "accelerators": Names("accelerator", index.accelerators, "accelerators" in incomplete),
        "classes": Names("service class", index.classes, "serviceClasses" in incomplete),
        "models": Names("model", {model for model, _ in index.profiles}, "models" in incomplete),
    }
    for part, at, profile in index.profiles.values():
        yield from known["accelerators"].missing(part, (*at, "acc"), profile.accelerator)
        yield from _caught(part, at, check_profile, profile)
    for entry in index.servers.values():
        yield from _server_problems(entry, **known)


def _caught(part: Part, at: Location, check: Callable[[Any, str], None], item: object) -> Iterator[Problem]:
    """Yield what a check of one item refuses; `check` names the field after the place that it is given."""
    place = path_text(at)
    try:
        check(item, place)
    except SpecError as error:
        path, _, text = str(error).removeprefix(place).partition(": ")
        yield Problem(part, (*at, *path.strip(".").split(".")) if path.strip(".") else at, text)


def _server_problems(entry: Entry, accelerators: Names, classes: Names, models: Names) -> Iterator[Problem]:
    part, at, server = entry
    default = "" if "service_class" in server.model_fields_set else " (the default)"
    yield from classes.missing(part, (*at, "class"), server.service_class, default)
    yield from models.missing(part, (*at, "model"), server.model)
    for i, name in enumerate(server.accelerators or ()):
        yield from accelerators.missing(part, (*at, "accelerators", i), name)
    current = server.current
    if current.accelerator and (
        server.keep_accelerator or (current.num_replicas and not current.cost_cents_per_h)
    ):
        yield from accelerators.missing(part, (*at, "currentAlloc", "accelerator"), current.accelerator)
    yield from _caught(
        part, (*at, "currentAlloc", "load"), lambda load, place: check_load(load, f"{place}."), current.load
    )


def check_profile(profile: ModelProfile, place: str) -> None:
    """Refuse a profile whose queue model cannot express its law; `place` stands before what is wrong.

    Raises:
        SpecError: it names a queue model that does not take its law.
    """
    for law in laws_known(profile):
        if not QUEUE_MODELS[profile.queue_model].takes(law):
            raise SpecError(
                f"{place}: the queue model {profile.queue_model!r} does not support the {law.name} "
                "latency model; choose another queueModel"
            )


def check_target(target: ModelTarget, place: str) -> None:
    """Refuse a target that the queue model cannot keep; `place` stands before what is wrong.

    Raises:
        SpecError: it asks for a percentile.
    """
    if target.percentile is None:
        return
    measures = [Measure(metric, target.percentile) for metric in LATENCIES]
    if not any(model.knows(measure) for model in QUEUE_MODELS.values() for measure in measures):
        models = " or ".join(map(repr, QUEUE_MODELS))
        raise SpecError(
            f"{place}.percentile: {target.percentile:g} is a percentile, but the queue model "
            f"{models} knows means only; remove it"
        )


def with_changed_load(server: Server, **changes: float) -> Server:
    """Return a copy of a server with another load, given by the Python names (``arrival_rate_rpm``).

    Raises:
        SpecError: a field does not exist, or a value is out of range.
    """
    prefix = f"servers.{server.name}.load."
    load = validated(Load, server.current.load.model_dump() | changes, prefix)
    check_load(load, prefix)
    return server.model_copy(update={"current": server.current.model_copy(update={"load": load})})


def check_load(load: Load, prefix: str) -> None:
    """Check a load beyond its schema.

    Raises:
        SpecError: the answers are shorter than a token, or the queue model knows nothing of a field.
    """
    if 0 < load.out_tokens < 1:
        raise SpecError(f"{prefix}avgOutTokens: must be 0 (idle) or at least 1, not {load.out_tokens:g}")
    for field in ("arrival_cv", "in_tokens_cv", "out_tokens_cv"):
        value = getattr(load, field)
        if value != 1:
            wire = Load.model_fields[field].alias
            raise SpecError(
                f"{prefix}{wire}: {value:g} is not 1, which the queue model 'reference' assumes; remove it"
            )


def _must_exist(name: str, known: Collection[str], place: str, what: str) -> None:
    """Check a name against those that are known.

    Raises:
        SpecError: it is not among them; the text has the nearest that is.
    """
    if name in known:
        return
    hint = did_you_mean(name, known) or f"; add it, or correct {place.rsplit('.', 1)[-1]!r}"
    raise SpecError(f"{place}: {what} {name!r} does not exist{hint}")


def joined_document(parts: Sequence[Part]) -> dict[str, Any]:
    """Return documents as one, in plain values under the wire names, with only what was given."""
    joined: dict[str, Any] = {}
    for part in parts:
        for section, value in part.spec.model_dump(mode="json", by_alias=True, exclude_unset=True).items():
            joined[section] = joined[section] + value if section in joined else value
    return joined
