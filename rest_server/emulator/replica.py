"""An emulated replica with tokens: an HTTP server that behaves like vLLM."""

import asyncio
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optimizer.simulation.clients import delay_ms
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import Lengths
from rest_server.emulator.asgi import (
    EVENTS,
    TEXT,
    BadRequest,
    Dropped,
    Receive,
    Scope,
    Send,
    begin,
    body_of,
    error_of,
    json_of,
    reply,
    reply_error,
    reply_json,
)
from rest_server.emulator.completions import CompletionRequest, Writer, error_event, question_of
from rest_server.emulator.engine import Engine, watched
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import TokenMetrics
from rest_server.emulator.words import WORDS, chat_tokens, prompt_tokens

FULL = "The server has too many queued requests; retry later."
SERVER = "inferplan.server"
"""Key of a request's scope for the server that the router has chosen for it."""
USAGE = "inferplan.usage"
"""Key of a request's scope for the tokens of its prompt and of its complete answer."""
LONGEST_TOKENS = 131_072
"""Most tokens of prompt and answer of a replica whose KV cache has no limit."""
COMPLETIONS = {"/v1/completions": False, "/v1/chat/completions": True}
"""Whether a path takes a chat."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model that the replica serves."""

    name: str
    aliases: dict[str, int]
    """Names of its servers, with the rank of their priority."""
    longest: int
    """Most tokens of prompt and answer."""
    kv_tokens: int | None
    """Tokens of KV cache; None: unlimited."""
    outputs: Lengths
    """Lengths of answers that the model ends by itself."""
    times: IterationCoefficients | None = None
    """Latency model with delays between engine and client; None if it has none."""


class TokenCall:
    """A request in the engine, which wakes its task when tokens are made."""

    def __init__(self, replica: "TokenReplicaApp", question: CompletionRequest) -> None:
        self.made = 0
        self.ended = False
        self.error: Exception | None = None
        self._replica = replica
        self._question = question
        self._sent_ms = self._scheduled_ms = self._last_ms = self._first_ms = replica.engine.now_ms()
        self._woken: asyncio.Future[None] | None = None

    def token(self, at_ms: float, *, ended: bool) -> None:
        """Take a token."""
        metrics, scale_s = self._replica.metrics, self._replica.engine.slowdown / 1000
        if self.made == 0:
            self._first_ms = at_ms
            self._scheduled_ms = self._replica.engine.scheduled_ms(self)
            metrics.observe_first((at_ms - self._sent_ms) * scale_s)
        else:
            metrics.observe_token((at_ms - self._last_ms) * scale_s)
        metrics.generation_tokens += 1
        self._last_ms = at_ms
        self.made += 1
        self.ended = ended
        if ended:
            times_ms = self._sent_ms, self._scheduled_ms, self._first_ms, at_ms
            question = self._question
            metrics.complete(question.reason, question.prompt, self.made, [ms * scale_s for ms in times_ms])
        self._wake()

    def fail(self, error: Exception) -> None:
        """Take the end of the replica, or the client's."""
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def until(self, made: int) -> None:
        """Wait for a number of tokens, or the last one.

        Raises:
            Exception: the request has ended without it.
        """
        while self.made < made and not self.ended and self.error is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        if self.error is not None and not self.ended:
            raise self.error


class TokenReplicaApp:
    """ASGI application of a replica with tokens."""

    posts: ClassVar[Collection[str]] = (*COMPLETIONS, "/tokenize")
    """Paths that take requests."""

    def __init__(self, model: Model, engine: Engine, life: Life, seed: int) -> None:
        self.engine = engine
        self.life = life
        self.metrics = TokenMetrics()
        self._model = model
        self._rng = np.random.default_rng(seed)
        self._coming = 0
        """Requests that have not reached the engine yet."""
        self._latest_ms = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            Dropped: the replica breaks the connection.
        """
        self.life.check()
        path = scope["path"]
        try:
            if scope["method"] == "POST":
                await self._post(scope, receive, send)
            else:
                await self._get(path, send)
        except BadRequest as error:
            await reply_error(send, str(error), error.status)

    @property
    def load(self) -> int:
        """Number of requests in the replica, including those that wait."""
        return self.engine.live.waiting + self.engine.live.running + self._coming

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of complete prompts, and generated ones."""
        return self.metrics.prompt_tokens, self.metrics.generation_tokens

    async def _get(self, path: str, send: Send) -> None:
        model = self._model
        if path in {"/health", "/ping"}:
            await reply(send, 200 if self.life.is_healthy else 503, b"")
        elif path == "/metrics":
            await reply(send, 200, self._metrics(), TEXT)
        elif path == "/version":
            await reply_json(send, {"version": "0.0.0+emulated"})
        elif path == "/v1/models":
            names = [model.name, *sorted(set(model.aliases) - {model.name})]
            data = [
                {
                    "id": name, "object": "model", "created": 0, "owned_by": "inferplan", "root": model.name,
                    "parent": None, "max_model_len": model.longest,
                }
                for name in names
            ]  # fmt: skip
            await reply_json(send, {"object": "list", "data": data})
        else:
            raise BadRequest("Not Found", 404)

    async def answer_at_once(self, path: str, body: Mapping[str, Any], send: Send) -> None:
        """Send all tokens of an answer without computing them.

        Raises:
            BadRequest: a field of the request is wrong.
        """
        question = self._question(body, is_chat=COMPLETIONS[path])
        writer, last = Writer(question, str(body.get("model") or self._model.name)), question.tokens - 1
        if not question.streams:
            await reply_json(send, writer.whole())
            return
        await begin(send, 200, EVENTS)
        events = b"".join(writer.event(k, ended=k == last) for k in range(question.tokens))
        await send({"type": "http.response.body", "body": events})

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, path = json_of(await body_of(receive)), scope["path"]
        if path in COMPLETIONS:
            level = self._level(scope.get(SERVER, ""), str(body.get("model") or self._model.name))
            question = self._question(body, is_chat=COMPLETIONS[path])
            if await self._complete(body, question, level, receive, send):
                scope[USAGE] = question.prompt, question.tokens
        elif path == "/tokenize":
            is_chat = "messages" in body
            count = chat_tokens(body["messages"]) if is_chat else prompt_tokens(body.get("prompt"))
            tokens = [1 + k % len(WORDS) for k in range(count)]
            await reply_json(send, {"count": count, "max_model_len": self._model.longest, "tokens": tokens})
        else:
            raise BadRequest("Not Found", 404)

    def _level(self, server: str, name: str) -> int:
        """Return the rank of the priority of a server, or of the name in a request; else the lowest.

        Raises:
            BadRequest: the name is unknown.
        """
        aliases = self._model.aliases
        if server not in aliases and name != self._model.name and name not in aliases:
            raise BadRequest(f"The model `{name}` does not exist.", 404)
        return aliases.get(server, aliases.get(name, max(aliases.values())))

    def _question(self, body: Mapping[str, Any], *, is_chat: bool) -> CompletionRequest:
        """Read a request, and draw the length at which its answer would end by itself."""
        model, seed = self._model, int(self._rng.integers(1 << 30))
        natural = int(model.outputs.draw(1, np.random.default_rng(seed))[0])
        return question_of(body, is_chat=is_chat, longest=model.longest, natural=max(natural, 1), seed=seed)

    async def _complete(
        self, body: Mapping[str, Any], question: CompletionRequest, level: int, receive: Receive, send: Send
    ) -> bool:
        """Answer a request, and return whether the answer is complete."""
        if self.life.refusal is not None:
            await reply_error(send, *self.life.refusal)
            return False
        await self._delay()
        self.life.check()
        call = TokenCall(self, question)
        if not self.engine.add(call, question.prompt, question.tokens, level):
            await self._reject(question, send)
            return False
        watch = watched(receive, call)
        try:
            name = str(body.get("model") or self._model.name)
            await (self._stream if question.streams else self._whole)(call, question, name, send)
        except MemoryError as error:
            await self._fail(question, str(error), send)
        except Dropped:
            if self.life.is_alive:
                self.metrics.succeeded["abort"] += 1
                return False
            raise
        finally:
            watch.cancel()
            self.engine.cancel(call)
        return call.ended

    async def _delay(self) -> None:
        """Wait for the delays of a request between client and engine in the profile (eq. 100)."""
        times, now_ms = self._model.times, self.engine.now_ms()
        pause_ms, self._latest_ms = now_ms - self._latest_ms, now_ms
        if times is None:
            return
        values = np.array([self.load]), np.array([self.metrics.mean_token_ms]), np.array([pause_ms])
        wait_ms = float(delay_ms(times, *values)[0])
        if wait_ms > 0:
            self._coming += 1
            try:
                await self.engine.sleep(wait_ms / 1000)
            finally:
                self._coming -= 1

    async def _stream(self, call: TokenCall, question: CompletionRequest, name: str, send: Send) -> None:
        """Send each token as soon as it is made; those of a late task together."""
        writer, sent = Writer(question, name), 0
        await begin(send, 200, EVENTS)
        while sent < question.tokens:
            await call.until(sent + 1)
            made = call.made
            events = b"".join(writer.event(k, ended=call.ended and k + 1 == made) for k in range(sent, made))
            sent = made
            await send({"type": "http.response.body", "body": events, "more_body": sent < question.tokens})

    async def _whole(self, call: TokenCall, question: CompletionRequest, name: str, send: Send) -> None:
        await call.until(question.tokens)
        await reply_json(send, Writer(question, name).whole())

    async def _reject(self, question: CompletionRequest, send: Send) -> None:
        """Reject as vLLM does: with 503, or in an event of a stream that has started."""
        self.metrics.rejected += 1
        if not question.streams:
            await reply_error(send, FULL, 503)
            return
        await begin(send, 200, EVENTS)
        await send({"type": "http.response.body", "body": error_event(error_of(FULL, 503))})

    async def _fail(self, question: CompletionRequest, message: str, send: Send) -> None:
        """Answer a request that the replica has lost."""
        if question.streams:
            await send({"type": "http.response.body", "body": error_event(error_of(message, 500))})
        else:
            await reply_error(send, message, 500)

    def _metrics(self) -> bytes:
        live, model = self.engine.live, self._model
        used = getattr(live, "kv_tokens", 0)
        gauges = {
            "num_requests_running": live.running,
            "num_requests_waiting": live.waiting,
            "kv_cache_usage_perc": used / model.kv_tokens if model.kv_tokens else 0.0,
        }
        return self.metrics.text(model.name, gauges, getattr(live, "preemptions", 0))
