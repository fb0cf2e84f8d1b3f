"""Life of an emulated replica: start-up, drain, and faults."""

from typing import Any, Literal, get_args

from rest_server.emulator.asgi import BadRequest, Dropped
from rest_server.emulator.engine import Engine

State = Literal["ready", "slow", "stuck", "out-of-memory", "dead"]
STATES: tuple[State, ...] = get_args(State)


class Life:
    """State of a replica, and the changes of it."""

    def __init__(self, engine: Engine) -> None:
        self.state: State = "ready"
        self._engine = engine

    @property
    def is_alive(self) -> bool:
        """Whether it accepts connections."""
        return self.state != "dead"

    @property
    def is_out_of_memory(self) -> bool:
        """Whether it fails every request."""
        return self.state == "out-of-memory"

    @property
    def is_healthy(self) -> bool:
        """Whether its health check succeeds; a stuck engine is not noticed by it, as with vLLM."""
        return self.state in {"ready", "slow", "stuck"}

    def check(self) -> None:
        """Raise `Dropped` if the replica accepts no connections."""
        if not self.is_alive:
            raise Dropped

    def change(self, wanted: dict[str, Any]) -> None:
        """Change the state.

        Args:
            wanted: `state`, and for `slow` the `factor` of all times.

        Raises:
            BadRequest: there is no such state.
        """
        state = next((known for known in STATES if known == wanted.get("state")), None)
        if state is None:
            raise BadRequest(f"state: must be one of {', '.join(STATES)}, not {wanted.get('state')!r}")
        factor = wanted.get("factor", 2.0)
        if not isinstance(factor, int | float) or not 0 < factor < 1e6:
            raise BadRequest(f"factor: must be a number above 0, not {factor!r}")
        self.state = state
        self._engine.change(float(factor) if state == "slow" else 1.0, stuck=state == "stuck")
        if state == "dead":
            self._engine.reset(Dropped())
        elif state == "out-of-memory":
            self._engine.reset(MemoryError("CUDA out of memory."))
