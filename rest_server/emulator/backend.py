"""Replicas of an emulated fleet, as the router uses them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from rest_server.emulator.asgi import Receive, Scope, Send
from rest_server.emulator.life import Life

UNLIMITED_SLOTS = 1_000_000_000


class ReplicaApp(Protocol):
    """Interface of a replica's application that the router needs."""

    posts: ClassVar[Collection[str]]
    life: Life

    @property
    def load(self) -> int:
        """Number of requests in the replica, including waiting ones."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Numbers of prompt tokens and output tokens that the replica has processed."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""

    async def answer_at_once(self, path: str, body: Mapping[str, Any], send: Send) -> None:
        """Respond to a request without computing the output, as a result cache does."""


@dataclass(slots=True)
class Backend:
    """A replica of a server, with what the router knows about it."""

    id: str
    servers: tuple[str, ...]
    planned: str
    """Name under which its servers are planned: that of the server, the version or the shared queue."""
    model: str
    accelerator: str
    url: str
    app: ReplicaApp
    delay_ms: Mapping[str, float] = field(default_factory=dict)
    """Network latency between the clients of a server and this replica [ms], by server."""
    slots: int = UNLIMITED_SLOTS
    """Batch limit of the replica [requests]."""
    rate_rps: float = 1.0
    """Planned load of the replica [requests/s]."""
    price: tuple[float, float] | None = None
    """Price of a million prompt tokens and of a million output tokens [cents]; None if it runs on own cards.
    """
    is_healthy: bool = True
    requests: int = 0
    retried: int = 0
