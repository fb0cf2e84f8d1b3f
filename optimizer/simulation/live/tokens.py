"""Live replicas of the iteration law and of processor sharing."""

import math
from abc import abstractmethod

import numpy as np

from optimizer.simulation.engine import check_progress, check_tokens
from optimizer.simulation.law import Coefficients, IterationCoefficients, ProcessorSharingCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.live.replica import MIN_ROWS, LiveReplica, Rows, Step
from optimizer.simulation.machine.state import empty_state, with_longer_ends, with_more_rows


def live_tokens(times: Coefficients, limits: Limits, levels: int) -> LiveReplica:
    """Return an empty live replica for a latency model, with a queue of `levels` priorities."""
    if isinstance(times, IterationCoefficients):
        return LiveIterations(times, limits, levels)
    return LiveSharing(times, limits, levels)


class _LiveTokens(LiveReplica):
    """State of the engine, with reused request numbers and arrays that grow as needed."""

    def __init__(self, limits: Limits, levels: int) -> None:
        self._limits = limits
        self._rows = Rows()
        self._machine = empty_state(MIN_ROWS, limits, levels)
        self._scheduled_ms = np.empty(0)
        """Time at which each request first joined the batch [ms], shape (rows,); NaN while it waits."""
        self._next_ms: float | None = math.inf
        """Time of the next step [ms]; None if it must be computed."""
        self._make_buffers()

    def _make_buffers(self) -> None:
        scheduled_ms = np.full(len(self._machine.rows), math.nan)
        scheduled_ms[: len(self._scheduled_ms)] = self._scheduled_ms
        self._scheduled_ms = scheduled_ms
        self._made = np.zeros(len(self._machine.places), np.int64)
        self._ended = np.zeros(len(self._machine.places), np.int64)

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:
        """Add an arriving request, and return its number, or None if it is rejected."""
        if out_tokens >= len(self._machine.ends):
            check_tokens(out_tokens)
            self._machine = with_longer_ends(self._machine, out_tokens)
        row = self._rows.take()
        if row >= len(self._machine.rows):
            self._machine = with_more_rows(self._machine, self._rows.size, self._limits)
            self._make_buffers()
        self._next_ms, self._scheduled_ms[row] = None, math.nan
        if self._offer(row, in_tokens, out_tokens, level, now_ms):
            return row
        self._rows.release(row)
        return None

    def next_ms(self) -> float:
        """Return the time of the next step [ms]; inf if the replica is idle."""
        if self._next_ms is None:
            self._next_ms = self._begin()
            check_progress(self._machine)
        return self._next_ms

    def step(self) -> Step:
        """Advance to the time of the next token."""
        time_ms = self.next_ms()
        begin_ms = float(self._machine.state[0]["now_ms"])
        made, ended = self._end()
        self._next_ms = None
        rows = self._made[:made]  # requests without a prompt enter the batch with their first token
        self._scheduled_ms[rows[np.isnan(self._scheduled_ms[rows])]] = begin_ms
        found = self._rows.end(self._made[:made].tolist(), self._ended[:ended].tolist())
        return Step(time_ms, *found)

    def scheduled_ms(self, row: int) -> float:
        """Return the start of the iteration that first computed the prompt or made the first token [ms]."""
        return float(self._scheduled_ms[row])

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return int(self._machine.state[0]["waiting"])

    @property
    def running(self) -> int:
        """Number of requests in the batch."""
        return int(self._machine.state[0]["running"])

    @property
    def kv_tokens(self) -> int:
        """Number of tokens in the KV cache."""
        state = self._machine.state[0]
        return int(state["decode_tokens"] + state["partial_tokens"])

    @property
    def preemptions(self) -> int:
        """Number of preemptions so far."""
        return int(self._machine.state[0]["preemptions"])

    @abstractmethod
    def _offer(self, row: int, in_tokens: int, out_tokens: int, level: int, now_ms: float) -> bool:
        """Add an arriving request to the engine; return False if it is rejected."""

    @abstractmethod
    def _begin(self) -> float:
        """Start the next step, and return the time of its end [ms]."""

    @abstractmethod
    def _end(self) -> tuple[int, int]:
        """Advance to the next token.

        Fill the buffers of requests, and return the number of requests in each.
        """


class LiveIterations(_LiveTokens):
    """A live replica that computes iterations."""

    def __init__(self, times: IterationCoefficients, limits: Limits, levels: int = 1) -> None:
        from optimizer.simulation.machine import live_iterations

        super().__init__(limits, levels)
        self._times = times
        self._code = live_iterations

    def cancel(self, row: int, now_ms: float) -> None:  # noqa: ARG002
        """Remove a request, at the latest when the iteration in progress ends."""
        if not self._code.withdraw(self._machine, self._limits, row):
            self._rows.leaving.add(row)
            return
        self._rows.release(row)
        self._next_ms = None

    def step(self) -> Step:
        """Advance to the end of the iteration in progress."""
        step = super().step()
        for row in self._rows.take_leaving():
            self._code.withdraw(self._machine, self._limits, row)
            self._rows.release(row)
        return step

    def _offer(self, row: int, in_tokens: int, out_tokens: int, level: int, now_ms: float) -> bool:
        offered: bool = self._code.offer(
            self._machine, self._limits, row, in_tokens, out_tokens, level, now_ms
        )
        return offered

    def _begin(self) -> float:
        return float(self._code.begin_iteration(self._machine, self._times, self._limits, self._scheduled_ms))

    def _end(self) -> tuple[int, int]:
        counts: tuple[int, int] = self._code.end_iteration(
            self._machine, self._limits, self._made, self._ended
        )
        return counts


class LiveSharing(_LiveTokens):
    """A live replica under processor sharing: all requests of the batch progress at once."""

    def __init__(self, times: ProcessorSharingCoefficients, limits: Limits, levels: int = 1) -> None:
        from optimizer.simulation.machine import live_sharing

        super().__init__(limits, levels)
        self._times = times
        self._code = live_sharing

    def cancel(self, row: int, now_ms: float) -> None:
        """Remove a request immediately."""
        self._code.withdraw_shared(self._machine, self._times, row, now_ms)
        self._rows.release(row)
        self._next_ms = None

    def _offer(self, row: int, in_tokens: int, out_tokens: int, level: int, now_ms: float) -> bool:
        offered: bool = self._code.offer_shared(
            self._machine, self._times, self._limits, row, in_tokens, out_tokens, level, now_ms
        )
        return offered

    def _begin(self) -> float:
        return float(self._code.next_shared_ms(self._machine, self._times, self._limits, self._scheduled_ms))

    def _end(self) -> tuple[int, int]:
        counts: tuple[int, int] = self._code.pass_shared(self._machine, self._times, self._made, self._ended)
        return counts
