"""States of an emulated replica: start-up, drain, and faults."""

import asyncio
from typing import Any, Literal, get_args

from rest_server.emulator.asgi import BadRequest, Dropped, number_of
from rest_server.emulator.engine import Engine

State = Literal["ready", "starting", "draining", "slow", "stuck", "out-of-memory", "dead"]
STATES: tuple[State, ...] = get_args(State)
_OUT_OF_MEMORY = "CUDA out of memory."
_REFUSALS: dict[State, tuple[str, int]] = {
    "out-of-memory": (_OUT_OF_MEMORY, 500),
    "draining": ("The server is shutting down.", 503),
}
DRAIN_STEP_S = 0.1
DRIFT_STEP_S = 1.0
"""Interval at which the slowdown of a drifting replica changes [s of model time]."""


class Life:
    """State of an emulated replica, and its changes."""

    def __init__(self, engine: Engine) -> None:
        """Create the state of a replica that is ready."""
        self.state: State = "ready"
        self.startup_s = 0.0
        """Start-up time [s of model time]."""
        self._engine = engine
        self._change: asyncio.Task[None] | None = None
        """Task of the change in progress: a start, a drain or a drift; None if there is none."""

    @property
    def is_alive(self) -> bool:
        """Whether the replica accepts connections."""
        return self.state not in {"dead", "starting"}

    @property
    def refusal(self) -> tuple[str, int] | None:
        """Message and status with which the replica rejects every new request; None if it accepts them."""
        return _REFUSALS.get(self.state)

    @property
    def is_healthy(self) -> bool:
        """Whether the replica's health check succeeds; as with vLLM, it does not detect a stuck engine."""
        return self.state in {"ready", "slow", "stuck"}

    def check(self) -> None:
        """Check that the replica accepts connections.

        Raises:
            Dropped: it does not.
        """
        if not self.is_alive:
            raise Dropped

    async def started(self) -> None:
        """Start the replica, and wait until it is ready."""
        self.change({"state": "starting"})
        assert self._change is not None
        await self._change

    def change(self, wanted: dict[str, Any]) -> None:
        """Change the state of the replica.

        Args:
            wanted: new `state`; for `slow` also the `factor` on all times, and the `seconds` until it is
                reached.

        Raises:
            BadRequest: the state does not exist.
        """
        state = next((known for known in STATES if known == wanted.get("state")), None)
        if state is None:
            raise BadRequest(f"state: must be one of {', '.join(STATES)}, not {wanted.get('state')!r}")
        factor = number_of(wanted, "factor", 2.0, 1e-6) if state == "slow" else 1.0
        seconds = number_of(wanted, "seconds", 0.0, 0.0) if state == "slow" else 0.0
        if self._change is not None:
            self._change.cancel()
        self.state = state
        drift = self._drift(factor, seconds) if seconds else None
        change = self._start() if state == "starting" else self._drain() if state == "draining" else drift
        self._change = None if change is None else asyncio.create_task(change)
        if not seconds and state != "draining":
            self._engine.change(factor, stuck=state == "stuck")
        if not self.is_alive:
            self._engine.reset(Dropped())
        elif state == "out-of-memory":
            self._engine.reset(MemoryError(_OUT_OF_MEMORY))

    async def _start(self) -> None:
        await self._engine.sleep(self.startup_s)
        self.state = "ready"

    async def _drain(self) -> None:
        while self._engine.live.waiting + self._engine.live.running:
            await self._engine.sleep(DRAIN_STEP_S)
        self.state = "dead"

    async def _drift(self, factor: float, seconds: float) -> None:
        first, passed_s = self._engine.slowdown, 0.0
        self._engine.change(first)
        while passed_s < seconds:
            step_s = min(DRIFT_STEP_S, seconds - passed_s)
            await self._engine.sleep(step_s)
            passed_s += step_s
            self._engine.change(first + (factor - first) * passed_s / seconds)
