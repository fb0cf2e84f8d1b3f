"""Replicas of an emulated fleet, as the router uses them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rest_server.emulator.asgi import TEXT, BadRequest, Receive, Scope, Send, body_of, reply, reply_error
from rest_server.emulator.engine import Engine
from rest_server.emulator.life import Life

UNLIMITED_SLOTS = 1_000_000_000


class ReplicaApp(ABC):
    """ASGI application of an emulated replica."""

    posts: ClassVar[Collection[str]]
    """Paths that accept requests."""
    role: ClassVar[str] = ""
    """Role of the replica: `prefill`, `decode`, or empty if it serves entire requests."""

    def __init__(self, engine: Engine, life: Life) -> None:
        self.engine = engine
        self.life = life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request.

        Raises:
            Dropped: the replica breaks the connection.
        """
        self.life.check()
        path = scope["path"]
        try:
            if scope["method"] != "POST":
                await self.get(path, send)
            elif path in self.posts:
                await self.post(scope, await body_of(receive), receive, send)
            else:
                await reply_error(send, "Not Found", 404)
        except BadRequest as error:
            await reply_error(send, str(error), error.status)

    async def get(self, path: str, send: Send) -> None:
        """Respond to a GET request."""
        if path != "/metrics":
            raise BadRequest("Not Found", 404)
        await reply(send, 200, self.metrics_text(), TEXT)

    @abstractmethod
    async def post(self, scope: Scope, content: bytes, receive: Receive, send: Send) -> None:
        """Respond to a request whose body has been read."""

    @abstractmethod
    async def answer_at_once(self, path: str, body: Mapping[str, Any], send: Send) -> None:
        """Respond to a request without computing the output, as a result cache does."""

    @abstractmethod
    def metrics_text(self) -> bytes:
        """Return the metrics of the replica in Prometheus' text format."""

    @property
    @abstractmethod
    def load(self) -> int:
        """Number of requests in the replica, including waiting ones."""

    @property
    def tokens(self) -> tuple[int, int]:
        """Number of prompt tokens of complete requests, and number of output tokens made."""
        return 0, 0


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
    owner: str = ""
    """Server whose requests its prefill or decode pool serves; empty for other replicas."""
    is_healthy: bool = True
    requests: int = 0
    retried: int = 0
