"""Life of an emulated replica: start-up, drain, and faults."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, get_args

from optimizer.errors import SpecError
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
"""Period in which the factor of a replica that drifts changes [s of model time]."""


class Life:
    """State of a replica, and the changes of it."""

    def __init__(self, engine: Engine, startup_s: float = 0.0) -> None:
        """Describe a replica that is ready.

        Args:
            engine: its engine.
            startup_s: time that it takes to start [s of model time].
        """
        self.state: State = "ready"
        self.startup_s = startup_s
        self._engine = engine
        self._change: asyncio.Task[None] | None = None
        """Change in progress: a start, a drain or a drift."""

    @property
    def is_alive(self) -> bool:
        """Whether it accepts connections."""
        return self.state not in {"dead", "starting"}

    @property
    def refusal(self) -> tuple[str, int] | None:
        """Message and status with which it fails every new request; None if it takes them."""
        return _REFUSALS.get(self.state)

    @property
    def is_healthy(self) -> bool:
        """Whether its health check succeeds; a stuck engine is not noticed by it, as with vLLM."""
        return self.state in {"ready", "slow", "stuck"}

    def check(self) -> None:
        """Raise `Dropped` if the replica accepts no connections."""
        if not self.is_alive:
            raise Dropped

    async def started(self) -> None:
        """Start, and wait until the replica is ready."""
        self.change({"state": "starting"})
        assert self._change is not None
        await self._change

    def change(self, wanted: dict[str, Any]) -> None:
        """Change the state.

        Args:
            wanted: `state`; for `slow` the `factor` of all times, and the `seconds` in which it is reached.

        Raises:
            BadRequest: there is no such state.
        """
        state = next((known for known in STATES if known == wanted.get("state")), None)
        if state is None:
            raise BadRequest(f"state: must be one of {', '.join(STATES)}, not {wanted.get('state')!r}")
        factor = number_of(wanted, "factor", 2.0, 1e-6) if state == "slow" else 1.0
        seconds = number_of(wanted, "seconds", 0.0, 0.0) if state == "slow" else 0.0
        self._become(state, self._ongoing(state, factor, seconds))
        if not seconds and state != "draining":
            self._engine.change(factor, stuck=state == "stuck")
        if not self.is_alive:
            self._engine.reset(Dropped())
        elif state == "out-of-memory":
            self._engine.reset(MemoryError(_OUT_OF_MEMORY))

    def _ongoing(self, state: State, factor: float, seconds: float) -> Coroutine[Any, Any, None] | None:
        """Return the change that starts with a state."""
        if state == "starting":
            return self._start()
        if state == "draining":
            return self._drain()
        return self._drift(factor, seconds) if seconds else None

    def _become(self, state: State, change: Coroutine[Any, Any, None] | None) -> None:
        """Switch to a state, and end the change in progress."""
        if self._change is not None:
            self._change.cancel()
        self.state = state
        self._change = None if change is None else asyncio.get_running_loop().create_task(change)

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


def startup_times(text: str) -> dict[str, float]:
    """Return start-up times [s] by name of a model or an accelerator, from `30,llama=120`; default under "".

    Raises:
        SpecError: a part is no time.
    """
    found = {"": 0.0}
    for part in text.split(","):
        key, _, value = part.rpartition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e6:
            raise SpecError(f"--startup: {part!r} must be seconds, or NAME=SECONDS, such as 30,llama_70b=120")
        found[key] = seconds
    return found
