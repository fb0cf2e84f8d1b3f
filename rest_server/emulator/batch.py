"""Emulated batch server: `POST /predict` responds at the end of its batch, or 503 if the queue is full."""

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from optimizer.simulation.batches import BatchServer
from rest_server.emulator.asgi import (
    TEXT,
    BadRequest,
    Dropped,
    Receive,
    Scope,
    Send,
    body_of,
    reply,
    reply_error,
    reply_json,
)
from rest_server.emulator.engine import Engine, LateRejection, watched
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import REQUEST_S, Histogram, family, labels

FULL = "The queue is full; ask another replica."


class BatchReplicaApp:
    """ASGI application of an emulated batch server.

    It can be one of several servers that share a card in time.
    """

    posts: ClassVar[Collection[str]] = ("/predict",)
    """Paths that accept requests."""

    def __init__(self, model: str, server: BatchServer, engine: Engine, life: Life, place: int) -> None:
        """Set up the application of a server.

        Args:
            model: name of the model.
            server: limits of the server.
            engine: the engine, which all servers of a time-shared card have in common.
            life: state of the replica.
            place: index of the server on the card.
        """
        self.engine = engine
        self.life = life
        self._model = model
        self._server = server
        self._place = place
        self._inside = self._completed = self._rejected = 0
        self._latency = Histogram(REQUEST_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request.

        Raises:
            Dropped: the replica breaks the connection.
        """
        self.life.check()
        path = scope["path"]
        if scope["method"] == "POST" and path == "/predict":
            try:
                await body_of(receive)
            except BadRequest as error:
                await reply_error(send, str(error), error.status)
                return
            await self._predict(receive, send)
        elif path in {"/health", "/health_check"}:
            healthy = self.life.is_healthy
            status = "busy" if self._is_full() else "ready" if healthy else "failed"
            await reply_json(send, {"status": status, "model": self._model}, 200 if healthy else 503)
        elif path == "/metrics":
            await reply(send, 200, self._metrics(), TEXT)
        else:
            await reply_error(send, "Not Found", 404)

    async def answer_at_once(self, path: str, body: Mapping[str, Any], send: Send) -> None:  # noqa: ARG002
        """Respond to a request without computing the output."""
        await self._answer(0.0, send)

    @property
    def load(self) -> int:
        """Number of requests in the replica."""
        return self._inside

    @property
    def tokens(self) -> tuple[int, int]:
        """Return zeros, because batch servers process no tokens."""
        return 0, 0

    def _is_full(self) -> bool:
        live = self.engine.live
        counted = live.waiting + (live.running if self._server.counts_system else 0)
        return counted >= self._server.queue_limit

    async def _predict(self, receive: Receive, send: Send) -> None:
        if self.life.refusal is not None:
            await reply_error(send, *self.life.refusal)
            return
        answer, sent_ms = _Answer(), self.engine.now_ms()
        if not self.engine.add(answer, level=self._place):
            await self._reject(send)
            return
        self._inside += 1
        watch = watched(receive, answer)
        try:
            at_ms = await answer.done
        except LateRejection:
            await self._reject(send)
        except MemoryError as error:
            await reply_error(send, str(error), 500)
        except Dropped:
            self.life.check()
        else:
            latency_ms = (at_ms - sent_ms) * self.engine.slowdown
            self._completed += 1
            self._latency.observe(latency_ms / 1000)
            await self._answer(latency_ms, send)
        finally:
            self._inside -= 1
            watch.cancel()
            self.engine.cancel(answer)

    async def _answer(self, latency_ms: float, send: Send) -> None:
        made = {"model": self._model, "created": int(time.time()), "latency_ms": round(latency_ms, 3)}
        await reply_json(send, made)

    async def _reject(self, send: Send) -> None:
        self._rejected += 1
        await reply_error(send, FULL, 503)

    def _metrics(self) -> bytes:
        label, live = labels(model_name=self._model), self.engine.live
        samples = (
            ("requests_waiting", "gauge", "Requests in the queue.", live.waiting),
            ("requests_running", "gauge", "Requests in service.", live.running),
            ("requests_completed_total", "counter", "Complete requests.", self._completed),
            ("requests_rejected_total", "counter", "Requests rejected by a full queue.", self._rejected),
        )
        lines = []
        for name, metric_type, text, value in samples:
            lines += family(f"batch_server_{name}", metric_type, text, {label: value})
        name, text = "batch_server_latency_seconds", "Latency in model time."
        return ("\n".join([*lines, *self._latency.family(name, text, label)]) + "\n").encode()


class _Answer:
    """A request in the engine, which waits for the end of its batch."""

    def __init__(self) -> None:
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def token(self, at_ms: float, *, ended: bool) -> None:  # noqa: ARG002  a batch makes one token a request
        """Handle the token that marks the end of the batch."""
        if not self.done.done():
            self.done.set_result(at_ms)

    def fail(self, error: Exception) -> None:
        """Handle a rejection, or the end of the replica or of the client."""
        if not self.done.done():
            self.done.set_exception(error)
