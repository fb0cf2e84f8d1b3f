"""The requests of a client as values: what is sent, and how the answer is read. Nothing is sent here."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from optimizer.plan import Plan
from optimizer.replica import ReplicaPerformance, ReplicaSizing
from optimizer.spec.schema import Accelerator, Capacity, ModelProfile, Server, ServiceClass, SystemSpec
from optimizer.spec.system import System, load_system
from optimizer.studies.comparison.document import Comparison
from optimizer.studies.explanation.document import Explanation
from optimizer.studies.figures.document import Figure
from optimizer.studies.reports.report import Report
from rest_server.v1.models import (
    AcceleratorList,
    Analysis,
    CandidateAnswer,
    CapacityList,
    CompareOptions,
    ExactOptions,
    ExplainOptions,
    FigureOptions,
    LastPlan,
    LoadChange,
    ModelList,
    PlanOptions,
    ReportOptions,
    ServerList,
    ServiceClassList,
    SizingProblem,
    TwoSides,
)

SystemLike = System | SystemSpec | Mapping[str, Any] | str | os.PathLike[str]
"""A system, its document, the same as plain values, or the path of a file or directory."""
Loads = Mapping[str, LoadChange]
"""Loads by server."""
Entity = Accelerator | ModelProfile | ServiceClass | Server | Capacity
"""What a fleet consists of."""
Answer = TypeVar("Answer")
_Entity = TypeVar("_Entity", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """A request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[bytes], Answer]
    """Turns the body of the answer into what is returned."""
    body: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Whether it may be sent again when nobody knows if it was carried out."""


def plan(system: SystemLike, options: PlanOptions | None) -> Call[Plan]:
    """Return the request of `plan` of the clients."""
    return _computing("plan", _system(system), options, _document(Plan))


def candidates(system: SystemLike) -> Call[CandidateAnswer]:
    """Return the request of `candidates` of the clients."""
    return _computing("candidates", _system(system), None, _document(CandidateAnswer))


def analyze(analysis: Analysis) -> Call[ReplicaPerformance]:
    """Return the request of `analyze` of the clients."""
    return _computing("analyze", _text(analysis), None, _document(ReplicaPerformance))


def size(problem: SizingProblem) -> Call[ReplicaSizing]:
    """Return the request of `size` of the clients."""
    return _computing("size", _text(problem), None, _document(ReplicaSizing))


def compare(sides: SystemLike | TwoSides, options: CompareOptions | None) -> Call[Comparison]:
    """Return the request of `compare` of the clients."""
    body = _text(sides) if isinstance(sides, TwoSides) else _system(sides)
    return _computing("compare", body, options, _document(Comparison))


def explain(system: SystemLike, options: ExplainOptions | None) -> Call[Explanation]:
    """Return the request of `explain` of the clients."""
    return _computing("explain", _system(system), options, _document(Explanation))


def report(system: SystemLike, options: PlanOptions | None) -> Call[Report]:
    """Return the request of `report` of the clients."""
    return _computing("report", _system(system), options, _document(Report))


def report_page(system: SystemLike, options: ReportOptions) -> Call[str]:
    """Return the request of `report_page` of the clients."""
    return _computing("report", _system(system), options, bytes.decode)


def figure(system: SystemLike, options: FigureOptions) -> Call[Figure]:
    """Return the request of `figure` of the clients."""
    shown = options.model_copy(update={"format": "json"})
    return _computing("figure", _system(system), shown, _document(Figure))


def picture(system: SystemLike, options: FigureOptions) -> Call[bytes]:
    """Return the request of `picture` of the clients."""
    return _computing("figure", _system(system), options, bytes)


def put_loads(loads: Loads, if_match: str | None) -> Call[Plan]:
    """Return the request of `put_loads` of the clients."""
    changes = {name: change.model_dump(by_alias=True, exclude_unset=True) for name, change in loads.items()}
    headers = _condition(if_match)
    return Call(
        "POST", "/v1/loads", _document(Plan), to_json(changes), headers=headers, repeatable=not headers
    )


def last_plan() -> Call[LastPlan]:
    """Return the request of `last_plan` of the clients."""
    return Call("GET", "/v1/plan", _document(LastPlan))


def apply_plan(if_match: str | None) -> Call[ServerList]:
    """Return the request of `apply_plan` of the clients."""
    headers = _condition(if_match)
    return Call("POST", "/v1/plan/apply", _document(ServerList), headers=headers, repeatable=False)


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
    headers = _condition(if_match)
    return Call("PUT", _path_of(entity), _nothing, _text(entity), headers=headers, repeatable=not headers)


def delete(entity: Entity, if_match: str | None) -> Call[None]:
    """Return the request of `delete` of the clients."""
    headers = _condition(if_match)
    return Call("DELETE", _path_of(entity), _nothing, headers=headers, repeatable=not headers)


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
    return "/".join(("/v1", _COLLECTIONS[type(entity)], *(quote(name, safe="") for name in names)))


def _listed(kind: type[_Entity], read: Callable[[bytes], tuple[_Entity, ...]]) -> Call[tuple[_Entity, ...]]:
    return Call("GET", f"/v1/{_COLLECTIONS[kind]}", read)


def _computing(
    route: str, body: bytes, options: ExactOptions | None, read: Callable[[bytes], Answer]
) -> Call[Answer]:
    given = {} if options is None else options.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    params = {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }
    return Call("POST", f"/v1/{route}", read, body, params)


def _condition(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}


def _document(model: type[_Entity]) -> Callable[[bytes], _Entity]:
    return TypeAdapter(model).validate_json


def _nothing(_: bytes) -> None:
    return None


def _text(document: BaseModel) -> bytes:
    return document.model_dump_json(by_alias=True, exclude_unset=True).encode()


def _system(system: SystemLike) -> bytes:
    if isinstance(system, Mapping):
        return to_json(system)
    if not isinstance(system, System | SystemSpec):
        system = load_system(system)
    return _text(system.to_spec() if isinstance(system, System) else system)
