"""Finds the contradictions within documents and between them, such as undefined names."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from optimizer.errors import SpecError
from optimizer.features.offline.streams import offline_faults, with_load_of_deadline
from optimizer.features.table import FEATURES, used_features
from optimizer.schema import ModelProfile, SystemSpec
from optimizer.schema.assumptions import (
    check_lengths,
    check_load,
    check_profile,
    check_server,
    check_target,
    check_variability,
)
from optimizer.schema.current_pools import pool_problems, undefined_accelerators
from optimizer.schema.faults import MAX_FAULTS, Fault
from optimizer.schema.files import Part
from optimizer.schema.names import Entry, Finding, Index, Names, located
from optimizer.schema.positions import Location
from optimizer.spec.currency import currency_problems
from optimizer.spec.feature import Documents
from optimizer.spec.prices import price_problems
from optimizer.spec.unsupported import refused_problems

_ON_WHICH_ITEMS_DEPEND = ("accelerators", "models", "service_classes")
"""Sections to which the items of other sections refer, so that their checks depend on them."""


def contradictions(parts: Sequence[Part], incomplete: Collection[str]) -> list[Fault]:
    """Return the contradictions in documents, with their locations.

    Args:
        parts: the valid parts of the documents.
        incomplete: sections with missing items, which undefined names might refer to.
    """
    index = Index.of(parts)
    return located(list(islice(findings(parts, index, incomplete), MAX_FAULTS)))


def findings(
    parts: Sequence[Part],
    index: Index,
    incomplete: Collection[str] = (),
    *,
    lengths_optional: bool = False,
    checked: SystemSpec | None = None,
) -> Iterator[Finding]:
    """Yield the contradictions within documents and between them.

    Args:
        parts: the documents.
        index: their items by name.
        incomplete: sections with missing items, which undefined names might refer to.
        lengths_optional: whether an unstated input or output length counts as 0 instead of as a fault.
        checked: documents without contradictions, whose items are not checked again.
    """
    known = _known_items(parts, checked)
    profiles: dict[str, list[ModelProfile]] = defaultdict(list)
    for (model, _), (part, at, profile) in index.profiles.items():
        if at not in part.repaired:  # the kind of a repaired item is unknown, so its fields cannot be checked
            profiles[model].append(profile)
    names = {
        "accelerators": Names("accelerator", index.accelerators, "accelerators" in incomplete),
        "classes": Names("service class", index.classes, "serviceClasses" in incomplete),
        "models": Names("model", {model for model, _ in index.profiles}, "models" in incomplete),
        "servers": Names("server", index.servers, "servers" in incomplete),
        "nodes": Names("node type", index.sections["nodes"], "nodes" in incomplete),
    }
    documents = Documents(parts, index, profiles, names, lengths_optional, known)
    if _features(index, frozenset()):
        yield from refused_problems(documents, _features(index, frozenset()))
    used = _features(index, known)
    yield from _contradictions(documents)
    for feature in FEATURES:
        if feature.name in used:
            yield from feature.faults(documents)
    yield from price_problems(parts, index)


def _features(index: Index, known: Collection[int]) -> frozenset[str]:
    """Return the names of the features that documents use, without known items.

    Checks of a route depend on its servers; nodes are never known, because they depend on counts.
    """
    servers, accelerators = (
        [entry.item for entry in section.values() if id(entry.item) not in known]
        for section in (index.servers, index.accelerators)
    )
    sections = {
        name: [entry.item for entry in section.values() if servers or id(entry.item) not in known]
        for name, section in index.sections.items()
    }
    return used_features(servers, accelerators, sections)


def _known_items(parts: Sequence[Part], checked: SystemSpec | None) -> frozenset[int]:
    """Return the identities of the items that were checked together with all items to which they refer."""
    if checked is None or any(
        getattr(part.spec, section) is not getattr(checked, section)
        for part in parts
        for section in _ON_WHICH_ITEMS_DEPEND
    ):
        return frozenset()
    sections = (*_ON_WHICH_ITEMS_DEPEND, "servers", "routes")
    return frozenset(id(item) for section in sections for item in getattr(checked, section))


def _contradictions(documents: Documents) -> Iterator[Finding]:
    """Yield the contradictions between names, and those within items."""
    index, by_model, names = documents.index, documents.profiles, documents.names
    yield from index.twice
    yield from currency_problems(index, documents.parts)
    for part, at, service_class in documents.unchecked(index.classes):
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
    for part, at, profile in documents.unchecked(index.profiles):
        yield from names["accelerators"].missing(part, (*at, "acc"), profile.accelerator)
        yield from _caught(part, at, check_profile, profile)
    for entry in documents.unchecked(index.servers):
        profiles = by_model.get(entry.item.model, ())
        yield from _server_problems(entry, profiles, names)
        yield from _load_problems(entry, profiles, lengths_optional=documents.lengths_optional)


def _caught(part: Part, at: Location, check: Callable[[Any, str], None], item: object) -> Iterator[Finding]:
    """Yield the error of a check, if any, as a finding.

    Args:
        part: the document.
        at: location of the item.
        check: function that checks an item, given the prefix of its messages.
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
    roles = server.disaggregation is not None
    yield from pool_problems(part, current, server.current, names["nodes"], has_roles=roles)
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
