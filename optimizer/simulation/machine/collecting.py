"""Dynamic-batching server: collects requests, serves them together, and rejects those above its limit."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import CLOCK, COLLECT, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, entry, inlined

TICK_ROUNDING = 1e-9
"""Fraction of a clock tick by which a service can end late because of rounding."""


BATCHES = np.dtype(
    [
        ("head", np.int64),  # first waiting request in the queue
        ("tail", np.int64),  # end of the queue
        ("tick", np.int64),  # last clock tick at which a batch started
        ("batch", np.int64),  # requests in service; they precede `head` in the queue
        ("batches", np.int64),
        ("free_ms", np.float64),  # end of the latest batch
        ("now_ms", np.float64),  # free server: time at which it became free, or of the latest arrival
        ("deadline_ms", np.float64),  # free server: start of the next batch, inf if no request waits
        ("busy_ms", np.float64),
        ("batch_ms", np.float64),  # integral of the batch over time
    ],
    align=True,
)
"""Record of a dynamic-batching server's state between two events."""


def empty_server() -> npt.NDArray[Any]:
    """Return the state of an empty server; an empty batch ends at time 0 and starts the first window."""
    state = np.zeros(1, BATCHES)
    state["batch"] = 1
    return state


def run_batches(
    server: BatchServer, arrival_ms: FloatArray, start_ms: FloatArray, last_ms: FloatArray, queue: IntArray
) -> tuple[float, float, int]:
    """Run all requests through an empty server.

    Args:
        arrival_ms: arrival times, ascending, shape (R,).
        start_ms: filled with the start of each request's batch; NaN if rejected.
        last_ms: filled with the completion times; NaN if rejected.
        queue: scratch array, shape (R,).

    Returns:
        Busy time [ms], ∫ batch dt, and number of batches.
    """
    start_ms[:] = last_ms[:] = np.nan
    states = empty_server()
    advance_batches(server, states, arrival_ms, 0, len(arrival_ms), start_ms, last_ms, queue, math.inf)
    return float(states[0]["busy_ms"]), float(states[0]["batch_ms"]), int(states[0]["batches"])


@entry
def advance_batches(
    server: BatchServer, states: npt.NDArray[Any], arrival_ms: FloatArray, arrival: int, count: int,
    start_ms: FloatArray, last_ms: FloatArray, queue: IntArray, until_ms: float,
) -> None:  # fmt: skip
    """Run a server up to a time, inclusive.

    Args:
        states: its state, a record of `BATCHES`; changed.
        arrival_ms: arrival times by request, ascending among those that arrive.
        arrival: index of the first request that arrives.
        count: index after the last request that arrives.
        start_ms: filled with the start of each request's batch.
        last_ms: filled with the completion times.
        queue: requests, of which those from `head` to `tail` wait; rejected ones are absent; changed.
        until_ms: end of the run, not before the last arrival.
    """
    state = states[0]
    head, tail, batch, tick = state.head, state.tail, state.batch, state.tick
    free_ms, now_ms, deadline = state.free_ms, state.now_ms, state.deadline_ms
    busy_ms, batch_ms, batches = state.busy_ms, state.batch_ms, state.batches
    starts = True
    while starts:
        if batch > 0:
            queue_limit = server.queue_limit - batch if server.counts_system else server.queue_limit
            while arrival < count and arrival_ms[arrival] < free_ms:
                if tail - head < queue_limit:
                    queue[tail] = arrival
                    tail += 1
                arrival += 1
            if free_ms > until_ms:
                break
            batch, now_ms = 0, free_ms
            deadline = first_deadline(server, free_ms, tick, tail - head, arrival_ms, head, queue)
        starts, now_ms, deadline, arrival, tail = collect(
            server, now_ms, deadline, arrival_ms, arrival, count, queue, head, tail, until_ms
        )
        if starts:
            if server.trigger == CLOCK:
                tick = round(now_ms / server.window_ms)
            batch = min(tail - head, server.size)
            service = server.base_ms + server.slope_ms * batch
            free_ms = now_ms + service
            for k in range(head, head + batch):
                start_ms[queue[k]] = now_ms
                last_ms[queue[k]] = free_ms
            head += batch
            busy_ms += service
            batch_ms += batch * service
            batches += 1
    state.head, state.tail, state.batch, state.tick = head, tail, batch, tick
    state.free_ms, state.now_ms, state.deadline_ms = free_ms, now_ms, deadline
    state.busy_ms, state.batch_ms, state.batches = busy_ms, batch_ms, batches


@inlined
def collect(
    server: BatchServer, now_ms: float, deadline: float, arrival_ms: FloatArray, arrival: int, count: int,
    queue: IntArray, head: int, tail: int, until_ms: float,
) -> tuple[bool, float, float, int, int]:  # fmt: skip
    """Add arriving requests to the queue of a free server until a batch starts, or up to a time.

    Args:
        now_ms: time at which the server became free, or of the latest arrival.
        deadline: start of the next batch; inf if no request waits.
        arrival_ms: arrival times.
        arrival: index of the next arrival.
        count: index after the last arrival.
        queue: requests, of which those from `head` to `tail` wait; changed.
        head: start of the queue.
        tail: end of the queue.
        until_ms: end of the run.

    Returns:
        Whether a batch starts; its start, or else the time of the latest arrival; the deadline; the index of
            the next arrival; the end of the queue.
    """
    # A request that finds the server free does not queue, even without queue places, unless there is a clock.
    queue_limit = server.queue_limit if server.trigger == CLOCK else max(server.queue_limit, 1)
    while server.trigger == CLOCK or tail - head < server.size:
        come_ms = arrival_ms[arrival] if arrival < count else math.inf
        if deadline <= min(come_ms, until_ms) and tail > head:
            return True, max(now_ms, deadline), deadline, arrival, tail
        if come_ms == math.inf:
            return False, now_ms, deadline, arrival, tail
        if deadline <= come_ms:
            deadline = next_deadline(server, deadline, come_ms)
            continue
        if tail - head < queue_limit:
            queue[tail] = arrival
            tail += 1
        arrival += 1
        now_ms = max(now_ms, come_ms)
        if (
            server.window_ms == 0
            or server.trigger == GAP
            or (tail - head == 1 and server.trigger in (OLDEST, COLLECT))
        ):
            deadline = come_ms + server.window_ms
    return True, now_ms, deadline, arrival, tail


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
    """Return the time at which a free server starts its next batch [ms]; inf if no request waits."""
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
    """Return the first deadline after an arrival [ms], if one window follows another without a pause."""
    window = server.window_ms
    passed = math.floor((come_ms - deadline) / window) + 1
    return deadline + passed * window
