"""Items of a stateful fleet under /v1: list, read, replace and delete, in the same way for all types.

A write validates only its document; references to other items are checked when a plan is made. The ``ETag``
of every response is the fleet's revision, and ``If-Match`` makes a write conditional on it. The handlers are
plain functions that run in threads, because checking a long document takes time.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, HTTPException, Request, Response

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.schema import OptimizerOptions
from optimizer.schema.messages import validated
from rest_server.fleet import Entities, Key, key_of
from rest_server.limits import check_size
from rest_server.v1.entity_types import ENTITY_TYPES, EntityType, check_alone, check_beside
from rest_server.v1.examples import ENTITIES
from rest_server.v1.models import ServerList
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, Precondition, RawRoute, held_fleet, precondition
from rest_server.v1.work import value_of

Condition = Annotated[Precondition, Depends(precondition)]


def entities_router() -> APIRouter:
    """Return the routes of all types of items, and of the optimizer's options."""
    router = APIRouter(route_class=RawRoute, tags=["fleet"])
    for entity_type in ENTITY_TYPES:
        _add_reads(router, entity_type)
        _add_put(router, entity_type)
        _add_delete(router, entity_type)
    _add_options(router)
    return router


def _add_reads(router: APIRouter, entity_type: EntityType) -> None:
    @router.get(
        entity_type.path,
        response_model=entity_type.listing,
        summary=f"List every {entity_type.noun}",
        name=f"list_{entity_type.path[1:]}".replace("-", "_"),
        responses=problems(),
    )
    def list_all(request: Request) -> Response:
        now = held_fleet(request).snapshot()
        field = entity_type.section
        sections: dict[str, Any] = {field: tuple(entity_type.items(now.entities).values())}
        if entity_type.listing is ServerList:
            times = now.planned_loads_sent_at.items()
            sections["load_sent_at"] = {name: datetime.fromtimestamp(at_s, UTC) for name, at_s in times}
        return _answer(request, entity_type.listing.model_construct(**sections), now.revision)

    @router.get(
        entity_type.one,
        response_model=entity_type.document,
        summary=f"Read one {entity_type.noun}",
        name=f"read_{entity_type.noun}".replace(" ", "_"),
        responses=problems(404),
    )
    def read_one(request: Request, key: Annotated[Key, Depends(entity_type.key)]) -> Response:
        revision, entities = held_fleet(request).read()
        return _answer(request, _found(entity_type, entities, key), revision)


def _add_put(router: APIRouter, entity_type: EntityType) -> None:
    shape = Body(openapi_examples=ENTITIES[entity_type.section])

    @router.put(
        entity_type.one,
        response_model=entity_type.document,
        summary=f"Add or replace one {entity_type.noun}",
        name=f"put_{entity_type.noun}".replace(" ", "_"),
        responses=problems(404, 408, 412) | {201: {"model": entity_type.document, "description": "Added"}},
    )
    def put_one(
        request: Request,
        key: Annotated[Key, Depends(entity_type.key)],
        body: Annotated[bytes, JsonOf(entity_type.document), shape],
        condition: Condition,
    ) -> Response:
        document = _read(entity_type, body, key)
        replaced: list[bool] = []

        def put(entities: Entities) -> Entities:
            replaced[:] = [entity_type.item(entities, key) is not None]
            condition.require(present=replaced[0])
            check_beside(document, entities)
            changed = entity_type.changed(entities, key, document)
            check_size(changed.spec(), request.app.state.settings)
            return changed

        revision, _ = condition.update(held_fleet(request), put)
        return _answer(request, document, revision, status=200 if replaced[0] else 201)


def _add_delete(router: APIRouter, entity_type: EntityType) -> None:
    @router.delete(
        entity_type.one,
        status_code=204,
        summary=f"Delete one {entity_type.noun}",
        name=f"delete_{entity_type.noun}".replace(" ", "_"),
        responses=problems(404, 412),
    )
    def delete_one(
        request: Request, key: Annotated[Key, Depends(entity_type.key)], condition: Condition
    ) -> Response:
        def delete(entities: Entities) -> Entities:
            _found(entity_type, entities, key)
            return entity_type.changed(entities, key, None)

        revision, _ = condition.update(held_fleet(request), delete)
        return Response(status_code=204, headers=_tag(request, revision))


def _add_options(router: APIRouter) -> None:
    path, options = "/optimizer", OptimizerOptions

    @router.get(path, response_model=options, summary="Read the options", responses=problems())
    def read_options(request: Request) -> Response:
        revision, entities = held_fleet(request).read()
        return _answer(request, entities.optimizer, revision)

    @router.put(path, response_model=options, summary="Replace the options", responses=problems(408, 412))
    def put_options(
        request: Request,
        body: Annotated[bytes, JsonOf(options), Body(openapi_examples=ENTITIES["optimizer"])],
        condition: Condition,
    ) -> Response:
        """Replace all options; omitted options take their defaults."""
        given = validated(OptimizerOptions, value_of(body))
        revision, _ = condition.update(held_fleet(request), lambda old: replace(old, optimizer=given))
        return _answer(request, given, revision)

    @router.delete(path, status_code=204, summary="Restore the default options", responses=problems(412))
    def delete_options(request: Request, condition: Condition) -> Response:
        default = OptimizerOptions()
        revision, _ = condition.update(held_fleet(request), lambda old: replace(old, optimizer=default))
        return Response(status_code=204, headers=_tag(request, revision))


def _found(entity_type: EntityType, entities: Entities, key: Key) -> Document:
    document = entity_type.item(entities, key)
    if document is None:
        raise HTTPException(404, f"{entity_type.noun} {' on '.join(map(repr, key))} does not exist")
    return document


def _read(entity_type: EntityType, body: bytes, key: Key) -> Document:
    """Validate the document in a request body; if it has no name, the name is taken from the path."""
    raw = value_of(body)
    given = {name.lower() for name in raw}
    in_path = dict(zip(entity_type.key_fields, key, strict=True))
    document = validated(
        entity_type.document, raw | {f: name for f, name in in_path.items() if f not in given}
    )
    for field, name, stated in zip(entity_type.key_fields, key, key_of(document), strict=True):
        if name != stated:
            raise SpecError(f"{field}: must be {name!r} as in the path, not {stated!r}")
    check_alone(document)
    return document


def _answer(request: Request, document: Document, revision: int, status: int = 200) -> Response:
    text = document.to_json()
    return Response(text, status, _tag(request, revision), JSON)


def _tag(request: Request, revision: int) -> dict[str, str]:
    return {"ETag": held_fleet(request).etag(revision)}
