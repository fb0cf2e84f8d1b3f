"""Types of the fleet's items under /v1: their names in paths, in documents and in the state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Path, Request
from starlette.convertors import PathConvertor, register_url_convertor

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.features.length_pools.streams import check_without_lengths
from optimizer.features.table import FEATURES
from optimizer.schema import Server, ServiceClass
from optimizer.schema.assumptions import check_lengths, check_load
from optimizer.schema.messages import path_text
from rest_server.fleet import SECTIONS, Entities, Key
from rest_server.v1.models import (
    AcceleratorList,
    CapacityList,
    ModelList,
    RouteList,
    ServerList,
    ServiceClassList,
)


class _AnyText(PathConvertor):
    """Path convertor that matches any text, because names can contain slashes and line breaks."""

    regex = r"(?s:.*)"


register_url_convertor("any_text", _AnyText())
NameInPath = Annotated[str, Path(min_length=1, max_length=253)]


@dataclass(frozen=True, slots=True)
class EntityType:
    """A type of the fleet's items, with its routes and its section of documents."""

    noun: str
    """Noun for one item in messages."""
    path: str
    """Path of the collection of items."""
    one: str
    """Path of a single item."""
    section: str
    """Section of documents that contains the items."""
    listing: type[Document]
    key_fields: Key
    """Document fields that form the key of an item."""
    key: Callable[..., Key]
    """Function that reads the key of an item from the path."""

    @property
    def document(self) -> type[Document]:
        """Document type of the items."""
        return SECTIONS[self.section].document

    def items(self, entities: Entities) -> Mapping[Any, Document]:
        """Return all items of the type in a fleet: by name, profiles by model and accelerator."""
        return entities.section(self.section)

    def item(self, entities: Entities, key: Key) -> Document | None:
        """Return the item with a key; None if there is none."""
        return self.items(entities).get(key if len(key) > 1 else key[0])

    def changed(self, entities: Entities, key: Key, document: Document | None) -> Entities:
        """Return a fleet with one item replaced, or removed if the document is None."""
        field, (name, *inner) = SECTIONS[self.section].field, key
        if not inner:
            return entities.with_items(field, {name: document})
        profiles = {**entities.models.get(name, {}), inner[0]: document}
        kept = {accelerator: profile for accelerator, profile in profiles.items() if profile is not None}
        return entities.with_items(field, {name: kept or None})


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


def check_alone(document: Document) -> None:
    """Check rules beyond the schema of a document that need no other document.

    Raises:
        SpecError: no plan can use a load or a target; the message has its path.
    """
    if isinstance(document, Server):
        check_load(document.current.load, "currentAlloc.load.")
        check_without_lengths([document], "a fleet of the service")
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


ENTITY_TYPES = (
    EntityType(
        "accelerator", "/accelerators", "/accelerators/{name:any_text}", "accelerators",
        AcceleratorList, ("name",), by_name,
    ),
    EntityType(
        "model profile", "/models", "/models/{model:any_text}/{accelerator:any_text}", "models",
        ModelList, ("name", "acc"), by_model,
    ),
    EntityType(
        "service class", "/service-classes", "/service-classes/{name:any_text}", "serviceClasses",
        ServiceClassList, ("name",), by_name,
    ),
    EntityType(
        "server", "/servers", "/servers/{name:any_text}", "servers",
        ServerList, ("name",), by_name,
    ),
    EntityType(
        "capacity", "/capacity", "/capacity/{type:any_text}", "count",
        CapacityList, ("type",), by_type,
    ),
    EntityType(
        "route", "/routes", "/routes/{name:any_text}", "routes",
        RouteList, ("name",), by_name,
    ),
)  # fmt: skip
"""All types of items that have a name."""
