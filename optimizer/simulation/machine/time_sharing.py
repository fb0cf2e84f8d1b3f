"""Card shared in time: dynamic-batching servers take turns on it, one batch at a time (compiled)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import entry, inlined


class SharedCard(NamedTuple):
    """A card that S servers share in time, and their R requests."""

    sizes: IntArray
    """Batch limit of each server [requests], shape (S,)."""
    times: FloatArray
    """Batching window, base time and time per request of each server [ms], shape (S, 3)."""
    heads: IntArray
    """Index of the first waiting request of each server, shape (S,)."""
    ends: IntArray
    """Index after the last request of each server, shape (S,)."""
    since_ms: FloatArray
    """Start of each server's latest batch [ms], shape (S,)."""
    free_ms: FloatArray
    """End of the latest batch on the card [ms], shape (1,)."""
    arrival_ms: FloatArray
    """Arrival times, one server after the other, ascending within each server [ms], shape (R,)."""
    start_ms: FloatArray
    """Start of each request's batch [ms], shape (R,)."""
    last_ms: FloatArray
    """Completion time of each request [ms], shape (R,)."""
    totals: FloatArray
    """Busy time [ms], ∫ batch dt and number of batches of each server, shape (S, 3)."""


def empty_card(servers: Sequence[BatchServer], heads: IntArray, arrival_ms: FloatArray) -> SharedCard:
    """Return an empty card before its first request.

    Args:
        servers: the servers that share the card.
        heads: index of the first request of each server, shape (S,).
        arrival_ms: arrival times [ms], shape (R,).
    """
    count, requests = len(servers), len(arrival_ms)
    times = np.array([[float(one.window_ms), one.base_ms, one.slope_ms] for one in servers])
    sizes = np.array([one.size for one in servers])
    return SharedCard(
        sizes, times, heads.copy(), heads.copy(), np.zeros(count), np.zeros(1), arrival_ms,
        np.full(requests, np.nan), np.full(requests, np.nan), np.zeros((count, 3)),
    )  # fmt: skip


@entry
def next_start_ms(card: SharedCard) -> float:
    """Return the start of the next batch [ms]; inf if no request waits."""
    return max(card.free_ms[0], next_turn(card)[1])


@entry
def run_turns(card: SharedCard, until_ms: float) -> None:
    """Run all batches that start up to a time, inclusive.

    A server is ready if its batch is full or its oldest request has waited for the window. Ready servers take
    turns in the order in which they became ready. If requests remain after a batch is taken, the server is
    ready again at the start of that batch at the earliest. A batch takes the requests waiting when it starts.

    Args:
        card: state of the card; changed.
        until_ms: end of the run [ms].
    """
    free_ms = card.free_ms[0]
    while True:
        server, ready_ms = next_turn(card)
        begin_ms = max(free_ms, ready_ms)
        if server < 0 or begin_ms > until_ms:
            card.free_ms[0] = free_ms
            return
        head, n = card.heads[server], 0
        while (
            n < card.sizes[server] and head + n < card.ends[server] and card.arrival_ms[head + n] <= begin_ms
        ):
            n += 1
        service_ms = card.times[server, 1] + card.times[server, 2] * n
        free_ms = begin_ms + service_ms
        for row in range(head, head + n):
            card.start_ms[row] = begin_ms
            card.last_ms[row] = free_ms
        card.heads[server] = head + n
        card.since_ms[server] = begin_ms
        card.totals[server, 0] += service_ms
        card.totals[server, 1] += n * service_ms
        card.totals[server, 2] += 1


@inlined
def next_turn(card: SharedCard) -> tuple[int, float]:
    """Return the index of the server that is ready next, and when [ms].

    They are −1 and inf if no requests are left.
    """
    server, ready_ms = -1, np.inf
    for k in range(len(card.sizes)):
        head = card.heads[k]
        if head < card.ends[k]:
            at_ms = card.arrival_ms[head] + card.times[k, 0]
            if head + card.sizes[k] <= card.ends[k]:
                at_ms = min(at_ms, card.arrival_ms[head + card.sizes[k] - 1])
            at_ms = max(at_ms, card.since_ms[k])
            if at_ms < ready_ms:
                server, ready_ms = k, at_ms
    return server, ready_ms
