"""Emulated replica with tokens: an HTTP server that behaves like vLLM."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from optimizer.simulation.clients import delay_ms
from optimizer.simulation.law import IterationCoefficients
from optimizer.simulation.lengths import Lengths
from rest_server.emulator.asgi import (
    EVENTS,
    BadRequest,
    Dropped,
    Receive,
    Scope,
    Send,
    begin,
    error_of,
    json_of,
    reply,
    reply_error,
    reply_json,
)
from rest_server.emulator.backend import ReplicaApp
from rest_server.emulator.completions import CompletionRequest, Writer, error_event, question_of, refuse
from rest_server.emulator.engine import Engine, EngineCall
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import TokenMetrics
from rest_server.emulator.prefix_cache import PrefixCache
from rest_server.emulator.words import WORDS, chat_tokens, prompt_tokens

if TYPE_CHECKING:
    from optimizer.simulation.live.replica import LiveReplica

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
    caches_prefixes: bool = False
    """Whether it has a prefix cache."""
    stores_once: bool = False
    """Whether requests hold one copy of the prefixes that they find in the cache."""


class TokenCall(EngineCall):
    """A request in the engine whose tokens are counted."""

    def __init__(self, replica: "TokenReplicaApp", question: CompletionRequest) -> None:
        super().__init__(replica.engine.now_ms())
        self._replica = replica
        self.question = question
        self._scheduled_ms = self._first_ms = self.sent_ms

    def token(self, at_ms: float, *, ended: bool) -> None:
        """Handle a token of the request."""
        metrics, scale_s = self._replica.metrics, self._replica.engine.slowdown / 1000
        if self.made == 0:
            self._first_ms = at_ms
            self._scheduled_ms = self._replica.engine.scheduled_ms(self)
            metrics.observe_first((at_ms - self.sent_ms) * scale_s)
        else:
            metrics.observe_token((at_ms - self.last_ms) * scale_s)
        metrics.generation_tokens += 1
        super().token(at_ms, ended=ended)
        if ended:
            times_ms = self.sent_ms, self._scheduled_ms, self._first_ms, at_ms
            question = self.question
            metrics.complete(question.reason, question.prompt, self.made, [ms * scale_s for ms in times_ms])


class TokenReplicaApp(ReplicaApp):
    """ASGI application of an emulated replica with tokens."""

    posts: ClassVar[Collection[str]] = (*COMPLETIONS, "/tokenize")

    def __init__(self, model: Model, engine: Engine, life: Life, seed: int) -> None:
        super().__init__(engine, life)
        self.metrics = TokenMetrics()
        self._model = model
        self._rng = np.random.default_rng(seed)
        self._coming = 0
        """Number of requests that have not reached the engine yet."""
        self._latest_ms = -math.inf
        self._prefixes: tuple[LiveReplica, PrefixCache] | None = None
        """The prefix cache with its replica, because a replica that starts anew has an empty cache."""

    @property
    def load(self) -> int:
        """Number of requests in the replica, including waiting ones."""
        return self.engine.live.waiting + self.engine.live.running + self._coming

    @property
    def queued(self) -> int:
        """Number of requests in the queue."""
        return self.engine.live.waiting

    @property
    def tokens(self) -> tuple[int, int]:
        """Number of prompt tokens of complete requests, and number of output tokens made."""
        return self.metrics.prompt_tokens, self.metrics.generation_tokens

    async def get(self, path: str, send: Send) -> None:
        """Respond to a GET request."""
        model = self._model
        if path in {"/health", "/ping"}:
            await reply(send, 200 if self.life.is_healthy else 503, b"")
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
            await super().get(path, send)

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

    async def post(self, scope: Scope, content: bytes, receive: Receive, send: Send) -> None:
        """Respond to a request whose body has been read."""
        body, path = json_of(content), scope["path"]
        if path in COMPLETIONS:
            level = self._level(scope.get(SERVER, ""), str(body.get("model") or self._model.name))
            question = self._question(body, is_chat=COMPLETIONS[path])
            name = str(body.get("model") or self._model.name)
            if await self._complete(scope, name, question, level, receive, send):
                scope[USAGE] = question.prompt, question.tokens
        else:
            is_chat = "messages" in body
            count = len(chat_tokens(body["messages"]) if is_chat else prompt_tokens(body.get("prompt")))
            tokens = [1 + k % len(WORDS) for k in range(count)]
            await reply_json(send, {"count": count, "max_model_len": self._model.longest, "tokens": tokens})

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
        self, scope: Scope, name: str, question: CompletionRequest, level: int, receive: Receive, send: Send
    ) -> bool:
        """Respond to a request, and return whether the output is complete."""
        if self.life.refusal is not None:
            await reply_error(send, *self.life.refusal)
            return False
        call = await self._called(scope, question)
        self.life.check()
        if not self._add(call, question, level):
            self.metrics.rejected += 1
            await refuse(send, FULL, 503, streams=question.streams)
            return False
        try:
            with self.engine.watched(call, receive):
                await (self._stream if question.streams else self._whole)(call, question, name, send)
        except MemoryError as error:
            await self._fail(question, str(error), send)
        except Dropped:
            if self.life.is_alive:
                self.metrics.succeeded["abort"] += 1
                return False
            raise
        return call.ended

    async def _called(self, scope: Scope, question: CompletionRequest) -> TokenCall:  # noqa: ARG002
        """Return a request when it has reached the engine."""
        await self._delay()
        return TokenCall(self, question)

    def _add(self, call: TokenCall, question: CompletionRequest, level: int) -> bool:
        """Add a request to the engine; return False if it is rejected."""
        return self.engine.add(call, question.prompt, question.tokens, level, **self._cached(question))

    def _cached(self, question: CompletionRequest) -> dict[str, int]:
        """Return the tokens of a prompt that are in the prefix cache, as arguments of the live replica."""
        model, live = self._model, self.engine.live
        if not model.caches_prefixes:
            return {}
        if self._prefixes is None or self._prefixes[0] is not live:
            self._prefixes = live, PrefixCache(model.kv_tokens or LONGEST_TOKENS)
        cached = self._prefixes[1].take(question.prompt_words)
        self.metrics.prefix_queries += question.prompt
        self.metrics.prefix_hits += cached
        return {"cached_tokens": cached, "shared_tokens": cached if model.stores_once else 0}

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

    async def _fail(self, question: CompletionRequest, message: str, send: Send) -> None:
        """Respond to a request that the replica has lost, with an error."""
        if question.streams:
            await send({"type": "http.response.body", "body": error_event(error_of(message, 500))})
        else:
            await reply_error(send, message, 500)

    def metrics_text(self) -> bytes:
        """Return the metrics of the replica in Prometheus' text format."""
        live, model = self.engine.live, self._model
        used = getattr(live, "kv_tokens", 0)
        gauges = {
            "num_requests_running": live.running,
            "num_requests_waiting": self.queued,
            "kv_cache_usage_perc": used / model.kv_tokens if model.kv_tokens else 0.0,
        }
        return self.metrics.text(model.name, gauges, getattr(live, "preemptions", 0))
