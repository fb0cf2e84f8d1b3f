"""Checks for fields and options that a feature does not support, and for features that exclude each other."""

from collections.abc import Collection, Iterable, Iterator
from itertools import permutations

from optimizer.documents import Document
from optimizer.features.table import FEATURES, features_by_server
from optimizer.schema import OptimizerOptions, Server
from optimizer.schema.classes import FIELDS_OF_SERVERS
from optimizer.schema.names import Entry, Finding
from optimizer.spec.feature import Documents, Feature


def refused_problems(documents: Documents, used: Collection[str]) -> Iterator[Finding]:
    """Yield the fields and options of documents that a feature in use does not support.

    Args:
        used: names of the features that they use.
    """
    index, features = documents.index, features_by_server(documents.index)
    for part, at, server in documents.unchecked(index.servers):
        owner = index.classes.get(server.service_class)
        of_class = [name for name in FIELDS_OF_SERVERS if owner is not None and getattr(owner.item, name)]
        for feature, given in features[server.name]:
            refused = feature.refused_fields
            for name, reason in refused.items():
                if _is_stated(server, name):
                    yield Finding(part, (*at, _key(Server, name)), f"{reason}; remove it, or {given}")
            yield from _shapes(feature, given, Entry(part, at, server))
            for name in (name for name in of_class if name in refused):
                text = f"class {server.service_class!r} has {_key(Server, name)}; {refused[name]}"
                yield Finding(part, (*at, "class"), f"{text}; remove it, or {given}")
        for given, text in _untried(features[server.name]):
            yield Finding(part, (*at, given), text)
    for part in documents.parts:
        if "optimizer" in part.spec.model_fields_set:
            for key, text in refused_options(part.spec.optimizer, used):
                yield Finding(part, ("optimizer", key), text)


def _shapes(feature: Feature, given: str, entry: Entry) -> Iterator[Finding]:
    """Yield an error if a server has request shapes that one of its features does not support."""
    part, at, server = entry
    load = server.current.load
    if feature.refuses_shapes and load.has_shapes:
        key = "shapes" if load.shapes else "prefixTokens"
        text = f"{feature.refuses_shapes}; give mean lengths, or remove {given}"
        yield Finding(part, (*at, "currentAlloc", "load", key), text)


def _untried(features: Iterable[tuple[Feature, str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of features of one server that were not tested together: the field, and a message.

    Args:
        features: features of the server, with the fields by which it uses them.
    """
    for (feature, given), (other, named) in permutations(features, 2):
        if feature.goes_with is not None and other.name not in feature.goes_with:
            yield given, f"it is not known to work with {named}; remove it, or {named}"


def refused_options(options: OptimizerOptions, used: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the name, and a message, of each option that a feature in use does not support.

    Args:
        used: names of the features that the system uses.
    """
    for feature in FEATURES:
        if feature.name in used:
            for name, reason in feature.refused_options.items():
                if _is_stated(options, name):
                    other = _key(Server, feature.fields[0]) if feature.fields else feature.name
                    yield _key(OptimizerOptions, name), f"{reason}; remove it, or {other}"


def _is_stated(document: Document, name: str) -> bool:
    """Return whether a field differs from its default."""
    default = type(document).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(document, name) != default)


def _key(document: type[Document], name: str) -> str:
    """Return the name of a field as written in documents."""
    return document.model_fields[name].alias or name
