"""Emulated prefill and decode replicas, and the handover of KV caches between them.

The router sends a request to a prefill replica, and then, with the `RequestHandover` of its prompt, to a
decode replica.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from optimizer.features.disaggregation.fields import Role
from optimizer.simulation.live.prefills import LivePrefills
from optimizer.simulation.pools import PooledReplicas, PromptWork
from rest_server.emulator.asgi import BadRequest, Receive, Scope, Send
from rest_server.emulator.completions import CompletionRequest
from rest_server.emulator.engine import Engine
from rest_server.emulator.life import Life
from rest_server.emulator.metrics import TransferMetrics
from rest_server.emulator.replica import Model, TokenCall, TokenReplicaApp

HANDOVER = "inferplan.handover"
"""Key in the ASGI scope of a request that is for two pools: the handover from the prefill replica."""


@dataclass(slots=True)
class RequestHandover:
    """KV cache of a prompt on its way from a prefill replica to a decode replica."""

    engine: Engine
    """Engine of the prefill replica."""
    tokens: int
    shared_tokens: int
    """Tokens that decode replicas store once for all requests."""
    prefill_ms: float
    """Time from the arrival at the prefill replica to the end of the prefill [ms]."""
    transfer_ms: float
    """Time on the link [ms]."""
    end_ms: float
    """Model time of the prefill replica at the end of the prefill [ms]."""
    due_ms: float
    """Model time of the prefill replica at the end of the handover [ms]."""
    live: LivePrefills = field(init=False)
    is_held: bool = True
    """Whether the prefill replica holds the KV cache."""

    def __post_init__(self) -> None:
        assert isinstance(self.engine.live, LivePrefills)
        self.live = self.engine.live

    @property
    def handover_ms(self) -> float:
        """Time from the end of the prefill to the end of the handover [ms]."""
        return self.due_ms - self.end_ms

    async def received(self) -> None:
        """Wait for the end of the handover.

        Raises:
            BadRequest: the prefill replica has failed before it.
        """
        left_ms = (self.due_ms - self.engine.now_ms()) * self.engine.slowdown
        await self.engine.sleep(max(left_ms, 0.0) / 1000)
        if self.engine.live is not self.live:
            raise BadRequest("the prefill replica has failed, and the KV cache is lost", 500)

    def free(self) -> None:
        """Free the KV cache at the prefill replica, if it is still there."""
        if self.is_held and self.engine.live is self.live:
            self.engine.apply(lambda now_ms: self.live.free(self.tokens, now_ms))
        self.is_held = False


class PrefillCall(TokenCall):
    """A prompt, which ends with its handover."""

    def __init__(self, replica: "PrefillReplicaApp", question: CompletionRequest, scope: Scope) -> None:
        super().__init__(replica, question)
        self._prefill, self._scope = replica, scope
        self.found: dict[str, int] = {}
        """Cached and shared tokens of the prompt."""

    def token(self, at_ms: float, *, ended: bool) -> None:
        """Handle the end of the prefill."""
        super().token(at_ms, ended=ended)
        handover = self._prefill.handed_over(self, at_ms)
        if HANDOVER in self._scope:
            self._scope[HANDOVER] = handover
        else:
            asyncio.get_running_loop().call_soon(handover.free)  # the engine is in a step


class PrefillReplicaApp(TokenReplicaApp):
    """ASGI application of an emulated prefill replica, whose responses have one token."""

    role: ClassVar[str] = "prefill"

    def __init__(self, model: Model, engine: Engine, life: Life, seed: int, pools: PooledReplicas) -> None:
        super().__init__(model, engine, life, seed)
        self.metrics = TransferMetrics()
        self._pools = pools
        self._link: tuple[LivePrefills | None, float] = None, -math.inf
        """Time at which the link is free [ms], with its replica, because a new replica has a free link."""

    async def _complete(
        self, scope: Scope, name: str, question: CompletionRequest, level: int, receive: Receive, send: Send
    ) -> bool:
        question = replace(question, tokens=1, reason="length")
        return await super()._complete(scope, name, question, level, receive, send)

    async def _called(self, scope: Scope, question: CompletionRequest) -> PrefillCall:
        return PrefillCall(self, question, scope)

    def _add(self, call: TokenCall, question: CompletionRequest, level: int) -> bool:
        assert isinstance(call, PrefillCall)
        call.found = self._cached(question)
        return self.engine.add(call, question.prompt, 1, level, **call.found)

    def handed_over(self, call: PrefillCall, at_ms: float) -> RequestHandover:
        """Return the handover of a prompt that is complete, over the link of the replica."""
        live, tokens, cached = self.engine.live, call.question.prompt, call.found.get("cached_tokens", 0)
        assert isinstance(live, LivePrefills)
        work = PromptWork(np.array([tokens - cached]), np.array([cached]))
        spent_ms = float(self._pools.transfer_ms(work)[0])
        free_ms = self._link[1] if self._link[0] is live else -math.inf
        self._link = live, max(free_ms, at_ms) + spent_ms
        shared = call.found.get("shared_tokens", 0)
        due_ms = self._link[1] + self._pools.transfer.fixed_ms
        return RequestHandover(self.engine, tokens, shared, at_ms - call.sent_ms, spent_ms, at_ms, due_ms)


class DecodeCall(TokenCall):
    """A request at a decode replica, which frees the KV cache at the prefill replica."""

    def __init__(
        self, replica: "DecodeReplicaApp", question: CompletionRequest, handover: RequestHandover
    ) -> None:
        super().__init__(replica, question)
        self.handover = handover
        self._own_token = 1 + replica.is_seeded

    def token(self, at_ms: float, *, ended: bool) -> None:
        """Handle a token; the first own one of the decode replica shows that it has the KV cache."""
        super().token(at_ms, ended=ended)
        if self.made == self._own_token or ended:
            self.handover.free()


class DecodeReplicaApp(TokenReplicaApp):
    """ASGI application of an emulated decode replica, which serves only requests with a handover."""

    role: ClassVar[str] = "decode"

    def __init__(self, model: Model, engine: Engine, life: Life, seed: int, pools: PooledReplicas) -> None:
        super().__init__(model, engine, life, seed)
        self.metrics: TransferMetrics = TransferMetrics()
        self.is_seeded = pools.seeded
        """Whether the prefill replica has sent the first token."""
        self._kv_bytes = pools.transfer.kv_bytes
        self._receiving = 0

    @property
    def queued(self) -> int:
        """Number of requests in the queue, which includes those whose KV cache is on its way, as in vLLM."""
        return super().queued + self._receiving

    async def _called(self, scope: Scope, question: CompletionRequest) -> DecodeCall:
        handover = scope.get(HANDOVER)
        if not isinstance(handover, RequestHandover):
            raise BadRequest("a decode replica serves only requests that come through the router")
        call = DecodeCall(self, question, handover)
        call.sent_ms -= handover.engine.now_ms() - handover.end_ms
        self._coming += 1
        self._receiving += 1
        try:
            await handover.received()
        except BadRequest:
            self.metrics.failed_transfers += 1
            raise
        finally:
            self._coming -= 1
            self._receiving -= 1
        self.metrics.receive(handover.transfer_ms / 1000, handover.tokens * self._kv_bytes, question.prompt)
        await self._delay()
        return call

    def _add(self, call: TokenCall, question: CompletionRequest, level: int) -> bool:
        assert isinstance(call, DecodeCall)
        left, context = question.tokens, question.prompt
        if self.is_seeded:
            left, context = left - 1, context + 1
            call.token(self.engine.now_ms(), ended=not left)
        if not left:
            return True
        shared = call.handover.shared_tokens
        return self.engine.add(call, context, left, level, cached_tokens=context - 1, shared_tokens=shared)


ROLE_APPS: Mapping[Role, type[PrefillReplicaApp | DecodeReplicaApp]] = MappingProxyType(
    {"prefill": PrefillReplicaApp, "decode": DecodeReplicaApp}
)
"""Applications of replicas by role."""
