"""Emulated batch server: `POST /predict` responds at the end of its batch, or 503 if the queue is full."""

import time
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from optimizer.simulation.batches import BatchServer
from rest_server.emulator.asgi import Dropped, Receive, Scope, Send, reply_error, reply_json
from rest_server.emulator.backend import ReplicaApp
from rest_server.emulator.engine import Engine, EngineCall, LateRejection
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import REQUEST_S, Histogram, family, labels

FULL = "The queue is full; ask another replica."


class BatchReplicaApp(ReplicaApp):
    """ASGI application of an emulated batch server.

    It can be one of several servers that share a card in time.
    """

    posts: ClassVar[Collection[str]] = ("/predict",)

    def __init__(self, model: str, server: BatchServer, engine: Engine, life: Life, place: int) -> None:
        """Set up the application of a server.

        Args:
            model: name of the model.
            server: limits of the server.
            engine: the engine, which all servers of a time-shared card have in common.
            life: state of the replica.
            place: index of the server on the card.
        """
        super().__init__(engine, life)
        self._model = model
        self._server = server
        self._place = place
        self._inside = self._completed = self._rejected = 0
        self._latency = Histogram(REQUEST_S)

    async def get(self, path: str, send: Send) -> None:
        """Respond to a GET request."""
        if path not in {"/health", "/health_check"}:
            await super().get(path, send)
            return
        healthy = self.life.is_healthy
        status = "busy" if self._is_full() else "ready" if healthy else "failed"
        await reply_json(send, {"status": status, "model": self._model}, 200 if healthy else 503)

    async def answer_at_once(self, path: str, body: Mapping[str, Any], send: Send) -> None:  # noqa: ARG002
        """Respond to a request without computing the output."""
        await self._answer(0.0, send)

    @property
    def load(self) -> int:
        """Number of requests in the replica."""
        return self._inside

    def _is_full(self) -> bool:
        live = self.engine.live
        counted = live.waiting + (live.running if self._server.counts_system else 0)
        return counted >= self._server.queue_limit

    async def post(self, scope: Scope, content: bytes, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Respond to a request at the end of its batch."""
        if self.life.refusal is not None:
            await reply_error(send, *self.life.refusal)
            return
        call = EngineCall(self.engine.now_ms())
        if not self.engine.add(call, level=self._place):
            await self._reject(send)
            return
        self._inside += 1
        try:
            with self.engine.watched(call, receive):
                await call.until(1)
        except LateRejection:
            await self._reject(send)
        except MemoryError as error:
            await reply_error(send, str(error), 500)
        except Dropped:
            self.life.check()
        else:
            latency_ms = (call.last_ms - call.sent_ms) * self.engine.slowdown
            self._completed += 1
            self._latency.observe(latency_ms / 1000)
            await self._answer(latency_ms, send)
        finally:
            self._inside -= 1

    async def _answer(self, latency_ms: float, send: Send) -> None:
        made = {"model": self._model, "created": int(time.time()), "latency_ms": round(latency_ms, 3)}
        await reply_json(send, made)

    async def _reject(self, send: Send) -> None:
        self._rejected += 1
        await reply_error(send, FULL, 503)

    def metrics_text(self) -> bytes:
        """Return the metrics of the server in Prometheus' text format."""
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
