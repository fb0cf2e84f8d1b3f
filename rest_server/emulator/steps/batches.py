"""Offline batches: many requests that are sent as fast as replicas accept them, up to a deadline.

An operator submits a batch, asks for its status, and gets a callback when it ends. A request that no replica
accepts is sent again later, so a full queue delays a batch but does not fail it.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, ClassVar, Literal

from optimizer.spec.system import System
from optimizer.units import MINUTES_PER_HOUR, SECONDS_PER_MINUTE
from rest_server.emulator.asgi import JSON, BadRequest, encoded
from rest_server.emulator.backend import UNLIMITED_SLOTS, Backend
from rest_server.emulator.metrics import family, labels
from rest_server.emulator.outgoing import response_to
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import ForwardedRequest, Refusal, RouterStep

BatchStatus = Literal["in_progress", "completed", "expired", "cancelled"]
MAX_REQUESTS = 1_000_000
AHEAD = 2
"""Number of requests in progress per slot of the replicas, so that no slot waits for the next request."""
RETRY_S = 0.2
"""Time until a request that no replica accepted is sent again [s of model time]."""
CALLBACK_TRIES = 3
CALLBACK_S = 2.0
"""Time limit of a callback, and time between two attempts [s]."""


@dataclass(slots=True)
class _Batch:
    """An offline batch and its progress."""

    number: int
    endpoint: str
    server: str
    bodies: Sequence[Mapping[str, Any]]
    total: int
    """Number of requests of the batch; if there are fewer bodies, they repeat."""
    deadline_s: float | None
    """Time limit for the entire batch [s of model time]; None if there is no deadline."""
    callback: str | None
    created_s: float = field(default_factory=time.time)
    status: BatchStatus = "in_progress"
    completed: int = 0
    failed: int = 0
    spent_s: float | None = None
    """Time from the start to the end of the batch [s of model time]; None until it ends."""
    called_back: bool | None = None
    task: "asyncio.Task[None] | None" = None

    def shown(self) -> dict[str, Any]:
        """Return the batch and its progress as JSON."""
        return {
            "id": f"batch_{self.number}", "object": "batch", "endpoint": self.endpoint,
            "server": self.server, "status": self.status, "created_at": int(self.created_s),
            "deadline": self.deadline_s, "seconds": self.spent_s, "callback": self.callback,
            "called_back": self.called_back,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
        }  # fmt: skip


class Batches(RouterStep):
    """Step that runs offline batches, whose requests pass through all steps."""

    prefix: ClassVar[str] = "/v1/batches"

    def __init__(self, system: System, settings: FleetSettings, backends: Sequence[Backend]) -> None:
        self._deadlines_s = {
            name: server.deadline.hours * MINUTES_PER_HOUR * SECONDS_PER_MINUTE
            for name, server in system.documented.items()
            if server.deadline is not None
        }
        self._backends = backends
        self._speed = settings.speed
        self._batches: dict[str, _Batch] = {}
        self._numbers = itertools.count(1)

    async def control(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, Mapping[str, Any]]:
        """Submit, list, show or cancel batches; return the HTTP status and the body.

        Raises:
            BadRequest: there is no such batch, or a field is wrong.
        """
        if not path:
            if body is None:
                return 200, {"object": "list", "data": [one.shown() for one in self._batches.values()]}
            batch = self._asked(body)
            self._batches[f"batch_{batch.number}"] = batch
            batch.task = asyncio.create_task(self._run(batch))
            return 200, batch.shown()
        name, _, verb = path.partition("/")
        control = self._batches.get(name)
        if control is None or verb not in {"", "cancel"}:
            raise BadRequest(f"no batch {path!r}; GET {self.prefix} lists them", 404)
        if verb and body is not None and control.task is not None and control.status == "in_progress":
            control.task.cancel()
            with suppress(asyncio.CancelledError):
                await control.task
        return 200, control.shown()

    def metrics(self) -> list[str]:
        """Return metrics of the requests of all batches, as lines of Prometheus' text format."""
        samples = {
            labels(batch=name, result=result): getattr(one, result)
            for name, one in self._batches.items()
            for result in ("completed", "failed")
        }
        text = "Requests of offline batches with an answer."
        return family("inferplan_router_batch_requests_total", "counter", text, samples)

    def _asked(self, body: Mapping[str, Any]) -> _Batch:
        """Return the batch that an operator's request describes.

        Raises:
            BadRequest: a field is invalid.
        """
        endpoint, bodies = body.get("endpoint"), body.get("requests", [{}])
        if not isinstance(endpoint, str) or not any(endpoint in one.app.posts for one in self._backends):
            raise BadRequest(f"endpoint: must be a path that a replica serves, not {endpoint!r}")
        if not isinstance(bodies, list) or not bodies or not all(isinstance(one, dict) for one in bodies):
            raise BadRequest("requests: must be a list of the JSON objects of requests")
        total = body.get("count", len(bodies))
        if type(total) is not int or not 1 <= total <= MAX_REQUESTS:
            raise BadRequest(f"count: must be an integer from 1 to {MAX_REQUESTS:,}, not {total!r}")
        server = str(body.get("server", ""))
        deadline_s = body.get("deadline", self._deadlines_s.get(server))
        if deadline_s is not None and (type(deadline_s) not in {int, float} or not 0 < deadline_s < 1e9):
            raise BadRequest(
                f"deadline: must be a number of seconds above 0 and below 1e9, not {deadline_s!r}"
            )
        callback = body.get("callback")
        if callback is not None and not str(callback).startswith("http://"):
            raise BadRequest(f"callback: must look like 'http://127.0.0.1:9000/done', not {callback!r}")
        return _Batch(next(self._numbers), endpoint, server, bodies, total, deadline_s, callback)

    async def _run(self, batch: _Batch) -> None:
        """Send all requests of a batch, and report its end to the callback."""
        began_s, rows = time.monotonic(), iter(range(batch.total))

        async def work() -> None:
            for row in rows:
                await self._send(batch, batch.bodies[row % len(batch.bodies)])

        slots = sum(
            1 if one.slots == UNLIMITED_SLOTS else one.slots
            for one in self._backends
            if batch.endpoint in one.app.posts and batch.server in {"", *one.servers}
        )
        limit_s = None if batch.deadline_s is None else batch.deadline_s / self._speed
        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
                for _ in range(min(AHEAD * max(slots, 1), batch.total)):
                    group.create_task(work())
            batch.status = "completed"
        except TimeoutError:
            batch.status = "expired"
        except asyncio.CancelledError:
            batch.status = "cancelled"
            raise
        finally:
            batch.spent_s = round((time.monotonic() - began_s) * self._speed, 3)
        if batch.callback is not None:
            batch.called_back = await _call_back(batch.callback, encoded(batch.shown()))

    async def _send(self, batch: _Batch, body: Mapping[str, Any]) -> None:
        """Send a request repeatedly until a replica accepts it."""
        scope = {"type": "http", "method": "POST", "path": batch.endpoint, "headers": []}
        status = 0

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        never_hangs_up = asyncio.get_running_loop().create_future
        refusal: Refusal | None = Refusal(503, "")
        while refusal is not None:
            call = ForwardedRequest(dict(scope), encoded(body), body, never_hangs_up, send, batch.server)
            try:
                refusal = await self.enter(call)
            except BadRequest as error:
                status, refusal = error.status, None
            if refusal is not None:
                await asyncio.sleep(RETRY_S / self._speed)
        is_complete = status < 400 and not call.is_broken
        batch.completed += is_complete
        batch.failed += not is_complete


async def _call_back(url: str, content: bytes) -> bool:
    """Report the end of a batch to an address, and return whether it was received."""
    headers = {"Content-Type": JSON.decode()}
    for _ in range(CALLBACK_TRIES):
        with suppress(OSError, HTTPException):
            await asyncio.to_thread(response_to, "POST", url, content, headers, CALLBACK_S)
            return True
        await asyncio.sleep(CALLBACK_S)
    return False
