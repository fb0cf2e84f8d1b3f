"""Live replica with static batching."""

import math

import numpy as np

from optimizer.simulation.law import StaticCoefficients
from optimizer.simulation.limits import Limits
from optimizer.simulation.live.replica import (
    MIN_ROWS,
    LiveReplica,
    Rows,
    Step,
    drop_from_queue,
    make_room,
)
from optimizer.simulation.machine.state import lengthened


class LiveStatics(LiveReplica):
    """A replica that runs one batch after the other, one decode step at a time."""

    def __init__(self, times: StaticCoefficients, limits: Limits) -> None:
        from optimizer.simulation.machine import statics

        self._code = statics
        self._times = times
        self._limits = limits
        self._rows = Rows()
        in_tokens, out_tokens = np.zeros((2, MIN_ROWS), np.int64)
        self._line = statics.empty_line(np.zeros(MIN_ROWS), in_tokens, out_tokens, 2 * MIN_ROWS)

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:  # noqa: ARG002
        """Add an arriving request, and return its number, or None if it is rejected."""
        row = self._rows.take()
        if row >= len(self._line.come_ms):
            self._grow()
        line, state = self._line, self._line.states[0]
        make_room(line.queue, state)
        line.come_ms[row], line.in_tokens[row], line.out_tokens[row] = now_ms, in_tokens, out_tokens
        if self._code.offer_static(self._times, self._limits.max_batch, self._limits.max_queue, line, row):
            return row
        self._rows.release(row)
        return None

    def cancel(self, row: int, now_ms: float) -> None:  # noqa: ARG002
        """Remove a request, at the latest when the step in progress ends.

        With padding, its slot stays occupied.
        """
        state = self._line.states[0]
        if drop_from_queue(self._line.queue, state, row):
            self._rows.release(row)
        elif state["end_ms"] < math.inf:
            self._rows.leaving.add(row)
        else:
            self._withdraw(row)

    def next_ms(self) -> float:
        """Return the end of the prefill or decode step in progress [ms]; inf if the replica is idle."""
        return float(self._code.begin_step(self._times, self._limits.max_batch, self._line))

    def step(self) -> Step:
        """Advance to the end of the prefill or decode step in progress."""
        state, time_ms = self._line.states[0], self.next_ms()
        end, first = int(state["head"]), int(state["head"] - state["batch"] + state["complete"])
        self._code.end_step(self._line)
        over = int(state["head"] - state["batch"] + state["complete"]) if state["batch"] else end
        rows = self._line.queue[first:end].tolist()
        made, ended = self._rows.end(rows, rows[: over - first])
        for row in self._rows.take_leaving():
            self._withdraw(row)
        return Step(time_ms, made, ended)

    def scheduled_ms(self, row: int) -> float:  # noqa: ARG002
        """Return the start of the latest batch [ms], which contains every request that makes a token."""
        return float(self._line.states[0]["start_ms"])

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return int(self._line.states[0]["tail"] - self._line.states[0]["head"])

    @property
    def running(self) -> int:
        """Number of requests in the batch that are not complete."""
        return int(self._line.states[0]["batch"] - self._line.states[0]["complete"])

    def _withdraw(self, row: int) -> None:
        """Remove a request of the batch between two steps."""
        state, queue = self._line.states[0], self._line.queue
        first = int(state["head"] - state["batch"] + state["complete"])
        place = first + int(np.flatnonzero(queue[first : state["head"]] == row)[0])
        queue[first + 1 : place + 1] = queue[first:place].copy()
        queue[first] = row
        state["complete"] += 1
        if state["complete"] == state["batch"]:
            state["busy_ms"] += state["now_ms"] - state["start_ms"]
            state["batch"] = state["complete"] = 0
        self._rows.release(row)

    def _grow(self) -> None:
        line, size = self._line, self._rows.size
        longer = {name: lengthened(getattr(line, name), size) for name in line._fields[1:-1]}
        self._line = line._replace(**longer, queue=lengthened(line.queue, 2 * size))
