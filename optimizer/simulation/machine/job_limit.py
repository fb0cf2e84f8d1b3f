"""A line that works on so many jobs at once: the next is taken when one has left; compiled."""

from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled, entry
from optimizer.simulation.machine.heaps import push, remove_first

NO_REQUEST = -1


class TandemState(NamedTuple):
    """Where the jobs of a line are: the batch server is the stop `server_stop`, the stages are the others."""

    server: BatchServer
    server_stop: int
    workers: IntArray
    """By stop; of the server 1."""
    service_ms: FloatArray
    """How long each request is served at each stop, shape (stops, R); not used of the server."""
    first: IntArray
    """First of those that wait at each stop."""
    last: IntArray
    busy: IntArray
    """Workers who serve at each stop; of the server the requests in its batch."""
    behind: IntArray
    """Who waits behind each request, or is in the same batch; shape (R,)."""
    stop: IntArray
    """Where each request is, shape (R,)."""
    event_ms: FloatArray
    """When services end: a heap, shape (jobs + 1,); and of whom, of a batch the first:"""
    event_row: IntArray
    start_ms: FloatArray
    """When each batch starts, by request; shape (R,)."""
    events: IntArray
    """Events; shape (1,)."""


def empty_tandem(
    server: BatchServer, server_stop: int, workers: list[int], service_ms: FloatArray, jobs: int
) -> TandemState:
    """Return an empty line."""
    stops, rows = len(workers), service_ms.shape[1]
    return TandemState(
        server, server_stop, np.array(workers), service_ms,
        np.full(stops, NO_REQUEST), np.full(stops, NO_REQUEST), np.zeros(stops, np.int64),
        np.full(rows, NO_REQUEST), np.zeros(rows, np.int64),
        np.zeros(min(jobs, rows) + 1), np.zeros(min(jobs, rows) + 1, np.int64),
        np.full(rows, np.nan), np.zeros(1, np.int64),
    )  # fmt: skip


@entry
def run_jobs(
    yard: TandemState, come_ms: FloatArray, jobs: int, last_ms: FloatArray
) -> tuple[float, float, int]:
    """Run all requests, which come in ascending order; fill when each leaves.

    Returns:
        Busy time of the batch server, ∫ batch dt, and its batches.
    """
    now_ms, inside, arrival = 0.0, 0, 0
    busy_ms, batch_ms, batches = 0.0, 0.0, 0
    while True:
        next_ms = yard.event_ms[0] if yard.events[0] > 0 else np.inf
        if inside < jobs and arrival < len(come_ms) and max(now_ms, come_ms[arrival]) <= next_ms:
            now_ms = max(now_ms, come_ms[arrival])
            yard.stop[arrival] = 0
            join(yard, arrival, now_ms)
            inside, arrival = inside + 1, arrival + 1
            continue
        if yard.events[0] == 0:
            return busy_ms, batch_ms, batches
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
        serve(yard, stop, now_ms)


@compiled
def join(yard: TandemState, row: int, now_ms: float) -> None:
    """Let a request wait at its stop, behind all others, and be served if there is a worker."""
    stop = yard.stop[row]
    yard.behind[row] = NO_REQUEST
    if yard.first[stop] == NO_REQUEST:
        yard.first[stop] = row
    else:
        yard.behind[yard.last[stop]] = row
    yard.last[stop] = row
    serve(yard, stop, now_ms)


@compiled
def serve(yard: TandemState, stop: int, now_ms: float) -> None:
    """Begin what can begin at a stop."""
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
    """Note when a service ends."""
    push(yard.event_ms, yard.event_row, yard.events[0], end_ms, row)
    yard.events[0] += 1
