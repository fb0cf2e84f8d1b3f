"""Live replicas of the iteration law and of processor sharing."""

import math
from typing import Any

import numpy as np

from optimizer.simulation.engine import check_progress, check_tokens
from optimizer.simulation.law import Coefficients, IterationCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.live.replica import MIN_ROWS, LiveReplica, Rows, Step
from optimizer.simulation.machine.state import empty_state, with_longer_ends, with_more_rows


class LiveTokens(LiveReplica):
    """A live replica that computes iterations, or shares its time, with a queue of some priorities.

    It is the state of the engine, with reused request numbers and arrays that grow as needed.
    """

    def __init__(self, times: Coefficients, limits: Limits, levels: int) -> None:
        from optimizer.simulation.machine import live_iterations, live_sharing

        self._code: Any = live_iterations if isinstance(times, IterationCoefficients) else live_sharing
        self._times = times
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

    def add(
        self,
        now_ms: float,
        in_tokens: int = 0,
        out_tokens: int = 1,
        level: int = 0,
        cached_tokens: int = 0,
        shared_tokens: int = 0,
    ) -> int | None:
        """Add an arriving request, and return its number, or None if it is rejected.

        `cached_tokens` of its prompt are in the prefix cache, and `shared_tokens` of these are stored once
        for all requests.
        """
        if out_tokens >= len(self._machine.ends):
            check_tokens(out_tokens)
            self._machine = with_longer_ends(self._machine, out_tokens)
        row = self._rows.take()
        if row >= len(self._machine.rows):
            self._machine = with_more_rows(self._machine, self._rows.size, self._limits)
            self._make_buffers()
        self._next_ms, self._scheduled_ms[row] = None, math.nan
        request = row, in_tokens, out_tokens, level, cached_tokens, shared_tokens, now_ms
        if self._code.offer(self._machine, self._times, self._limits, *request):
            return row
        self._rows.release(row)
        return None

    def cancel(self, row: int, now_ms: float) -> None:
        """Remove a request, at the latest when the iteration in progress ends."""
        if self._withdraw(row, now_ms):
            self._next_ms = None
        else:
            self._rows.leaving.add(row)

    def _withdraw(self, row: int, now_ms: float) -> bool:
        """Remove a request unless an iteration in progress computes it; return whether it is removed."""
        gone: bool = self._code.withdraw(self._machine, self._times, self._limits, row, now_ms)
        if gone:
            self._rows.release(row)
        return gone

    def next_ms(self) -> float:
        """Return the time of the next step [ms]; inf if the replica is idle."""
        if self._next_ms is None:
            step = self._machine, self._times, self._limits, self._scheduled_ms
            self._next_ms = float(self._code.begin_step(*step))
            check_progress(is_stuck=self._machine.state[0]["stuck"])
        return self._next_ms

    def step(self) -> Step:
        """Advance to the time of the next token, or to the end of the iteration in progress."""
        time_ms = self.next_ms()
        begin_ms = float(self._machine.state[0]["now_ms"])
        made, ended = self._code.end_step(self._machine, self._times, self._limits, self._made, self._ended)
        self._next_ms = None
        rows = self._made[:made]  # requests without a prompt enter the batch with their first token
        self._scheduled_ms[rows[np.isnan(self._scheduled_ms[rows])]] = begin_ms
        end = self._rows.end(self._made[:made].tolist(), self._ended[:ended].tolist())
        for row in self._rows.take_leaving():
            self._withdraw(row, time_ms)
        return Step(time_ms, *end)

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
        return int(state["decode_tokens"] + state["partial_tokens"] - state["shared_tokens"])

    @property
    def preemptions(self) -> int:
        """Number of preemptions so far."""
        return int(self._machine.state[0]["preemptions"])
