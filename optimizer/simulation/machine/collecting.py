"""Dynamic-batching server: collects requests, serves them together, and rejects those above its limit."""

import math

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import CLOCK, COLLECT, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, entry

TICK_ROUNDING = 1e-9
"""Share of a tick by which a service can end late because of rounding."""


@entry
def run_batches(
    server: BatchServer, arrival_ms: FloatArray, start_ms: FloatArray, last_ms: FloatArray, queue: IntArray
) -> tuple[float, float, int]:
    """Run all requests through an empty server; return its busy time, ∫ batch dt, and its batches.

    Args:
        server: the server.
        arrival_ms: ascending, shape (R,).
        start_ms: filled with the start of each request's batch; NaN if rejected.
        last_ms: filled with the completion times; NaN if rejected.
        queue: scratch, shape (R,).
    """
    size = server.size
    start_ms[:] = np.nan
    last_ms[:] = np.nan
    count = len(arrival_ms)
    head, tail, arrival, free_ms, tick = 0, 0, 0, 0.0, 0
    busy_ms, batch_ms, batches = 0.0, 0.0, 0
    while True:
        if tail == head and arrival >= count:
            return busy_ms, batch_ms, batches
        now_ms, arrival, tail = collect(server, free_ms, tick, arrival_ms, arrival, queue, head, tail)
        if tail == head:
            return busy_ms, batch_ms, batches
        if server.trigger == CLOCK:
            tick = round(now_ms / server.window_ms)
        n = min(tail - head, size)
        service = server.base_ms + server.slope_ms * n
        free_ms = now_ms + service
        for k in range(head, head + n):
            start_ms[queue[k]] = now_ms
            last_ms[queue[k]] = free_ms
        head += n
        busy_ms += service
        batch_ms += n * service
        batches += 1
        room = server.room - n if server.counts_system else server.room
        while arrival < count and arrival_ms[arrival] < free_ms:
            if tail - head < room:
                queue[tail] = arrival
                tail += 1
            arrival += 1


@compiled
def collect(
    server: BatchServer, free_ms: float, tick: int, arrival_ms: FloatArray, arrival: int, queue: IntArray,
    head: int, tail: int,
) -> tuple[float, int, int]:  # fmt: skip
    """Add arriving requests to the queue of a free server until a batch starts.

    Args:
        server: the server.
        free_ms: time at which it became free.
        tick: index of the last clock tick at which a batch started.
        arrival_ms: arrival times.
        arrival: index of the next arrival.
        queue: waiting requests, from `head` up to `tail`; changed.
        head: start of the queue.
        tail: the end of the queue.

    Returns:
        Start of the batch, the next request to arrive, and the end of the queue, which is empty if no
        request is left.
    """
    # A request that finds the server free does not queue, even without queue places, unless there is a clock.
    room = server.room if server.trigger == CLOCK else max(server.room, 1)
    deadline = first_deadline(server, free_ms, tick, tail - head, arrival_ms, head, queue)
    now_ms = free_ms
    while server.trigger == CLOCK or tail - head < server.size:
        come_ms = arrival_ms[arrival] if arrival < len(arrival_ms) else math.inf
        if come_ms == math.inf or (deadline <= come_ms and tail > head):
            return max(now_ms, deadline), arrival, tail
        if deadline <= come_ms:
            deadline = next_deadline(server, deadline, come_ms)
            continue
        if tail - head < room:
            queue[tail] = arrival
            tail += 1
        arrival += 1
        now_ms = max(now_ms, come_ms)
        if server.window_ms == 0:
            break
        if server.trigger == GAP or (tail - head == 1 and server.trigger in (OLDEST, COLLECT)):
            deadline = come_ms + server.window_ms
    return now_ms, arrival, tail


@compiled
def first_deadline(
    server: BatchServer,
    free_ms: float,
    tick: int,
    waiting: int,
    arrival_ms: FloatArray,
    head: int,
    queue: IntArray,
) -> float:
    """Return the time at which a free server starts its next batch; inf if no request waits."""
    window = server.window_ms
    if server.trigger == CLOCK:
        return max(math.ceil(free_ms / window - TICK_ROUNDING), tick + 1) * window
    if server.trigger == INTERVAL and window > 0:
        return free_ms + window
    if waiting == 0:
        return math.inf
    if server.trigger == OLDEST:
        return arrival_ms[queue[head]] + window
    return free_ms + window


@compiled
def next_deadline(server: BatchServer, deadline: float, come_ms: float) -> float:
    """Return the first deadline after an arrival, when one window follows another."""
    window = server.window_ms
    passed = math.floor((come_ms - deadline) / window) + 1
    return deadline + passed * window
