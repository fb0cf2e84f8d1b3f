"""Requests of /v1: bodies as raw bytes whose content OpenAPI describes, and `If-Match`."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, HTTPException, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import ConfigDict, GetJsonSchemaHandler, TypeAdapter, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from optimizer.jobs.flag import details_of
from rest_server.fleet import Entities
from rest_server.state import FleetStore, RevisionConflictError

JSON = "application/json"
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class JsonOf:
    """Marks a parameter of raw bytes with what they hold, for OpenAPI."""

    content: Any
    """A document, or a union of several."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema of the content instead of that of bytes."""
        return handler(TypeAdapter(self.content).core_schema)


class _RawRequest(Request):
    """A request whose body is handed over as it came."""

    async def json(self) -> bytes:
        """Return the body itself: the handler parses it."""
        return await self.body()


class RawRoute(APIRoute):
    """A route whose handler parses the body: once, as files are parsed, and off the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, made to see the raw body."""
        handler = super().get_route_handler()

        async def raw(request: Request) -> Response:
            received = _RawRequest(request.scope, request.receive)
            await received.body()  # FastAPI would answer 400 to a client that leaves meanwhile
            return await handler(received)

        return raw


def from_query(model: Any) -> Any:
    """Return the dependency that reads a request from the query parameters.

    Fields that only the command line has, such as files of its machine, are no query parameters.
    """
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in model.model_fields.items()
        if (flag := details_of(field)) is None or flag.only != "command"
    }
    query = create_model(model.__name__, __config__=ConfigDict(extra="forbid"), **fields)

    def read(values: Annotated[Any, Query()]) -> Any:
        return model(**values.model_dump(exclude_unset=True))

    read.__annotations__["values"] = Annotated[query, Query()]
    return Depends(read)


def held_fleet(request: Request) -> FleetStore:
    """Return the fleet that the service holds."""
    held: FleetStore = request.app.state.held
    return held


async def computed(
    request: Request, work: Callable[..., _Answer], *arguments: object, study: bool = False
) -> _Answer:
    """Run work with arguments and the settings in a solver worker, or in one for studies."""
    state = request.app.state
    workers = state.study_workers if study else state.workers
    answer: _Answer = await workers.run(request, partial(work, *arguments, state.settings))
    return answer


@dataclass(frozen=True, slots=True)
class Precondition:
    """Precondition of a write (``If-Match``)."""

    tags: frozenset[str] | None = None
    """Entity tags, without quotes, one of which must match; None: any revision."""
    must_exist: bool = False
    """Whether what is written must be there already (``If-Match: *``)."""

    def require(self, *, present: bool) -> None:
        """Refuse to write a missing item if it must exist.

        Raises:
            HTTPException: 412, it is not there.
        """
        if self.must_exist and not present:
            raise HTTPException(412, "If-Match: there is nothing here yet that could match")

    def update(
        self, held: FleetStore, change: Callable[[Entities], Entities], cause: str = "change"
    ) -> tuple[int, Entities]:
        """Change the fleet if the precondition holds, as one step; the history names the cause.

        Raises:
            HTTPException: 412, the fleet is at another revision.
        """
        wanted = None
        if self.tags is not None:
            wanted, _ = held.read()
            tag = held.etag(wanted)
            if tag[1:-1] not in self.tags:
                meant = ", ".join(sorted(self.tags))
                raise _refused(f"the fleet is at revision {tag[1:-1]}, not {meant}", tag)
        try:
            return held.update(change, if_revision=wanted, cause=cause)
        except RevisionConflictError as error:
            tag = held.etag(error.current)
            raise _refused(f"the fleet is now at revision {tag[1:-1]}", tag) from None


def _refused(problem: str, tag: str) -> HTTPException:
    return HTTPException(412, f"If-Match: {problem}; read it again", headers={"ETag": tag})


def precondition(
    if_match: Annotated[
        str | None, Header(description="Revision (`ETag`) that the write is meant for; 412 if it is another.")
    ] = None,
) -> Precondition:
    """Read ``If-Match``; a weak or unreadable tag matches nothing, as RFC 9110 has it."""
    if if_match is None:
        return Precondition()
    if if_match.strip() == "*":
        return Precondition(must_exist=True)
    return Precondition(frozenset(tag.strip().strip('"') for tag in if_match.split(",")))
