"""Time-shared card: dynamic-batching servers that take turns, one batch at a time; compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.machine.compiling import entry


@entry
def run_turns(
    sizes: IntArray, times: FloatArray, ends: IntArray, arrival_ms: FloatArray, start_ms: FloatArray,
    last_ms: FloatArray, heads: IntArray, since_ms: FloatArray, totals: FloatArray,
) -> None:  # fmt: skip
    """Run all requests through an empty card.

    A server is ready if its batch is full or its oldest request has waited for the window. Ready servers take
    turns in the order in which they became ready; if requests remain after a batch is taken, the server is
    ready again at the start of that batch at the earliest. A batch takes the requests waiting when it starts.

    Args:
        sizes: batch limit of each server, shape (S,).
        times: window, base and slope of each server [ms], shape (S, 3).
        ends: end of each server's requests, shape (S,).
        arrival_ms: arrivals, one server after the other, ascending within each; shape (R,).
        start_ms: filled with the start of each request's batch.
        last_ms: filled with the completion times.
        heads: first request of each server; changed.
        since_ms: scratch, zeros, shape (S,).
        totals: busy time, ∫ batch dt and batches of each server; zeros, filled, shape (S, 3).
    """
    free_ms = 0.0
    while True:
        server, ready_ms = -1, np.inf
        for k in range(len(sizes)):
            head = heads[k]
            if head < ends[k]:
                at_ms = arrival_ms[head] + times[k, 0]
                if head + sizes[k] <= ends[k]:
                    at_ms = min(at_ms, arrival_ms[head + sizes[k] - 1])
                at_ms = max(at_ms, since_ms[k])
                if at_ms < ready_ms:
                    server, ready_ms = k, at_ms
        if server < 0 or ready_ms == math.inf:
            return
        begin_ms, head, n = max(free_ms, ready_ms), heads[server], 0
        while n < sizes[server] and head + n < ends[server] and arrival_ms[head + n] <= begin_ms:
            n += 1
        service_ms = times[server, 1] + times[server, 2] * n
        free_ms = begin_ms + service_ms
        for row in range(head, head + n):
            start_ms[row] = begin_ms
            last_ms[row] = free_ms
        heads[server] = head + n
        since_ms[server] = begin_ms
        totals[server, 0] += service_ms
        totals[server, 1] += n * service_ms
        totals[server, 2] += 1
