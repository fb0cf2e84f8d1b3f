"""Live dynamic-batching servers with stages before and after them, with or without a limit on jobs inside.

A stage schedules the service of a request on its arrival, so a request that is cancelled at a stage is
dropped only when it leaves the stage.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.simulation.live.batches import LiveBatches
from optimizer.simulation.live.replica import MIN_ROWS, LiveReplica, Rows, Step
from optimizer.simulation.machine.state import lengthened
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem

StageTimes = Callable[[], FloatArray]
"""Function that returns the service times of the next request at each stage [ms]."""


def live_line(line: Tandem, rng: np.random.Generator) -> LiveReplica:
    """Return an empty live replica of a tandem, with random service times at the stages."""
    from optimizer.simulation.machine.passing import stage_times_ms

    def times() -> FloatArray:
        return stage_times_ms(line.stations, 1, rng)[:, 0]

    if line.is_server_alone:
        return LiveBatches(line.server)
    return LiveLine(line, times) if line.jobs == ALL_JOBS else LiveJobs(line, times)


class _Stage:
    """A stage of a tandem, whose workers serve one request each at a time."""

    def __init__(self, station: Station) -> None:
        from optimizer.simulation.machine.stations import run_station

        self._run = run_station
        self._free_ms = np.zeros(station.workers)
        self._left_ms = np.zeros(1)

    def end_ms(self, now_ms: float, service_ms: float) -> float:
        """Add an arriving request, and return the time at which it leaves the stage [ms]."""
        self._run(np.array([now_ms]), np.array([service_ms]), self._free_ms, self._left_ms)
        return float(self._left_ms[0])


class LiveLine(LiveReplica):
    """A dynamic-batching server with stages before and after it.

    Requests pass the stages one after the other.
    """

    def __init__(self, line: Tandem, times: StageTimes) -> None:
        self._server = LiveBatches(line.server)
        self._stages = [_Stage(station) for station in (*line.before, *line.after)]
        self._server_stop = len(line.before)
        self._times = times
        self._rows = Rows()
        self._times_of: dict[int, FloatArray] = {}
        self._row_of: dict[int, int] = {}
        """Number of the live replica's request, by its number in the batching server."""
        self._ends: list[tuple[float, int, int, int]] = []
        """Heap of the requests at stages: end [ms], position in the order of arrival, request, and stage."""
        self._count = 0

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:  # noqa: ARG002
        """Add an arriving request, and return its number, or None if it is rejected."""
        row = self._rows.take()
        self._times_of[row] = self._times()
        if self._enter(row, 0, now_ms):
            return row
        self._forget(row)
        return None

    def cancel(self, row: int, now_ms: float) -> None:
        """Remove a request; if it is at a stage, the stage still serves it."""
        inner = next((number for number, outer in self._row_of.items() if outer == row), None)
        if inner is None:
            self._rows.leaving.add(row)
            return
        self._server.cancel(inner, now_ms)
        del self._row_of[inner], self._times_of[row]
        self._rows.release(row)

    def next_ms(self) -> float:
        """Return the next time at which a request leaves a stage, or a batch starts or ends [ms].

        It is inf if the replica is idle.
        """
        return min(self._server.next_ms(), self._ends[0][0] if self._ends else math.inf)

    def step(self) -> Step:
        """Advance to the next event: a request leaves a stage, or a batch starts or ends."""
        if self._ends and self._ends[0][0] < self._server.next_ms():
            now_ms, _, row, stop = heapq.heappop(self._ends)
            return self._move(now_ms, [row], stop + 1)
        now_ms, _, ended, _ = self._server.step()
        return self._move(now_ms, [self._row_of.pop(inner) for inner in ended], self._server_stop + 1)

    @property
    def waiting(self) -> int:
        """Number of requests in the queue of the dynamic-batching server."""
        return self._server.waiting

    @property
    def running(self) -> int:
        """Number of requests inside that do not wait for the dynamic-batching server."""
        return len(self._times_of) - self._server.waiting

    def _move(self, now_ms: float, rows: list[int], stop: int) -> Step:
        """Move requests to a position in the tandem; after the last position they are complete."""
        ended, rejected = [], []
        for row in rows:
            if row in self._rows.leaving:
                self._rows.leaving.remove(row)
                self._forget(row)
            elif stop > len(self._stages):
                ended.append(row)
                self._forget(row)
            elif not self._enter(row, stop, now_ms):
                rejected.append(row)
                self._forget(row)
        return Step(now_ms, ended, ended, tuple(rejected))

    def _enter(self, row: int, stop: int, now_ms: float) -> bool:
        """Add a request to a position in the tandem; return False if the server rejects it."""
        if stop == self._server_stop:
            inner = self._server.add(now_ms)
            if inner is not None:
                self._row_of[inner] = row
            return inner is not None
        stage = stop if stop < self._server_stop else stop - 1
        end_ms = self._stages[stage].end_ms(now_ms, self._times_of[row][stage])
        heapq.heappush(self._ends, (end_ms, self._count, row, stop))
        self._count += 1
        return True

    def _forget(self, row: int) -> None:
        del self._times_of[row]
        self._rows.release(row)


class LiveJobs(LiveReplica):
    """A dynamic-batching server with stages and a limit on the jobs inside; other jobs wait before it."""

    def __init__(self, line: Tandem, times: StageTimes) -> None:
        from optimizer.simulation.machine.job_limit import JOBS, advance_jobs, tandem_state

        self._advance = advance_jobs
        self._jobs = line.jobs
        self._server_stop = len(line.before)
        self._times = times
        self._rows = Rows()
        self._yard = tandem_state(line, np.zeros((len(line.stations), MIN_ROWS)))
        self._states = np.zeros(1, JOBS)
        self._come_ms, self._last_ms = np.zeros(MIN_ROWS), np.zeros(MIN_ROWS)
        self._door: deque[int] = deque()
        self._inside: list[int] = []

    def add(self, now_ms: float, in_tokens: int = 0, out_tokens: int = 1, level: int = 0) -> int | None:  # noqa: ARG002
        """Add an arriving request; the queue has no limit."""
        row = self._rows.take()
        if row >= len(self._come_ms):
            self._grow()
        self._come_ms[row], self._last_ms[row] = now_ms, math.nan
        self._yard.service_ms[:, row] = np.insert(self._times(), self._server_stop, 0.0)
        self._door.append(row)
        self._let_in()
        return row

    def cancel(self, row: int, now_ms: float) -> None:  # noqa: ARG002
        """Remove a request; if it is inside, it still takes its full time."""
        if row in self._door:
            self._door.remove(row)
            self._rows.release(row)
        else:
            self._rows.leaving.add(row)

    def next_ms(self) -> float:
        """Return the end of the next service [ms]; inf if the replica is idle."""
        return float(self._yard.event_ms[0]) if self._yard.events[0] else math.inf

    def step(self) -> Step:
        """Advance to the end of the next service."""
        time_ms = self.next_ms()
        self._run(0, 0, time_ms)
        over = [row for row in self._inside if not math.isnan(self._last_ms[row])]
        if over:
            self._inside = [row for row in self._inside if math.isnan(self._last_ms[row])]
        made, ended = self._rows.end(over, over)
        self._let_in()
        return Step(time_ms, made, ended)

    @property
    def waiting(self) -> int:
        """Number of requests that wait to enter the tandem."""
        return len(self._door)

    @property
    def running(self) -> int:
        """Number of requests inside the tandem."""
        return len(self._inside)

    def _let_in(self) -> None:
        while self._door and len(self._inside) < self._jobs:
            row = self._door.popleft()
            self._inside.append(row)
            self._run(row, row + 1, -math.inf)

    def _run(self, arrival: int, count: int, until_ms: float) -> None:
        self._advance(
            self._yard, self._states, self._come_ms, arrival, count, self._jobs, self._last_ms, until_ms
        )

    def _grow(self) -> None:
        size, yard = self._rows.size, self._yard
        self._come_ms, self._last_ms = lengthened(self._come_ms, size), lengthened(self._last_ms, size)
        service_ms = np.array([lengthened(times, size) for times in yard.service_ms])
        events = min(self._jobs, size) + 1
        self._yard = yard._replace(
            service_ms=service_ms,
            behind=lengthened(yard.behind, size),
            stop=lengthened(yard.stop, size),
            start_ms=lengthened(yard.start_ms, size),
            event_ms=lengthened(yard.event_ms, events),
            event_row=lengthened(yard.event_row, events),
        )
