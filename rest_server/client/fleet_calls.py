"""The requests of a client about the fleet of a service, as values; see `rest_server.client.calls`."""

from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from pydantic_core import to_json

from optimizer.plan import Plan
from optimizer.spec.schema import (
    Accelerator,
    Capacity,
    ModelProfile,
    OptimizerOptions,
    Server,
    ServiceClass,
    SystemSpec,
)
from rest_server.client.calls import Answer, Call, SystemLike, document, text, text_of_system
from rest_server.v1.models import (
    AcceleratorList,
    CapacityList,
    FleetHistory,
    LastPlan,
    LoadChange,
    ModelList,
    ServerList,
    ServiceClassList,
    TargetAnswer,
    TargetList,
)

Loads = Mapping[str, LoadChange]
"""Loads by server."""
Entity = Accelerator | ModelProfile | ServiceClass | Server | Capacity
"""What a fleet consists of."""
_Entity = TypeVar("_Entity", bound=BaseModel)


def put_loads(loads: Loads, if_match: str | None) -> Call[Plan]:
    """Return the request of `put_loads` of the clients."""
    changes = {name: change.model_dump(by_alias=True, exclude_unset=True) for name, change in loads.items()}
    return _change("POST", "/v1/loads", document(Plan), if_match, to_json(changes))


def last_plan() -> Call[LastPlan]:
    """Return the request of `last_plan` of the clients."""
    return Call("GET", "/v1/plan", document(LastPlan))


def apply_plan(if_match: str | None) -> Call[ServerList]:
    """Return the request of `apply_plan` of the clients."""
    headers = _condition(if_match)
    return Call("POST", "/v1/plan/apply", document(ServerList), headers=headers, repeatable=False)


def targets() -> Call[tuple[TargetAnswer, ...]]:
    """Return the request of `targets` of the clients."""
    return Call("GET", "/v1/targets", lambda body: TargetList.model_validate_json(body).targets, waits=False)


def target(server: str, accelerator: str) -> Call[TargetAnswer]:
    """Return the request of `target` of the clients."""
    return Call("GET", _path("targets", server, accelerator), document(TargetAnswer), waits=False)


def history(limit: int | None) -> Call[FleetHistory]:
    """Return the request of `history` of the clients."""
    params = {} if limit is None else {"limit": str(limit)}
    return Call("GET", "/v1/history", document(FleetHistory), params=params)


def past_plan(revision: int) -> Call[Plan]:
    """Return the request of `past_plan` of the clients."""
    return Call("GET", f"/v1/history/plans/{revision}", document(Plan))


def metrics() -> Call[str]:
    """Return the request of `metrics` of the clients."""
    return Call("GET", "/metrics", bytes.decode)


def etag() -> Call[str]:
    """Return the request of `etag` of the clients."""
    return Call("GET", "/v1/optimizer", bytes.decode, header="etag")


def export_fleet() -> Call[SystemSpec]:
    """Return the request of `export_fleet` of the clients."""
    return Call("GET", "/v1/fleet", document(SystemSpec))


def import_fleet(system: SystemLike, if_match: str | None) -> Call[SystemSpec]:
    """Return the request of `import_fleet` of the clients."""
    return _change("PUT", "/v1/fleet", document(SystemSpec), if_match, text_of_system(system))


def options() -> Call[OptimizerOptions]:
    """Return the request of `options` of the clients."""
    return Call("GET", "/v1/optimizer", document(OptimizerOptions))


def put_options(given: OptimizerOptions, if_match: str | None) -> Call[OptimizerOptions]:
    """Return the request of `put_options` of the clients."""
    return _change("PUT", "/v1/optimizer", document(OptimizerOptions), if_match, text(given))


def delete_options(if_match: str | None) -> Call[None]:
    """Return the request of `delete_options` of the clients."""
    return _change("DELETE", "/v1/optimizer", _nothing, if_match)


def accelerators() -> Call[tuple[Accelerator, ...]]:
    """Return the request of `accelerators` of the clients."""
    return _listed(Accelerator, lambda body: AcceleratorList.model_validate_json(body).accelerators)


def models() -> Call[tuple[ModelProfile, ...]]:
    """Return the request of `models` of the clients."""
    return _listed(ModelProfile, lambda body: ModelList.model_validate_json(body).models)


def service_classes() -> Call[tuple[ServiceClass, ...]]:
    """Return the request of `service_classes` of the clients."""
    return _listed(ServiceClass, lambda body: ServiceClassList.model_validate_json(body).service_classes)


def servers() -> Call[tuple[Server, ...]]:
    """Return the request of `servers` of the clients."""
    return _listed(Server, lambda body: ServerList.model_validate_json(body).servers)


def capacity() -> Call[tuple[Capacity, ...]]:
    """Return the request of `capacity` of the clients."""
    return _listed(Capacity, lambda body: CapacityList.model_validate_json(body).count)


def put(entity: Entity, if_match: str | None) -> Call[None]:
    """Return the request of `put` of the clients."""
    return _change("PUT", _path_of(entity), _nothing, if_match, text(entity))


def delete(entity: Entity, if_match: str | None) -> Call[None]:
    """Return the request of `delete` of the clients."""
    return _change("DELETE", _path_of(entity), _nothing, if_match)


_COLLECTIONS: dict[type[BaseModel], str] = {
    Accelerator: "accelerators",
    ModelProfile: "models",
    ServiceClass: "service-classes",
    Server: "servers",
    Capacity: "capacity",
}


def _path_of(entity: Entity) -> str:
    names = [entity.type if isinstance(entity, Capacity) else entity.name]
    if isinstance(entity, ModelProfile):
        names.append(entity.accelerator)
    return _path(_COLLECTIONS[type(entity)], *names)


def _path(collection: str, *names: str) -> str:
    return "/".join(("/v1", collection, *(quote(name, safe="") for name in names)))


def _listed(kind: type[_Entity], read: Callable[[bytes], tuple[_Entity, ...]]) -> Call[tuple[_Entity, ...]]:
    return Call("GET", f"/v1/{_COLLECTIONS[kind]}", read)


def _change(
    method: str, path: str, read: Callable[[bytes], Answer], if_match: str | None, body: bytes | None = None
) -> Call[Answer]:
    """Return a request that changes the fleet; under a condition it is not repeated: it would fail it."""
    headers = _condition(if_match)
    return Call(method, path, read, body, headers=headers, repeatable=not headers)


def _condition(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _nothing(_: bytes) -> None:
    return None
