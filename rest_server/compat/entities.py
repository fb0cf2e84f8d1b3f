"""Handlers of llm-inferno's routes for accelerators, capacities, models and servers.

A reader returns the response, given the fleet's items and the names in the path. A change returns the changed
items and the response. A writer converts a body to a change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from optimizer.errors import SpecError
from optimizer.schema import Accelerator, AllocationData, Capacity, ModelProfile, Server
from rest_server.compat.bodies import read_list
from rest_server.compat.changes import Change, Changed, echoed, found, with_items, without_item
from rest_server.compat.lenient import read_entity, read_object
from rest_server.compat.serializers import (
    accelerator_json,
    capacity_json,
    profile_json,
    server_json,
)
from rest_server.fleet import Entities

MAX_NAME = 253
"""Maximum length of a name [characters]."""


# --- accelerators --------------------------------------------------------------------------------------


def accelerators(entities: Entities) -> Any:
    """Return the response to ``/getAccelerators``."""
    return [accelerator_json(item) for item in entities.accelerators.values()]


def accelerator(entities: Entities, name: str) -> Any:
    """Return the response to ``/getAccelerator/:name``."""
    return accelerator_json(found(entities.accelerators, name, f"accelerator {name} not found"))


def remove_accelerator(entities: Entities, name: str) -> Changed:
    """Carry out ``/removeAccelerator/:name``."""
    return without_item(entities, "accelerators", name), accelerator(entities, name)


def set_accelerators(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setAccelerators``."""
    items: list[Accelerator] | None = read_list("accelerators", raw, ignored)
    named = {item.name: item for item in items or ()}
    answer = {"accelerators": echoed(items, accelerator_json)}
    return lambda entities: (with_items(entities, "accelerators", named), answer)


def add_accelerator(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/addAccelerator``."""
    item = read_entity(Accelerator, read_object(raw), "", ignored)
    return lambda entities: (with_items(entities, "accelerators", {item.name: item}), accelerator_json(item))


# --- capacities ----------------------------------------------------------------------------------------


def capacities(entities: Entities) -> Any:
    """Return the response to ``/getCapacities``."""
    return {"count": [capacity_json(type_name, count) for type_name, count in entities.capacity.items()]}


def capacity(entities: Entities, name: str) -> Any:
    """Return the response to ``/getCapacity/:type``."""
    return capacity_json(name, found(entities.capacity, name, f"capacity for {name} not found"))


def remove_capacity(entities: Entities, name: str) -> Changed:
    """Carry out ``/removeCapacity/:type``."""
    count = found(entities.capacity, name, f"accelerator type {name} not found")
    return without_item(entities, "capacity", name), capacity_json(name, count)


def set_capacities(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setCapacities``."""
    items: list[Capacity] | None = read_list("count", raw, ignored)
    counts = {item.type: item.cards for item in items or ()}
    answer = {"count": echoed(items, lambda item: capacity_json(item.type, item.count))}
    return lambda entities: (with_items(entities, "capacity", counts), answer)


def set_capacity(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setCapacity``."""
    item = read_entity(Capacity, read_object(raw), "", ignored)
    answer = capacity_json(item.type, item.count)
    return lambda entities: (with_items(entities, "capacity", {item.type: item.cards}), answer)


# --- models and their profiles -------------------------------------------------------------------------


def models(entities: Entities) -> Any:
    """Return the response to ``/getModels``."""
    return list(entities.models)


def _profiles(entities: Entities, name: str) -> Mapping[str, ModelProfile]:
    profiles: Mapping[str, ModelProfile] = found(entities.models, name, f"model {name} not found")
    return profiles


def model(entities: Entities, name: str) -> Any:
    """Return the response to ``/getModel/:name``."""
    return {"models": [profile_json(item) for item in _profiles(entities, name).values()]}


def add_model(entities: Entities, name: str) -> Changed:
    """Carry out ``/addModel/:name``, which adds a model without profiles, or removes its profiles."""
    if len(name) > MAX_NAME:
        raise SpecError(f"name: must have at most {MAX_NAME} characters")
    return with_items(entities, "models", {name: {}}), name


def remove_model(entities: Entities, name: str) -> Changed:
    """Carry out ``/removeModel/:name``."""
    _profiles(entities, name)
    return without_item(entities, "models", name), name


def set_models(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setModels``."""
    items: list[ModelProfile] | None = read_list("models", raw, ignored)
    answer = {"models": echoed(items, profile_json)}
    return lambda entities: (replace(entities, models=with_profiles(entities, items or ())), answer)


def with_profiles(entities: Entities, items: Iterable[ModelProfile]) -> dict[str, Mapping[str, ModelProfile]]:
    """Return the models with some profiles added.

    A profile replaces the one of the same model and accelerator.
    """
    added: dict[str, dict[str, ModelProfile]] = {}
    for item in items:
        added.setdefault(item.name, {})[item.accelerator] = item
    return {
        **entities.models,
        **{name: {**entities.models.get(name, {}), **mine} for name, mine in added.items()},
    }


def profile(entities: Entities, name: str, acc: str) -> Any:
    """Return the response to ``/getModelAcceleratorPerf/:name/:acc``."""
    return profile_json(found(_profiles(entities, name), acc, f"accelerator {acc} not found"))


def add_profile(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/addModelAcceleratorPerf``, whose model must exist."""
    item = read_entity(ModelProfile, read_object(raw), "", ignored)

    def change(entities: Entities) -> Changed:
        _profiles(entities, item.name)
        return replace(entities, models=with_profiles(entities, [item])), profile_json(item)

    return change


def remove_profile(entities: Entities, name: str, acc: str) -> Changed:
    """Carry out ``/removeModelAcceleratorPerf/:name/:acc``."""
    answer = profile(entities, name, acc)
    kept = {key: item for key, item in _profiles(entities, name).items() if key != acc}
    return with_items(entities, "models", {name: kept}), answer


# --- servers -------------------------------------------------------------------------------------------


def servers(entities: Entities) -> Any:
    """Return the response to ``/getServers``."""
    return {"servers": [server_json(item) for item in entities.servers.values()]}


def server(entities: Entities, name: str) -> Any:
    """Return the response to ``/getServer/:name``."""
    return server_json(found(entities.servers, name, f"server {name} not found"))


def remove_server(entities: Entities, name: str) -> Changed:
    """Carry out ``/removeServer/:name``."""
    return without_item(entities, "servers", name), server(entities, name)


def set_servers(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/setServers``."""
    items: list[Server] | None = read_list("servers", raw, ignored)
    named = {item.name: item for item in items or ()}
    answer = {"servers": echoed(items, server_json)}
    return lambda entities: (with_items(entities, "servers", named), answer)


def add_server(raw: object, ignored: list[str]) -> Change:
    """Read the body of ``/addServer``."""
    item = read_entity(Server, read_object(raw), "", ignored)
    return lambda entities: (with_items(entities, "servers", {item.name: item}), server_json(item))


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
    return with_items(entities.with_desired_applied(), "servers", servers), "Done"


def _is_planned(desired: AllocationData) -> bool:
    """Return whether an empty desired allocation comes from a plan: it has a load but no replicas."""
    return desired.model_fields_set == {"load"}
