"""A request on its way through the router, and the interface of the router's steps."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote, unquote

from rest_server.emulator.asgi import BadRequest, Receive, Scope, Send

PATH_HEADER = b"x-inferplan-path"
"""Response header that states what happened to a request: `server=chat (chat-2); version=chat-2; …`."""
PLAIN = " ()"
"""Characters of names that the header contains unescaped."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a request is not served; nothing has been sent to its client."""

    status: int
    text: str


@dataclass(slots=True)
class ForwardedRequest:
    """A request on its way through the steps of the router."""

    scope: Scope
    content: bytes
    body: Mapping[str, Any]
    receive: Receive
    send: Send
    server: str
    """Server that should serve the request, which steps narrow down; empty if any replica of the model can.
    """
    notes: dict[str, str] = field(default_factory=dict)
    """Notes on what has happened to the request so far, by name."""
    is_broken: bool = False
    """Whether the response ended early, after its first token."""

    @property
    def path(self) -> str:
        """Path of the request's URL."""
        path: str = self.scope["path"]
        return path

    def header(self, name: bytes) -> str:
        """Return the value of a request header; empty if there is none."""
        return unquote(dict(self.scope["headers"]).get(name, b"").decode("latin-1"))

    async def answer(self, message: MutableMapping[str, Any]) -> None:
        """Send a part of the response to the client, with the notes in the headers."""
        if message["type"] == "http.response.start":
            header = PATH_HEADER, written({"server": self.server} | self.notes).encode()
            message = {**message, "headers": [*message["headers"], header]}
        await self.send(message)


Onward = Callable[[ForwardedRequest], Awaitable[Refusal | None]]
"""Function that passes a request on to the next steps; it returns None once the response has started."""


class RouterStep:
    """A step through which all requests pass."""

    prefix: ClassVar[str] = ""
    """Prefix of the paths that the step serves itself; empty if there are none."""
    enter: Onward
    """Function that passes a request through all steps, for requests that a step sends itself."""

    @property
    def names(self) -> Iterable[str]:
        """Names, in addition to those of replicas, that requests can state as their server."""
        return ()

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Pass a request on, or respond to it."""
        return await onward(call)

    async def control(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """Respond to a request of an operator; return the HTTP status and the body.

        Args:
            path: rest of the path after `prefix`.
            body: JSON object of a POST request; None for a GET request.
        """
        raise BadRequest(f"no such page: {path}, {body}", 404)

    def metrics(self) -> list[str]:
        """Return the metrics of the step as lines of Prometheus' text format."""
        return []


def written(notes: Mapping[str, str]) -> str:
    """Return notes as the value of a header."""
    return "; ".join(f"{name}={quote(value, safe=PLAIN)}" for name, value in notes.items())


def read_notes(text: str) -> dict[str, str]:
    """Return the notes in the value of a header."""
    pairs = (part.partition("=") for part in text.strip().split("; "))
    return {name: unquote(value) for name, _, value in pairs}
