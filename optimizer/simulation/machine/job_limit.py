"""A tandem with a limit on the jobs inside; a waiting job enters when another leaves (compiled)."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled, entry
from optimizer.simulation.machine.heaps import push, remove_first
from optimizer.simulation.tandem import Tandem

NO_REQUEST = -1


JOBS = np.dtype(
    [
        ("now_ms", np.float64),
        ("inside", np.int64),
        ("busy_ms", np.float64),  # busy time of the server
        ("batch_ms", np.float64),  # integral of the server's batch over time
        ("batches", np.int64),
    ],
    align=True,
)
"""Record of a tandem's totals: clock, jobs inside, busy time, ∫ batch dt and batches."""


class TandemState(NamedTuple):
    """State of a tandem, whose stops are the server (index `server_stop`) and the stages."""

    server: BatchServer
    server_stop: int
    workers: IntArray
    """Number of workers at each stop; 1 for the server."""
    service_ms: FloatArray
    """Service times at each stop [ms], shape (stops, R); unused for the server."""
    first: IntArray
    """First waiting request at each stop."""
    last: IntArray
    busy: IntArray
    """Number of busy workers at each stop; for the server, the requests in its batch."""
    behind: IntArray
    """For each request, the request after it in the same queue or batch, shape (R,)."""
    stop: IntArray
    """Current stop of each request, shape (R,)."""
    event_ms: FloatArray
    """Heap of the end times of services in progress [ms], shape (jobs + 1,)."""
    event_row: IntArray
    start_ms: FloatArray
    """Start of each request's batch [ms]; shape (R,)."""
    events: IntArray
    """Number of entries in the heap, shape (1,)."""


def tandem_state(line: Tandem, stage_ms: FloatArray) -> TandemState:
    """Return the state of an empty tandem with a limit on the jobs inside.

    `stage_ms` has the service times of its requests at each stage [ms].
    """
    server_stop, rows = len(line.before), stage_ms.shape[1]
    workers = np.array([station.workers for station in (*line.before, *line.after)], np.int64)
    stops, events = len(workers) + 1, min(line.jobs, rows) + 1
    service_ms = np.insert(stage_ms, server_stop, 0.0, axis=0)
    return TandemState(
        line.server, server_stop, np.insert(workers, server_stop, 1), service_ms,
        np.full(stops, NO_REQUEST), np.full(stops, NO_REQUEST), np.zeros(stops, np.int64),
        np.full(rows, NO_REQUEST), np.zeros(rows, np.int64),
        np.zeros(events), np.zeros(events, np.int64),
        np.full(rows, np.nan), np.zeros(1, np.int64),
    )  # fmt: skip


@entry
def advance_jobs(
    yard: TandemState, states: npt.NDArray[Any], come_ms: FloatArray, arrival: int, count: int, jobs: int,
    last_ms: FloatArray, until_ms: float,
) -> None:  # fmt: skip
    """Run a tandem up to a time, inclusive, and fill the completion times.

    Args:
        yard: state of the tandem; changed.
        states: its totals, a record of `JOBS`; changed.
        come_ms: arrival times by request, ascending among those that arrive.
        arrival: index of the first request that arrives; it enters when fewer than `jobs` are inside.
        count: index after the last request that arrives.
        jobs: maximum requests inside.
        last_ms: completion times by request; filled.
        until_ms: end of the run, not before the last arrival.
    """
    state = states[0]
    now_ms, inside = state.now_ms, state.inside
    busy_ms, batch_ms, batches = state.busy_ms, state.batch_ms, state.batches
    while True:
        next_ms = yard.event_ms[0] if yard.events[0] > 0 else np.inf
        if inside < jobs and arrival < count and max(now_ms, come_ms[arrival]) <= next_ms:
            now_ms = max(now_ms, come_ms[arrival])
            yard.stop[arrival] = 0
            join(yard, arrival, now_ms)
            inside, arrival = inside + 1, arrival + 1
            continue
        if yard.events[0] == 0 or next_ms > until_ms:
            break
        now_ms, row = next_ms, yard.event_row[0]
        yard.events[0] -= 1
        remove_first(yard.event_ms, yard.event_row, yard.events[0])
        stop = yard.stop[row]
        leaving = 1
        if stop == yard.server_stop:
            leaving = yard.busy[stop]
            spent_ms = yard.server.base_ms + yard.server.slope_ms * leaving
            busy_ms, batch_ms, batches = busy_ms + spent_ms, batch_ms + leaving * spent_ms, batches + 1
        yard.busy[stop] -= leaving
        for _ in range(leaving):
            follower = yard.behind[row]
            yard.stop[row] += 1
            if yard.stop[row] == len(yard.workers):
                last_ms[row] = now_ms
                inside -= 1
            else:
                join(yard, row, now_ms)
            row = follower
        start_services(yard, stop, now_ms)
    state.now_ms, state.inside = now_ms, inside
    state.busy_ms, state.batch_ms, state.batches = busy_ms, batch_ms, batches


@compiled
def join(yard: TandemState, row: int, now_ms: float) -> None:
    """Add a request to the queue of its current stop, and serve it if a worker is free."""
    stop = yard.stop[row]
    yard.behind[row] = NO_REQUEST
    if yard.first[stop] == NO_REQUEST:
        yard.first[stop] = row
    else:
        yard.behind[yard.last[stop]] = row
    yard.last[stop] = row
    start_services(yard, stop, now_ms)


@compiled
def start_services(yard: TandemState, stop: int, now_ms: float) -> None:
    """Start as many services at a stop as its free workers and waiting requests allow."""
    row = yard.first[stop]
    if stop == yard.server_stop:
        if yard.busy[stop] > 0 or row == NO_REQUEST:
            return
        taken, batch = row, 0
        while taken != NO_REQUEST and batch < yard.server.size:
            yard.start_ms[taken] = now_ms
            taken, batch = yard.behind[taken], batch + 1
        yard.first[stop], yard.busy[stop] = taken, batch
        add_end(yard, now_ms + yard.server.base_ms + yard.server.slope_ms * batch, row)
        return
    while row != NO_REQUEST and yard.busy[stop] < yard.workers[stop]:
        yard.first[stop] = yard.behind[row]
        yard.busy[stop] += 1
        add_end(yard, now_ms + yard.service_ms[stop, row], row)
        row = yard.first[stop]


@compiled
def add_end(yard: TandemState, end_ms: float, row: int) -> None:
    """Add the end of a request's service to the heap."""
    push(yard.event_ms, yard.event_row, yard.events[0], end_ms, row)
    yard.events[0] += 1
