"""Time-shared card: dynamic-batching servers that take turns, one batch at a time; compiled."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import entry, inlined


class SharedCard(NamedTuple):
    """A card that S servers share in time, and their R requests."""

    sizes: IntArray
    """Batch limit of each server, shape (S,)."""
    times: FloatArray
    """Window, base and slope of each server [ms], shape (S, 3)."""
    heads: IntArray
    """First waiting request of each server, shape (S,)."""
    ends: IntArray
    """End of each server's requests, shape (S,)."""
    since_ms: FloatArray
    """Start of each server's latest batch [ms], shape (S,)."""
    free_ms: FloatArray
    """End of the latest batch on the card [ms], shape (1,)."""
    arrival_ms: FloatArray
    """Arrivals, one server after the other, ascending within each [ms]; shape (R,)."""
    start_ms: FloatArray
    """Start of each request's batch [ms]."""
    last_ms: FloatArray
    """Completion times [ms]."""
    totals: FloatArray
    """Busy time, ∫ batch dt and batches of each server, shape (S, 3)."""


def empty_card(servers: Sequence[BatchServer], heads: IntArray, arrival_ms: FloatArray) -> SharedCard:
    """Return an empty card, with no requests yet.

    Args:
        servers: its servers.
        heads: first request of each server, shape (S,).
        arrival_ms: arrivals, shape (R,).
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
    """Return the start of the next batch; inf if no request waits."""
    return max(card.free_ms[0], next_turn(card)[1])


@entry
def run_turns(card: SharedCard, until_ms: float) -> None:
    """Run all batches that start up to a time (inclusive).

    A server is ready if its batch is full or its oldest request has waited for the window. Ready servers take
    turns in the order in which they became ready; if requests remain after a batch is taken, the server is
    ready again at the start of that batch at the earliest. A batch takes the requests waiting when it starts.

    Args:
        card: the card; changed.
        until_ms: end of the run.
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
    """Return the first server to be ready and when [ms]; −1 and inf if no requests are left."""
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
