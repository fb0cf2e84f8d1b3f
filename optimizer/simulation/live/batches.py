"""Live replica of a dynamic-batching server."""

import math

import numpy as np

from optimizer.simulation.batches import COLLECT, GAP, OLDEST, BatchServer
from optimizer.simulation.live.replica import (
    MIN_ROWS,
    LiveReplica,
    Rows,
    Step,
    drop_from_queue,
    make_room,
)
from optimizer.simulation.machine.state import lengthened


class LiveBatches(LiveReplica):
    """A live dynamic-batching server; each request makes one token when its batch ends."""

    def __init__(self, server: BatchServer) -> None:
        from optimizer.simulation.machine.collecting import advance_batches, empty_server

        self._server = server
        self._advance = advance_batches
        self._states = empty_server()
        self._rows = Rows()
        self._arrival_ms, self._start_ms, self._last_ms = (np.zeros(MIN_ROWS) for _ in range(3))
        self._queue = np.zeros(2 * MIN_ROWS, np.int64)
        self._run(0, 0, 0.0)

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:  # noqa: ARG002
        """Add an arriving request, and return its number, or None if it is rejected."""
        row = self._rows.take()
        if row >= len(self._arrival_ms):
            self._grow()
        state = self._states[0]
        make_room(self._queue, state)
        self._arrival_ms[row] = now_ms
        before = int(state["tail"])
        self._run(row, row + 1, now_ms)
        if state["tail"] > before:
            return row
        self._rows.release(row)
        return None

    def cancel(self, row: int, now_ms: float) -> None:  # noqa: ARG002
        """Remove a request; if its batch is in service, the batch still takes its full time."""
        state = self._states[0]
        if not drop_from_queue(self._queue, state, row):
            self._rows.leaving.add(row)
            return
        self._rows.release(row)
        if state["batch"] == 0 and self._server.trigger in {OLDEST, COLLECT, GAP}:
            if state["head"] == state["tail"]:
                state["deadline_ms"] = math.inf
            elif self._server.trigger == OLDEST:
                oldest = self._queue[state["head"]]
                state["deadline_ms"] = self._arrival_ms[oldest] + self._server.window_ms

    def next_ms(self) -> float:
        """Return the time of the next start or end of a batch [ms]; inf if the replica is idle."""
        state = self._states[0]
        if state["batch"]:
            return float(state["free_ms"])
        if state["tail"] == state["head"]:
            return math.inf
        return float(max(state["now_ms"], state["deadline_ms"]))

    def step(self) -> Step:
        """Advance to the next start or end of a batch."""
        state, time_ms = self._states[0], self.next_ms()
        served = self._queue[state["head"] - state["batch"] : state["head"]].tolist()
        self._run(0, 0, time_ms)
        made, ended = self._rows.end(served, served)
        return Step(time_ms, made, ended)

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return int(self._states[0]["tail"] - self._states[0]["head"])

    @property
    def running(self) -> int:
        """Number of requests in service."""
        return int(self._states[0]["batch"])

    def _run(self, arrival: int, count: int, until_ms: float) -> None:
        times = self._start_ms, self._last_ms
        self._advance(
            self._server, self._states, self._arrival_ms, arrival, count, *times, self._queue, until_ms
        )

    def _grow(self) -> None:
        size = self._rows.size
        self._arrival_ms, self._start_ms, self._last_ms = (
            lengthened(values, size) for values in (self._arrival_ms, self._start_ms, self._last_ms)
        )
        self._queue = lengthened(self._queue, 2 * size)
