"""Prefill and decode pools: each request passes a replica of both."""

from collections import Counter
from collections.abc import Iterable, MutableMapping
from dataclasses import replace
from typing import Any

from optimizer.plan import Plan
from rest_server.emulator.metrics import family, labels
from rest_server.emulator.roles import HANDOVER, RequestHandover
from rest_server.emulator.steps.forwarded import ForwardedRequest, Onward, Refusal, RouterStep

PARTS_OF_PREFILL = "prefill_ms", "handover_ms"
"""Names of the notes on the time until the end of the prefill, and until the end of the handover [ms]."""


class PoolsByRole(RouterStep):
    """Step that sends the requests of a server to its prefill pool, and then to its decode pool."""

    def __init__(self, plan: Plan) -> None:
        self._pools = {
            name: {pool.role: pool.server for pool in use.pools}
            for name, use in plan.disaggregation.items()
            if use.pools
        }
        self._decisions: Counter[str] = Counter()

    @property
    def names(self) -> Iterable[str]:
        """Servers with both pools."""
        return self._pools

    async def pass_on(self, call: ForwardedRequest, onward: Onward) -> Refusal | None:
        """Pass a request through both pools; respond with the error of the prefill replica if it fails."""
        pools = self._pools.get(call.server)
        if pools is None:
            return await onward(call)
        sent: list[MutableMapping[str, Any]] = []

        async def keep(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {**call.scope, HANDOVER: None}
        prefill = replace(call, scope=scope, send=keep, server=pools["prefill"], notes={})
        refusal, handover = await onward(prefill), scope[HANDOVER]
        if not isinstance(handover, RequestHandover):
            for message in sent:
                await call.answer(message)
            return refusal
        self._decisions[str(call.body.get("model") or call.server)] += 1
        parts = (f"{ms:.3f}" for ms in (handover.prefill_ms, handover.handover_ms))
        call.notes |= {"server": call.server, "prefill": prefill.notes["replica"]}
        call.notes |= dict(zip(PARTS_OF_PREFILL, parts, strict=True))
        call.server, call.scope[HANDOVER] = pools["decode"], handover
        try:
            return await onward(call)
        finally:
            handover.free()

    def metrics(self) -> list[str]:
        """Return the number of requests to both pools, under the name of llm-d's endpoint picker."""
        samples = {
            labels(model_name=model, decision_type="prefill-decode"): count
            for model, count in self._decisions.items()
        }
        text = "Requests that passed a prefill and a decode replica."
        return family("llm_d_epp_disagg_decision_total", "counter", text, samples) if self._pools else []
