"""The entities of a stateful fleet under /v1: list, read, replace and delete, in the same way for all kinds.

A write validates only the document; references to other entities are checked when a plan is made. The
``ETag`` of every answer is the fleet's revision, and ``If-Match`` makes a write conditional on it. The
handlers are plain functions that run in threads, because checking a long document takes time.
"""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, HTTPException, Request, Response

from optimizer.documents import Document
from optimizer.errors import SpecError
from optimizer.schema import OptimizerOptions
from optimizer.schema.messages import validated
from rest_server.fleet import Entities
from rest_server.limits import check_size
from rest_server.v1.examples import ENTITIES
from rest_server.v1.kinds import ENTITY_KINDS, EntityKind, Key, check_alone, check_beside
from rest_server.v1.problems import problems
from rest_server.v1.requests import JSON, JsonOf, Precondition, RawRoute, held_fleet, precondition
from rest_server.v1.work import value_of

Condition = Annotated[Precondition, Depends(precondition)]


def entities_router() -> APIRouter:
    """Return the routes of all kinds of entities, and of the optimizer's options."""
    router = APIRouter(route_class=RawRoute, tags=["fleet"])
    for kind in ENTITY_KINDS:
        _add_reads(router, kind)
        _add_put(router, kind)
        _add_delete(router, kind)
    _add_options(router)
    return router


def _add_reads(router: APIRouter, kind: EntityKind) -> None:
    @router.get(
        kind.path,
        response_model=kind.listing,
        summary=f"List every {kind.noun}",
        name=f"list_{kind.path[1:]}".replace("-", "_"),
        responses=problems(),
    )
    def list_all(request: Request) -> Response:
        revision, entities = held_fleet(request).read()
        sections: dict[str, Any] = {kind.section: tuple(kind.items(entities).values())}
        return _answer(request, kind.listing.model_construct(**sections), revision)

    @router.get(
        kind.one,
        response_model=kind.document,
        summary=f"Read one {kind.noun}",
        name=f"read_{kind.noun}".replace(" ", "_"),
        responses=problems(404),
    )
    def read_one(request: Request, key: Annotated[Key, Depends(kind.key)]) -> Response:
        revision, entities = held_fleet(request).read()
        return _answer(request, _found(kind, entities, key), revision)


def _add_put(router: APIRouter, kind: EntityKind) -> None:
    shape = Body(openapi_examples=ENTITIES[kind.section])

    @router.put(
        kind.one,
        response_model=kind.document,
        summary=f"Add or replace one {kind.noun}",
        name=f"put_{kind.noun}".replace(" ", "_"),
        responses=problems(404, 408, 412) | {201: {"model": kind.document, "description": "Added"}},
    )
    def put_one(
        request: Request,
        key: Annotated[Key, Depends(kind.key)],
        body: Annotated[bytes, JsonOf(kind.document), shape],
        condition: Condition,
    ) -> Response:
        document = _read(kind, body, key)
        replaced: list[bool] = []

        def put(entities: Entities) -> Entities:
            replaced[:] = [key in kind.items(entities)]
            condition.require(present=replaced[0])
            check_beside(document, entities)
            changed = kind.changed(entities, key, document)
            check_size(changed.spec(), request.app.state.settings)
            return changed

        revision, _ = condition.update(held_fleet(request), put)
        return _answer(request, document, revision, status=200 if replaced[0] else 201)


def _add_delete(router: APIRouter, kind: EntityKind) -> None:
    @router.delete(
        kind.one,
        status_code=204,
        summary=f"Delete one {kind.noun}",
        name=f"delete_{kind.noun}".replace(" ", "_"),
        responses=problems(404, 412),
    )
    def delete_one(
        request: Request, key: Annotated[Key, Depends(kind.key)], condition: Condition
    ) -> Response:
        def delete(entities: Entities) -> Entities:
            _found(kind, entities, key)
            return kind.changed(entities, key, None)

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


def _found(kind: EntityKind, entities: Entities, key: Key) -> Document:
    document = kind.items(entities).get(key)
    if document is None:
        raise HTTPException(404, f"{kind.noun} {' on '.join(map(repr, key))} does not exist")
    return document


def _read(kind: EntityKind, body: bytes, key: Key) -> Document:
    """Return the document in a body; an omitted name is taken from the path."""
    raw = value_of(body)
    given = {name.lower() for name in raw}
    in_path = dict(zip(kind.key_fields, key, strict=True))
    document = validated(kind.document, raw | {f: name for f, name in in_path.items() if f not in given})
    for field, name, stated in zip(kind.key_fields, key, kind.key_of(document), strict=True):
        if name != stated:
            raise SpecError(f"{field}: must be {name!r} as in the path, not {stated!r}")
    check_alone(document)
    return document


def _answer(request: Request, document: Document, revision: int, status: int = 200) -> Response:
    text = document.to_json()
    return Response(text, status, _tag(request, revision), JSON)


def _tag(request: Request, revision: int) -> dict[str, str]:
    return {"ETag": held_fleet(request).etag(revision)}
