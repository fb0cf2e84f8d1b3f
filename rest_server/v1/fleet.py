"""Routes of the entire fleet under /v1: export, import and history."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Path, Query, Request, Response

from optimizer.documents import WRITTEN_BY_HAND
from optimizer.errors import SpecError
from optimizer.plan import Plan
from optimizer.schema import SystemSpec
from optimizer.schema.files import spec_from_value
from rest_server.fleet import SECTIONS, Entities, key_of
from rest_server.history import Event
from rest_server.limits import check_size
from rest_server.v1.entities import Condition
from rest_server.v1.entity_types import ENTITY_TYPES, check_alone, check_beside
from rest_server.v1.examples import SYSTEMS
from rest_server.v1.models import FleetEvent, FleetHistory, WrappedSystem
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, RawRoute, held_fleet
from rest_server.v1.work import value_of

MAX_SHOWN = 1_000
"""Maximum number of events in one response."""

router = APIRouter(route_class=RawRoute, tags=["fleet"])


@router.get("/fleet", response_model=SystemSpec, summary="Export the fleet", responses=problems())
def export_fleet(request: Request) -> Response:
    """Return the entire fleet as one system document for the library and the command line.

    Models without profiles are omitted, because documents cannot contain them.
    """
    held = held_fleet(request)
    revision, entities = held.read()
    return Response(_text(entities), media_type=JSON, headers={"ETag": held.etag(revision)})


def _text(entities: Entities) -> str:
    """Return a fleet as a document, in which every accelerator has a type, because documents require it."""
    typed = {
        name: item.model_copy(update={"type": item.type}) for name, item in entities.accelerators.items()
    }
    spec = replace(entities, accelerators=typed).spec()
    return spec.model_dump_json(by_alias=True, exclude_unset=True, indent=2)


@router.put(
    "/fleet",
    response_model=SystemSpec,
    summary="Import a fleet",
    responses=problems(408, 412),
)
def import_fleet(
    request: Request,
    body: Annotated[bytes, JsonOf(SystemSpec | WrappedSystem), Body(openapi_examples=SYSTEMS)],
    condition: Condition,
) -> Response:
    """Replace the entire fleet with the system of a document, in one step, and return it.

    As with individual writes, references are not checked until a plan is made. The last plan remains until a
    new one is made.
    """
    spec = spec_from_value(value_of(body), context=WRITTEN_BY_HAND)
    check_size(spec, request.app.state.settings)
    imported = Entities.of(spec)
    _check_items(spec, imported)
    held = held_fleet(request)
    revision, entities = condition.update(held, lambda _: imported, "imported")
    return Response(_text(entities), media_type=JSON, headers={"ETag": held.etag(revision)})


def _check_items(spec: SystemSpec, imported: Entities) -> None:
    """Check every item as for an individual write, and that no name occurs twice."""
    if len(imported.nodes) < len(spec.nodes):
        raise SpecError("nodes: a name occurs twice")
    for entity_type in ENTITY_TYPES:
        seen = set()
        for i, item in enumerate(getattr(spec, SECTIONS[entity_type.section].field)):
            key = key_of(item)
            if key in seen:
                name = " on ".join(map(repr, key))
                raise SpecError(f"{entity_type.section}[{i}]: {entity_type.noun} {name} occurs twice")
            seen.add(key)
            try:
                check_alone(item)
                check_beside(item, imported)
            except SpecError as error:
                raise SpecError(f"{entity_type.section}[{i}].{error}") from None


@router.get("/history", response_model=FleetHistory, summary="Read the history", responses=problems())
def read_history(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_SHOWN, description="Maximum number of events to show.")] = 100,
) -> Response:
    """Return the last changes and plans, newest first, and the revisions of plans that can still be read."""
    history = held_fleet(request).snapshot().history
    shown = FleetHistory(
        events=tuple(_shown(history.events, limit)),
        plans=tuple(plan.revision for plan in reversed(history.plans)),
    )
    return Response(shown.model_dump_json(by_alias=True, exclude_defaults=True, indent=2), media_type=JSON)


def _shown(events: tuple[Event, ...], limit: int) -> Iterator[FleetEvent]:
    for event in reversed(events[-limit:]):
        made_at = datetime.fromtimestamp(event.made_at, UTC)
        changed, plan = dict(event.changed), dict(event.plan)
        yield FleetEvent.taken_from(event, made_at=made_at, changed=changed, plan=plan)


@router.get(
    "/history/plans/{revision}",
    response_model=Plan,
    summary="Read a past plan",
    responses=problems(404),
)
def read_past_plan(request: Request, revision: Annotated[int, Path(ge=0)]) -> Response:
    """Return the plan made for a revision of the fleet, if it is still stored."""
    plans: dict[int, Any] = {item.revision: item for item in held_fleet(request).snapshot().history.plans}
    if revision not in plans:
        kept = ", ".join(map(str, reversed(plans))) or "none"
        raise HTTPException(404, f"no plan for revision {revision} is stored; stored revisions: {kept}")
    return Response(plans[revision].plan().to_json(), media_type=JSON)
