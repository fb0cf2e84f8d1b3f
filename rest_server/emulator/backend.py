"""Replicas as the router knows them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from rest_server.emulator.asgi import Receive, Scope, Send
from rest_server.emulator.life import Life

UNLIMITED_SLOTS = 1_000_000_000


class ReplicaApp(Protocol):
    """What the router needs of a replica."""

    posts: ClassVar[Collection[str]]
    life: Life

    @property
    def load(self) -> int:
        """Number of requests in the replica, including those that wait."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of prompts and answers so far."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    async def answer_at_once(self, path: str, body: Mapping[str, Any], send: Send) -> None:
        """Send the answer to a request without computing it, as a cache does."""


@dataclass(slots=True)
class Backend:
    """A replica of a server."""

    id: str
    servers: tuple[str, ...]
    planned: str
    """Name under which the servers are planned: that of the server, the version or the shared queue."""
    model: str
    accelerator: str
    url: str
    app: ReplicaApp
    delay_ms: Mapping[str, float] = field(default_factory=dict)
    """Network time between the clients of a server and this replica [ms], by server."""
    slots: int = UNLIMITED_SLOTS
    """Largest batch."""
    rate_rps: float = 1.0
    """Planned load [requests/s]."""
    price: tuple[float, float] | None = None
    """Price of a million tokens of prompts and of answers [cents]; None if it runs on a card."""
    is_healthy: bool = True
    requests: int = 0
    retried: int = 0
