"""Requests of /v1: bodies as raw bytes with their OpenAPI schemas, and `If-Match`."""

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ConfigDict, GetJsonSchemaHandler, TypeAdapter, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from optimizer.jobs.flag import details_of
from rest_server.errors import query_names
from rest_server.fleet import Entities
from rest_server.state import FleetStore, RevisionConflictError

JSON = "application/json"
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class JsonOf:
    """Annotation of a parameter of raw bytes that states the type of the content, for OpenAPI."""

    content: Any
    """Document type of the content, or a union of several."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema of the content instead of that of bytes."""
        return handler(TypeAdapter(self.content).core_schema)


class _RawRequest(Request):
    """A request whose body is passed to the handler unparsed."""

    async def json(self) -> bytes:
        """Return the raw body, which the handler parses."""
        return await self.body()


class RawRoute(APIRoute):
    """A route whose handler parses the body itself: only once, like files, and outside the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, which receives the raw body."""
        handler = super().get_route_handler()

        async def raw(request: Request) -> Response:
            received = _RawRequest(request.scope, request.receive)
            await received.body()  # FastAPI would answer 400 to a client that disconnects in the meantime
            return await handler(received)

        return raw


def from_query(model: Any) -> Any:
    """Return the dependency that reads a document of a type from the query parameters.

    Fields that exist only on the command line, such as local files, are not query parameters.
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


def known_query(request: Request) -> None:
    """Check that the route accepts every query parameter of a request.

    Raises:
        RequestValidationError: it does not accept one of them.
    """
    known = query_names(request)
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name)} for name in unknown]
        )


def held_fleet(request: Request) -> FleetStore:
    """Return the fleet of the service that handles a request."""
    held: FleetStore = request.app.state.held
    return held


async def computed(
    request: Request, work: Callable[..., _Answer], *arguments: object, study: bool = False
) -> _Answer:
    """Run work in a solver worker, or in a study worker, with the given arguments and the settings."""
    state = request.app.state
    workers = state.study_workers if study else state.workers
    answer: _Answer = await workers.run(request, partial(work, *arguments, state.settings))
    return answer


@dataclass(frozen=True, slots=True)
class Precondition:
    """Precondition of a write, from the header ``If-Match``."""

    tags: frozenset[str] | None = None
    """Entity tags without quotes, one of which must match; None accepts any revision."""
    must_exist: bool = False
    """Whether the item to write must exist, as for ``If-Match: *``."""

    def require(self, *, present: bool) -> None:
        """Check that the item to write exists, if the precondition requires it.

        Raises:
            HTTPException: 412, the item does not exist.
        """
        if self.must_exist and not present:
            raise HTTPException(412, "If-Match: there is nothing here yet that could match")

    def update(
        self,
        held: FleetStore,
        change: Callable[[Entities], Entities],
        cause: str = "change",
        sent: Collection[str] | None = None,
    ) -> tuple[int, Entities]:
        """Change the fleet atomically if the precondition is met.

        Args:
            change: function that returns the changed items.
            cause: cause of the change, for the history.
            sent: servers and routes whose arrival rate was sent; None if documents were sent.

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
            return held.update(change, if_revision=wanted, cause=cause, sent=sent)
        except RevisionConflictError as error:
            tag = held.etag(error.current)
            raise _refused(f"the fleet is now at revision {tag[1:-1]}", tag) from None


def _refused(problem: str, tag: str) -> HTTPException:
    return HTTPException(412, f"If-Match: {problem}; read it again", headers={"ETag": tag})


def precondition(
    if_match: Annotated[
        str | None, Header(description="Required revision (`ETag`); 412 if the fleet is at another.")
    ] = None,
) -> Precondition:
    """Read the header ``If-Match``; by RFC 9110, a weak or unreadable tag matches nothing."""
    if if_match is None:
        return Precondition()
    if if_match.strip() == "*":
        return Precondition(must_exist=True)
    return Precondition(frozenset(tag.strip().strip('"') for tag in if_match.split(",")))
