"""A request on its way through the router, and the interface of its steps."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from rest_server.emulator.asgi import BadRequest, Receive, Scope, Send

PATH_HEADER = b"x-inferplan-path"
"""Header of answers with what happened to the request: `server=chat (chat-2); version=chat-2; …`."""
PLAIN = " ()"
"""Characters of names that the header shows as they are."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason that a request has no answer; nothing has been sent to its client."""

    status: int
    text: str


@dataclass(slots=True)
class ForwardedRequest:
    """A request on its way."""

    scope: Scope
    content: bytes
    body: Mapping[str, Any]
    receive: Receive
    send: Send
    server: str
    """Server that is to answer, which steps narrow down; empty if any replica of the model can."""
    notes: dict[str, str] = field(default_factory=dict)
    """What happened to it so far."""
    is_broken: bool = False
    """Whether its answer ended after the first token."""

    @property
    def path(self) -> str:
        """Path of its URL."""
        path: str = self.scope["path"]
        return path

    def header(self, name: bytes) -> str:
        """Return a header; empty if there is none."""
        return unquote(dict(self.scope["headers"]).get(name, b"").decode("latin-1"))

    async def answer(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the answer to the client, with the notes in the headers."""
        if message["type"] == "http.response.start":
            header = PATH_HEADER, written({"server": self.server} | self.notes).encode()
            message = {**message, "headers": [*message["headers"], header]}
        await self.send(message)


Onward = Callable[[ForwardedRequest], Awaitable[Refusal | None]]
"""Function for the further steps of a request; it returns None once the response has started."""


class RouterStep:
    """A step of the way of all requests."""

    prefix: ClassVar[str] = ""
    """Start of the paths that it answers itself; empty if there are none."""
    enter: Onward
    """All steps from the first, for requests that a step sends itself."""

    @property
    def names(self) -> Iterable[str]:
        """Names that requests can state as their server beyond those of replicas."""
        return ()

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Pass a request on, or answer it."""
        return await onward(call)

    async def control(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """Answer a request of an operator.

        Args:
            path: rest of the path after `prefix`.
            body: JSON object of a POST; None for a GET.
        """
        raise BadRequest(f"no such page: {path}, {body}", 404)

    def metrics(self) -> list[str]:
        """Return metrics in Prometheus's text format."""
        return []


def written(notes: Mapping[str, str]) -> str:
    """Return notes as the value of a header."""
    return "; ".join(f"{name}={quote(value, safe=PLAIN)}" for name, value in notes.items())


def read_notes(text: str) -> dict[str, str]:
    """Return the notes in the value of a header."""
    pairs = (part.partition("=") for part in text.strip().split("; "))
    return {name: unquote(value) for name, _, value in pairs}
