"""Router of an emulated fleet: chooses replicas by model and server, with retries and health checks."""

import asyncio
import itertools
import random
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from optimizer.plan import Plan
from optimizer.spec.system import System
from rest_server.emulator.asgi import (
    TEXT,
    BadRequest,
    Dropped,
    Receive,
    Scope,
    Send,
    body_of,
    encoded,
    error_of,
    json_of,
    reply,
    reply_error,
    reply_json,
)
from rest_server.emulator.backend import Backend
from rest_server.emulator.completions import error_event, refuse
from rest_server.emulator.metrics import Histogram, family, labels
from rest_server.emulator.rented import cost_cents
from rest_server.emulator.replica import SERVER
from rest_server.emulator.settings import FleetSettings
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal
from rest_server.emulator.steps.table import steps_of

SERVER_HEADER, SESSION_HEADER = b"x-inferplan-server", b"x-session-id"
HEALTH_PERIOD_S = 1.0
ERROR = b'data: {"error":'
CONTROL = "/emulator/replicas"
TARGETS = "/emulator/targets"
"""Path of Prometheus' HTTP service discovery."""


@dataclass(slots=True)
class _Attempt:
    """An attempt to serve a request by one replica; the response is held back until its first part."""

    send: Send
    begun: bool = False
    parts: int = 0
    refused: bool = False
    """Whether the replica has rejected or failed the request before its first token."""
    _start: MutableMapping[str, Any] = field(default_factory=dict)

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        if not self.begun:
            self.refused = self.refused or self._start["status"] in {500, 503}
            self.refused = self.refused or message.get("body", b"").startswith(ERROR)
            if self.refused:
                return
            self.begun = True
            await self.send(self._start)
        self.parts += 1
        await self.send(message)


class Router:
    """ASGI application that forwards requests to the replicas of an emulated fleet."""

    def __init__(
        self, system: System, plan: Plan, backends: Sequence[Backend], settings: FleetSettings, lag: Histogram
    ) -> None:
        """Create a router.

        Args:
            system: the planned system.
            backends: all replicas.
            settings: routing policy, retries and seed.
            lag: histogram of the delays of the engines [s].
        """
        self.backends = backends
        self._steps = steps_of(system, plan, settings, backends)
        self._way: Onward = self._replicas
        for step in reversed(self._steps):
            self._way = partial(step.pass_on, onward=self._way)
            step.enter = self._enter
        self._streams = [*system.streams.values()]
        self._names = {name for step in self._steps for name in step.names}
        self._speed = settings.speed
        self._policy = settings.route
        self._attempts = None if settings.retries is None else 1 + settings.retries
        self._lag = lag
        self._rng = random.Random(settings.seed)  # noqa: S311  nothing here is secret
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        """Number of requests so far to each server, which prefill and decode pools count apart."""
        self._failed = self._lost = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request.

        Raises:
            BadRequest: the request is invalid.
        """
        path, is_post = scope["path"], scope["method"] == "POST"
        step = next((one for one in self._steps if one.prefix and path.startswith(one.prefix)), None)
        if path.startswith(CONTROL):
            await self._control(path, receive, send, is_post=is_post)
        elif step is not None:
            body = json_of(await body_of(receive)) if is_post else None
            status, reply = await step.control(path.removeprefix(step.prefix).strip("/"), body)
            await reply_json(send, reply, status)
        elif is_post:
            await self._forward(scope, receive, send)
        else:
            await self._get(path, send)

    async def _get(self, path: str, send: Send) -> None:
        if path == "/metrics":
            await reply(send, 200, self._metrics(), TEXT)
        elif path == TARGETS:
            await reply(send, 200, encoded([_target(one) for one in self.backends]))
        elif path in {"/health", "/health_check"}:
            await reply(send, 200 if any(one.is_healthy for one in self.backends) else 503, b"")
        elif path == "/version":
            await reply_json(send, {"version": "0.0.0+emulated"})
        elif path == "/v1/models":
            known = {name for one in self.backends for name in (one.model, *one.servers)}
            names = sorted(known | self._names)
            data = [{"id": name, "object": "model", "created": 0, "owned_by": "inferplan"} for name in names]
            await reply_json(send, {"object": "list", "data": data})
        else:
            await reply_error(send, "Not Found", 404)

    async def watch(self) -> None:
        """Repeatedly check the health of all replicas."""
        while True:
            for one in self.backends:
                one.is_healthy = one.app.life.is_healthy
            await asyncio.sleep(HEALTH_PERIOD_S)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request through all steps, and respond with an error if nothing serves it."""
        content = await body_of(receive)
        body = json_of(content) if scope["path"] != "/predict" else {}
        call = ForwardedRequest(scope, content, body, receive, send, "")
        call.server = call.header(SERVER_HEADER)
        refusal = await self._enter(call)
        if refusal is None:
            return
        self._failed += 1
        await refuse(call.answer, refusal.text, refusal.status, streams=bool(body.get("stream")))

    async def _enter(self, call: ForwardedRequest) -> Refusal | None:
        """Pass a request through all steps; return the reason if nothing has responded to it."""
        call.server = call.server or self._server_of(call.body)
        return await self._way(call)

    def _server_of(self, body: Mapping[str, Any]) -> str:
        """Return the server that a request names by `model`; empty if any replica of the model can serve it.

        If several servers of a queue have the model, it is the one of the stated priority, or else of the
        lowest.
        """
        name = body.get("model")
        if name in self._names or any(name in one.servers for one in self.backends):
            return str(name)
        mine = [one for one in self._streams if one.server.model == name]
        if not mine or len({one.group for one in mine}) > 1 or mine[0].owner != mine[0].name:
            return ""
        named = [one for one in mine if one.priority == body.get("priority")]
        return (named or [max(mine, key=lambda one: one.priority)])[0].name

    async def _replicas(self, call: ForwardedRequest) -> Refusal | None:
        """Forward a request to a replica.

        Try further replicas until one has sent the first part of a response.
        """
        replicas, status = self._found(call), 503
        call.scope[SERVER] = call.server
        for backend in itertools.islice(self._order(replicas, call), self._attempts):
            attempt = _Attempt(call.answer)
            backend.requests += 1
            call.notes["replica"] = backend.id
            try:
                if call.server in backend.delay_ms:
                    await asyncio.sleep(backend.delay_ms[call.server] / (1000 * self._speed))
                await backend.app(call.scope, _replayed(call.content, call.receive), attempt)
            except Dropped:
                backend.is_healthy = False
                attempt.refused = True
                status = 502
            if not attempt.refused:
                return None
            backend.retried += 1
            if attempt.begun:
                self._lost += 1
                call.is_broken = True
                text = f"replica {backend.id} broke off after {attempt.parts} parts of the answer"
                error = error_event(error_of(text, 502))
                await call.send({"type": "http.response.body", "body": error})
                return None
        tried = min(len(replicas), self._attempts or len(replicas))
        text = f"{tried} of {len(replicas)} replicas were tried, and none took the request; retry later"
        return Refusal(status, text)

    def _found(self, call: ForwardedRequest) -> list[Backend]:
        """Return the replicas of the server or of the model that a request names."""
        server, model = call.server, call.body.get("model")
        backends = [
            one
            for one in self.backends
            if call.path in one.app.posts
            and (server in one.servers if server else not one.app.role and model in {None, "", one.model})
        ]
        if not backends:
            named = f" of server {server!r}" if server else f" of model {model!r}" if model else ""
            raise BadRequest(f"no replica{named} serves {call.path}; GET /v1/models lists the names", 404)
        return backends

    def _order(self, backends: list[Backend], call: ForwardedRequest) -> Iterator[Backend]:
        """Yield replicas in the order of the routing policy; replicas that fail health checks are last."""
        session = call.header(SESSION_HEADER) or str(call.body.get("user") or "")
        first = next(self._turns[call.server])
        if self._policy == "sticky" and session:
            first = zlib.crc32(session.encode())
        elif self._policy == "random":
            (first,) = self._rng.choices(range(len(backends)), [one.rate_rps or 1.0 for one in backends])
        turned = [backends[(first + k) % len(backends)] for k in range(len(backends))]
        if self._policy == "least":
            turned.sort(key=lambda one: one.app.load)
        yield from sorted(turned, key=lambda one: not one.is_healthy)

    async def _control(self, path: str, receive: Receive, send: Send, *, is_post: bool) -> None:
        """List the replicas, or change the state of one replica."""
        name = path.removeprefix(CONTROL).strip("/")
        chosen = [one for one in self.backends if name in {"", one.id}]
        if not chosen:
            raise BadRequest(f"no replica {name!r}; GET {CONTROL} lists them", 404)
        if is_post:
            if not name:
                raise BadRequest(f"name a replica: POST {CONTROL}/ID", 405)
            chosen[0].app.life.change(json_of(await body_of(receive)))
        states = [
            {
                "id": one.id, "servers": one.servers, "accelerator": one.accelerator, "url": one.url,
                "state": one.app.life.state, "load": one.app.load,
            }
            for one in chosen
        ]  # fmt: skip
        await reply_json(send, states[0] if name else {"speed": self._speed, "replicas": states})

    def _metrics(self) -> bytes:
        """Return the router's metrics in Prometheus' text format."""
        known = {
            id(one): labels(replica=one.id, server=", ".join(one.servers), model=one.model)
            for one in self.backends
        }
        rows = (
            ("replica_requests_total", "counter", "Requests sent to a replica.", "requests"),
            ("replica_retries_total", "counter", "Requests that a replica failed to answer.", "retried"),
            ("replica_healthy", "gauge", "1 if the health check of a replica succeeds.", "is_healthy"),
        )
        lines = []
        for metric, metric_type, text, attribute in rows:
            samples = {known[id(one)]: int(getattr(one, attribute)) for one in self.backends}
            lines += family(f"inferplan_router_{metric}", metric_type, text, samples)
        for metric, text, count in (
            ("rejected", "Requests that no replica answered.", self._failed),
            ("broken_streams", "Streams that a replica ended after their first token.", self._lost),
        ):
            lines += family(f"inferplan_router_{metric}_total", "counter", text, {"": count})
        costs = {known[id(one)]: cost_cents(one.price, *one.app.tokens) for one in self.backends if one.price}
        text = "Cost of external services."
        lines += family("inferplan_router_rented_cents_total", "counter", text, costs)
        for step in self._steps:
            lines += step.metrics()
        text = "Delay of tokens by a busy machine, which model times leave out."
        lines += self._lag.family("inferplan_router_lag_seconds", text, 'process="emulator"')
        return ("\n".join(lines) + "\n").encode()


def _target(one: Backend) -> dict[str, Any]:
    """Return a replica as a target of Prometheus' service discovery."""
    labels = {"server": one.planned, "accelerator": one.accelerator, "replica": one.id}
    if one.app.role:
        labels["llm_d_ai_role"] = one.app.role  # llm-d's label of pods, as Prometheus writes it
    return {"targets": [one.url.removeprefix("http://")], "labels": labels}


def _replayed(content: bytes, receive: Receive) -> Receive:
    """Return a `receive` function that repeats a body that was read, and then waits for the client's end."""
    given = False

    async def replay() -> dict[str, Any]:
        nonlocal given
        if given:
            return dict(await receive())
        given = True
        return {"type": "http.request", "body": content, "more_body": False}

    return replay
