"""Types of the fleet's items under /v1: their names in paths, in documents and in the state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Path, Request
from starlette.convertors import PathConvertor, register_url_convertor

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.features.table import FEATURES
from optimizer.schema import Accelerator, Capacity, ModelProfile, Route, Server, ServiceClass
from optimizer.schema.assumptions import check_lengths, check_load
from optimizer.schema.messages import path_text
from rest_server.fleet import Entities
from rest_server.v1.models import (
    AcceleratorList,
    CapacityList,
    ModelList,
    RouteList,
    ServerList,
    ServiceClassList,
)

Key = tuple[str, ...]
"""Key of an item of the fleet: its name, or model and accelerator of a profile."""


class _AnyText(PathConvertor):
    """Path convertor that matches any text, because names can contain slashes and line breaks."""

    regex = r"(?s:.*)"


register_url_convertor("any_text", _AnyText())
NameInPath = Annotated[str, Path(min_length=1, max_length=253)]


@dataclass(frozen=True, slots=True)
class EntityType:
    """A type of the fleet's items, with its routes, its section of documents and its place in the state."""

    noun: str
    """Noun for one item in messages."""
    path: str
    """Path of the collection of items."""
    one: str
    """Path of a single item."""
    section: str
    """Section of documents that contains the items."""
    document: type[Document]
    listing: type[Document]
    key_fields: Key
    """Document fields that form the key of an item."""
    key_of: Callable[[Any], Key]
    """Function that returns the key of a document."""
    key: Callable[..., Key]
    """Function that reads the key of an item from the path."""
    items: Callable[[Entities], Mapping[Key, Document]]
    """Function that returns all items of the type in a fleet, by key."""
    changed: Callable[[Entities, Key, Any], Entities]
    """Function that returns a fleet with one item replaced, or removed if the document is None."""


def by_name(name: NameInPath) -> Key:
    """Return the key of an item that has a single name."""
    return (name,)


def by_type(type_name: Annotated[str, Path(alias="type", min_length=1, max_length=253)]) -> Key:
    """Return the key of a capacity, which is its accelerator type."""
    return (type_name,)


def by_model(request: Request, model: NameInPath, accelerator: NameInPath) -> Key:
    """Return the key of a model profile; a slash inside a name is written ``%2F``."""
    last = unquote(request.scope["raw_path"].decode("ascii", "replace").rpartition("/")[2])
    path = f"{model}/{accelerator}"
    return (path.removesuffix(f"/{last}"), last) if path.endswith(f"/{last}") else (model, accelerator)


def _own_name(document: Accelerator | ServiceClass | Server | Route) -> Key:
    return (document.name,)


def _own_pair(profile: ModelProfile) -> Key:
    return (profile.name, profile.accelerator)


def _own_type(capacity: Capacity) -> Key:
    return (capacity.type,)


def check_alone(document: Document) -> None:
    """Check rules beyond the schema of a document that need no other document.

    Raises:
        SpecError: no plan can use a load or a target; the message has its path.
    """
    if isinstance(document, Server):
        check_load(document.current.load, "currentAlloc.load.")
    for feature in FEATURES:
        for location, text in feature.faults_alone(document):
            raise SpecError(f"{path_text(location)}: {text}")
    if isinstance(document, ServiceClass):
        seen = set()
        for i, target in enumerate(document.model_targets):
            if target.model in seen:
                raise SpecError(f"modelTargets[{i}].model: {target.model!r} occurs twice")
            seen.add(target.model)


def check_beside(document: Document, entities: Entities) -> None:
    """Check a document against other documents of the fleet.

    Raises:
        SpecError: the requests of a server have no input or output length; the message has its path.
    """
    if isinstance(document, Server):
        check_lengths(document.current.load, "currentAlloc.load.", entities.profiles_of(document.model))


def _named(field: str) -> tuple[Callable[[Entities], Any], Callable[[Entities, Key, Any], Entities]]:
    """Return functions that read and write the items in a field of `Entities` that stores them by name."""

    def items(entities: Entities) -> Mapping[Key, Document]:
        return {(name,): item for name, item in getattr(entities, field).items()}

    def changed(entities: Entities, key: Key, document: Document | None) -> Entities:
        fields: dict[str, Any] = {field: _with(getattr(entities, field), key[0], document)}
        return replace(entities, **fields)

    return items, changed


def _with(mapping: Mapping[str, Any], name: str, value: object) -> dict[str, Any]:
    """Return a copy of a mapping with one value replaced in its position, or removed if it is None."""
    if value is None:
        return {other: item for other, item in mapping.items() if other != name}
    return {**mapping, name: value}


def _profiles(entities: Entities) -> Mapping[Key, Document]:
    return {
        (model, accelerator): profile
        for model, profiles in entities.models.items()
        for accelerator, profile in profiles.items()
    }


def _with_profile(entities: Entities, key: Key, profile: Document | None) -> Entities:
    model, accelerator = key
    profiles = _with(entities.models.get(model, {}), accelerator, profile)
    return replace(entities, models=_with(entities.models, model, profiles or None))


def _capacities(entities: Entities) -> Mapping[Key, Document]:
    return {(name,): Capacity.of(name, cards) for name, cards in entities.capacity.items()}


def _with_capacity(entities: Entities, key: Key, capacity: Capacity | None) -> Entities:
    units = None if capacity is None else capacity.cards
    return replace(entities, capacity=_with(entities.capacity, key[0], units))


ENTITY_TYPES = (
    EntityType(
        "accelerator", "/accelerators", "/accelerators/{name:any_text}", "accelerators",
        Accelerator, AcceleratorList, ("name",), _own_name, by_name, *_named("accelerators"),
    ),
    EntityType(
        "model profile", "/models", "/models/{model:any_text}/{accelerator:any_text}", "models",
        ModelProfile, ModelList, ("name", "acc"), _own_pair, by_model, _profiles, _with_profile,
    ),
    EntityType(
        "service class", "/service-classes", "/service-classes/{name:any_text}", "serviceClasses",
        ServiceClass, ServiceClassList, ("name",), _own_name, by_name, *_named("service_classes"),
    ),
    EntityType(
        "server", "/servers", "/servers/{name:any_text}", "servers",
        Server, ServerList, ("name",), _own_name, by_name, *_named("servers"),
    ),
    EntityType(
        "capacity", "/capacity", "/capacity/{type:any_text}", "count",
        Capacity, CapacityList, ("type",), _own_type, by_type, _capacities, _with_capacity,
    ),
    EntityType(
        "route", "/routes", "/routes/{name:any_text}", "routes",
        Route, RouteList, ("name",), _own_name, by_name, *_named("routes"),
    ),
)  # fmt: skip
"""All types of items that have a name."""
