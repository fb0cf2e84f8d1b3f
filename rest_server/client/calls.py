"""Requests of a client as values, and descriptors that turn them into client methods.

This module itself sends nothing.
"""

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from optimizer.jobs.requests import Request
from optimizer.jobs.study import FLEET, Awaited, Blocking, Fleet
from optimizer.schema import SystemSpec
from optimizer.spec.system import System, load_system

SystemLike = System | SystemSpec | Mapping[str, Any] | str | os.PathLike[str]
"""A system: a `System`, its document, the document as plain values, or the path of a file or directory."""
SystemOrFleet = SystemLike | Literal[Fleet.FLEET]
"""A system, or `FLEET` for the fleet of a stateful service."""
Answer = TypeVar("Answer")
_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """A request to the service, with the function that reads its response."""

    method: str
    path: str
    read: Callable[[bytes], Answer]
    """Function that converts the body of the response, or its `header`, to the returned value."""
    body: bytes | None = None
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    """Whether the request can be sent again if it is unknown whether the service carried it out."""
    waits: bool = True
    """Whether the request is sent again after status 503."""
    header: str | None = None
    """Name of the response header that is read instead of the body; None for the body."""

    def answer(self, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Convert a response to the value that the client method returns."""
        return self.read(content if self.header is None else headers[self.header].encode())


class Sent(Generic[_Arguments, Answer]):
    """Descriptor of a method that both clients have, defined by the request that it sends."""

    def __init__(self, describe: Callable[Concatenate[Any, _Arguments], Call[Answer]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__
        self.__wrapped__ = describe  # for inspect.signature

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[_Arguments, Answer]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Callable[_Arguments, Coroutine[Any, Any, Answer]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> "Sent[_Arguments, Answer]": ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the method of a client, which creates the request and sends it."""
        if client is None:
            return self

        def method(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Any:
            return client.send(self._describe(client, *arguments, **named))

        method.__doc__, method.__wrapped__ = self.__doc__, self._describe.__get__(client)  # type: ignore[attr-defined]
        return method


def computing(
    route: str, body: bytes | None, options: Request | None, read: Callable[[bytes], Answer]
) -> Call[Answer]:
    """Return a request that changes nothing on the service.

    Args:
        route: path below ``/v1``.
        body: body of the request, if there is one.
        options: query parameters.
        read: function that reads the body of the response.
    """
    given = {} if options is None else options.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    params = {
        name: [_query_text(each) for each in value] if isinstance(value, list) else _query_text(value)
        for name, value in given.items()
    }
    return Call("POST", f"/v1/{route}", read, body, params)


def _query_text(value: object) -> str:
    """Return a query parameter's value as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def study(
    route: str, system: SystemOrFleet, options: Request | None, read: Callable[[bytes], Answer]
) -> Call[Answer]:
    """Return the request for a study of a system, or of the fleet, for which no body is sent.

    Args:
        route: name of the study.
        options: query parameters.
        read: function that reads the body of the response.
    """
    if system is FLEET:
        return computing(f"fleet/{route}", None, options, read)
    return computing(route, text_of_system(system), options, read)


def document(model: Any) -> Callable[[bytes], Any]:
    """Return a function that reads the body of a response as a document of a type."""
    return TypeAdapter(model).validate_json


def text(value: BaseModel) -> bytes:
    """Return a document as the body of a request."""
    return value.model_dump_json(by_alias=True, exclude_unset=True).encode()


def text_of_system(system: SystemLike) -> bytes:
    """Return a system as the body of a request.

    Raises:
        SpecError: a path contains no system.
    """
    if isinstance(system, Mapping):
        return to_json(system)
    if not isinstance(system, System | SystemSpec):
        system = load_system(system)
    return text(system.to_spec() if isinstance(system, System) else system)
