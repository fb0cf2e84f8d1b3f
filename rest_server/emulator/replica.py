"""Emulated replica with tokens: an HTTP server that behaves like vLLM."""

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
"""Key in the ASGI scope of a request: the server that the router has chosen for the request."""
USAGE = "inferplan.usage"
"""Key in the ASGI scope of a request: numbers of its prompt tokens and of its output tokens."""
LONGEST_TOKENS = 131_072
"""Maximum tokens of prompt and output for a replica whose KV cache has no limit."""
COMPLETIONS = {"/v1/completions": False, "/v1/chat/completions": True}
"""Paths of completions, and whether they take a chat instead of a prompt."""


@dataclass(frozen=True, slots=True)
class Model:
    """Model that an emulated replica serves, with its limits."""

    name: str
    aliases: dict[str, int]
    """Names under which requests can ask for the model, with the rank of each one's priority."""
    longest: int
    """Maximum number of tokens of prompt and output together."""
    kv_tokens: int | None
    """Capacity of the KV cache [tokens]; None: unlimited."""
    outputs: Lengths
    """Distribution of output lengths if the model ends the output itself."""
    times: IterationCoefficients | None = None
    """Latency model with client delays; None if it has no client delays."""


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
        """Handle a token of the request."""
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
        """Handle the end of the replica, or of the client."""
        self.error = error
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def until(self, made: int) -> None:
        """Wait until the request has a number of tokens, or its last one.

        Raises:
            Exception: the request has failed before that.
        """
        while self.made < made and not self.ended and self.error is None:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        if self.error is not None and not self.ended:
            raise self.error


class TokenReplicaApp:
    """ASGI application of an emulated replica with tokens."""

    posts: ClassVar[Collection[str]] = (*COMPLETIONS, "/tokenize")
    """Paths that accept requests."""

    def __init__(self, model: Model, engine: Engine, life: Life, seed: int) -> None:
        self.engine = engine
        self.life = life
        self.metrics = TokenMetrics()
        self._model = model
        self._rng = np.random.default_rng(seed)
        self._coming = 0
        """Number of requests that have not reached the engine yet."""
        self._latest_ms = -math.inf

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request.

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
        """Number of requests in the replica, including waiting ones."""
        return self.engine.live.waiting + self.engine.live.running + self._coming

    @property
    def tokens(self) -> tuple[int, int]:
        """Number of prompt tokens of complete requests, and number of output tokens made."""
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
        """Send all tokens of the output to a request without computing them, as a result cache does.

        Raises:
            BadRequest: a field of the request is invalid.
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
        """Return the priority rank of the chosen server, or of the name in the request; otherwise the lowest.

        Raises:
            BadRequest: the name is unknown.
        """
        aliases = self._model.aliases
        if server not in aliases and name != self._model.name and name not in aliases:
            raise BadRequest(f"The model `{name}` does not exist.", 404)
        return aliases.get(server, aliases.get(name, max(aliases.values())))

    def _question(self, body: Mapping[str, Any], *, is_chat: bool) -> CompletionRequest:
        """Read a completion request, and draw the length at which its output would end by itself."""
        model, seed = self._model, int(self._rng.integers(1 << 30))
        natural = int(model.outputs.draw(1, np.random.default_rng(seed))[0])
        return question_of(body, is_chat=is_chat, longest=model.longest, natural=max(natural, 1), seed=seed)

    async def _complete(
        self, body: Mapping[str, Any], question: CompletionRequest, level: int, receive: Receive, send: Send
    ) -> bool:
        """Respond to a request, and return whether the output is complete."""
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
        """Wait for the client delays that the profile states for a request (eq. 100)."""
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
        """Send each token as soon as it is made; if the task is late, send several tokens together."""
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
        """Reject a request as vLLM does: with 503, or in an event if its stream has started."""
        self.metrics.rejected += 1
        if not question.streams:
            await reply_error(send, FULL, 503)
            return
        await begin(send, 200, EVENTS)
        await send({"type": "http.response.body", "body": error_event(error_of(FULL, 503))})

    async def _fail(self, question: CompletionRequest, message: str, send: Send) -> None:
        """Respond to a request that the replica has lost, with an error."""
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
