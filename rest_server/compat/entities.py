"""Handlers of llm-inferno's routes for accelerators, capacities, models and servers.

A reader returns the response, given the fleet's items and the names in the path. A change returns the changed
items and the response. A writer converts a body to a change.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.errors import SpecError
from optimizer.schema import AllocationData, ModelProfile
from rest_server.compat.bodies import read_list
from rest_server.compat.changes import Change, Changed, echoed, item_of
from rest_server.compat.lenient import read_entity, read_object
from rest_server.compat.serializers import (
    accelerator_json,
    profile_json,
    server_json,
    service_class_json,
)
from rest_server.fleet import SECTIONS, Entities, key_of

MAX_NAME = 253
"""Maximum length of a name [characters]."""


@dataclass(frozen=True, slots=True)
class NamedItems:
    """Handlers of the routes for a section whose items have single names."""

    section: str
    """Name of the section in documents and bodies."""
    shape: Callable[[Any], dict[str, Any]]
    """Function that returns an item in llm-inferno's JSON format."""
    missing: str
    """Message if there is no item with a name, which takes the place of the braces."""
    echo: Callable[[Any], dict[str, Any]] | None = None
    """Function that returns the format in which the response to a write repeats an item; None: `shape`."""

    @property
    def _field(self) -> str:
        return SECTIONS[self.section].field

    def all(self, entities: Entities) -> Any:
        """Return the response to the route that lists the items."""
        return {self.section: [self.shape(item) for item in entities.section(self.section).values()]}

    def item(self, entities: Entities, name: str) -> Any:
        """Return the item with a name.

        Raises:
            WireRefusalError: there is no such item.
        """
        return item_of(entities.section(self.section), name, self.missing.format(name))

    def one(self, entities: Entities, name: str) -> Any:
        """Return the response to the route that reads one item."""
        return self.shape(self.item(entities, name))

    def removed(self, entities: Entities, name: str) -> Changed:
        """Carry out the route that removes one item."""
        answer = self.one(entities, name)
        return entities.with_items(self._field, {name: None}), answer

    def put(self, entities: Entities, items: Iterable[Any]) -> Entities:
        """Return the fleet with some items added or replaced."""
        return entities.with_items(self._field, {key_of(item)[0]: item for item in items})

    def set_all(self, raw: object, ignored: list[str]) -> Change:
        """Read the body of the route that adds or replaces several items; the response repeats them."""
        items = read_list(self.section, raw, ignored)
        answer = {self.section: echoed(items, self.echo or self.shape)}
        return lambda entities: (self.put(entities, items or ()), answer)

    def add(self, raw: object, ignored: list[str]) -> Change:
        """Read the body of the route that adds or replaces one item; the response repeats it."""
        item = read_entity(SECTIONS[self.section].document, read_object(raw), "", ignored)
        return lambda entities: (self.put(entities, [item]), (self.echo or self.shape)(item))


ACCELERATORS = NamedItems("accelerators", accelerator_json, "accelerator {} not found")
CAPACITIES = NamedItems(
    "count",
    lambda item: {"type": item.type, "count": item.cards},
    "capacity for {} not found",
    lambda item: {"type": item.type, "count": item.count},
)
SERVICE_CLASSES = NamedItems("serviceClasses", service_class_json, "service class {} not found")
SERVERS = NamedItems("servers", server_json, "server {} not found")


# --- models and their profiles -------------------------------------------------------------------------


def models(entities: Entities) -> Any:
    """Return the response to ``/getModels``."""
    return list(entities.models)


def _profiles(entities: Entities, name: str) -> Mapping[str, ModelProfile]:
    profiles: Mapping[str, ModelProfile] = item_of(entities.models, name, f"model {name} not found")
    return profiles


def model(entities: Entities, name: str) -> Any:
    """Return the response to ``/getModel/:name``."""
    return {"models": [profile_json(item) for item in _profiles(entities, name).values()]}


def add_model(entities: Entities, name: str) -> Changed:
    """Carry out ``/addModel/:name``, which adds a model without profiles, or removes its profiles."""
    if len(name) > MAX_NAME:
        raise SpecError(f"name: must have at most {MAX_NAME} characters")
    return entities.with_items("models", {name: {}}), name


def remove_model(entities: Entities, name: str) -> Changed:
    """Carry out ``/removeModel/:name``."""
    _profiles(entities, name)
    return entities.with_items("models", {name: None}), name


def set_models(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setModels``."""
    items: list[ModelProfile] | None = read_list("models", raw, ignored)
    answer = {"models": echoed(items, profile_json)}
    return lambda entities: (with_profiles(entities, items or ()), answer)


def with_profiles(entities: Entities, items: Iterable[ModelProfile]) -> Entities:
    """Return the fleet with some profiles added.

    A profile replaces the one of the same model and accelerator.
    """
    changed: dict[str, dict[str, ModelProfile]] = {}
    for item in items:
        mine = changed.setdefault(item.name, {**entities.models.get(item.name, {})})
        mine[item.accelerator] = item
    return entities.with_items("models", changed)


def profile(entities: Entities, name: str, acc: str) -> Any:
    """Return the response to ``/getModelAcceleratorPerf/:name/:acc``."""
    return profile_json(item_of(_profiles(entities, name), acc, f"accelerator {acc} not found"))


def add_profile(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/addModelAcceleratorPerf``, whose model must exist."""
    item = read_entity(ModelProfile, read_object(raw), "", ignored)

    def change(entities: Entities) -> Changed:
        _profiles(entities, item.name)
        return with_profiles(entities, [item]), profile_json(item)

    return change


def remove_profile(entities: Entities, name: str, acc: str) -> Changed:
    """Carry out ``/removeModelAcceleratorPerf/:name/:acc``."""
    answer = profile(entities, name, acc)
    kept = {key: item for key, item in _profiles(entities, name).items() if key != acc}
    return entities.with_items("models", {name: kept}), answer


# --- accelerators, capacities and servers ---------------------------------------------------------------


def accelerators(entities: Entities) -> Any:
    """Return the response to ``/getAccelerators``, which is a list without a name."""
    return ACCELERATORS.all(entities)["accelerators"]


def remove_capacity(entities: Entities, name: str) -> Changed:
    """Carry out ``/removeCapacity/:type``."""
    item_of(entities.count, name, f"accelerator type {name} not found")
    return CAPACITIES.removed(entities, name)


def apply_allocation(entities: Entities) -> Changed:
    """Carry out ``/applyAllocation``; as in llm-inferno, an empty desired allocation also removes the load.

    Unlike in llm-inferno, a running server without any desired allocation keeps running, because no plan
    stopped it.
    """
    nothing, servers = AllocationData(), {}
    for name, server in entities.servers.items():
        if server.desired == nothing:
            stays = server.current.num_replicas > 0 and not _is_planned(server.desired)
            current = server.current if stays else nothing
            servers[name] = server.model_copy(update={"current": current})
    return entities.with_desired_applied().with_items("servers", servers), "Done"


def _is_planned(desired: AllocationData) -> bool:
    """Return whether an empty desired allocation comes from a plan: it has a load but no replicas."""
    return desired.model_fields_set == {"load"}
