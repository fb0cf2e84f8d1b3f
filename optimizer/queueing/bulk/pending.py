"""Requests whose window opened during a service and continues after it (`oldest`); compiled."""

import math

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, NODES, WEIGHTS, fill_beyond
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled

LEADS = 4
"""Quadrature nodes for the arrival of a batch's oldest request, between two completion times."""


@compiled
def chance_of(
    rate: float, there: int, rest: float, durations: FloatArray, flows: FloatArray, first: FloatArray,
    before: FloatArray,
) -> float:  # fmt: skip
    """Return the probability that `there` requests wait at a time `rest` before a service ends."""
    chance, factor = 0.0, math.lgamma(there + 1.0)
    for n in range(len(durations)):
        since = durations[n] - rest
        if since > 0 and flows[n] > NEGLIGIBLE:
            mean = rate * since
            chance += flows[n] * math.exp(there * math.log(mean) - mean - factor)
    fill_chances(rate * (durations[-1] - rest), before[: there + 1])
    for left in range(min(there + 1, len(first))):
        chance += first[left] * before[there - left]
    return chance


@compiled
def add_late(
    total: float, server: BatchServer, rate: float, limit: float, rest: float, clear: float, begin: float,
    end: float, ahead: int, count: int, durations: FloatArray, flows: FloatArray, first: FloatArray,
    scratch: FloatArray, before: FloatArray,
) -> float:  # fmt: skip
    """Add the late requests whose batch's first request arrived begin … end before them.

    `total` is the number of late requests without them. The batches ahead, of `ahead` requests, complete at
    `clear`; the last batch has up to `count`.
    """
    out, at_z, at_over, later, between = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    for node in range(LEADS):
        lead = begin + (end - begin) * NODES[LEADS - 1, node]
        there = chance_of(rate, ahead, rest + lead, durations, flows, first, before)
        if there < NEGLIGIBLE:
            continue
        there *= rate * (end - begin) * WEIGHTS[LEADS - 1, node]
        fill_chances(rate * lead, between)
        fill_beyond(server, rate, limit, clear, server.window_ms - lead, at_z, at_over, later)
        for p in range(1, count + 1):
            total += there * between[p - 1] * (later[p] - out[p])
    return total


@compiled
def pending_share(
    server: BatchServer, rate: float, limit: float, rest: float, spacing: float, low: int, high: int,
    queue: FloatArray, durations: FloatArray, flows: FloatArray, first: FloatArray, scratch: FloatArray,
    before: FloatArray,
) -> float:  # fmt: skip
    """Return the change in late requests if the first of their batch arrived within the window.

    Args:
        server: the server.
        rate: arrivals [1/ms].
        limit: the limit [ms].
        rest: remaining time of the service [ms].
        spacing: time to the end of the next full batch.
        low: smallest number waiting.
        high: largest number waiting.
        queue: probability of each.
        durations: of the services, ascending.
        flows: mean number of services of each kind that leave no request.
        first: mean number of services of the last kind, by the number of requests left.
        scratch: shape (5, B + 1); the second row holds P(N ≤ j) up to the latest full batch.
        before: scratch, longer than the queue.
    """
    size, window, total = server.size, server.window_ms, 0.0
    out, at_z, at_over, later = scratch[0], scratch[1], scratch[2], scratch[3]
    for f in range(low // size, high // size + 1):
        clear, ahead = rest + f * spacing, f * size
        if clear >= window or clear + service_ms(server, 1) > limit:
            break
        fill_beyond(server, rate, limit, clear, clear, at_z, at_over, out)
        if low <= ahead <= high:  # the first arrival opens the window
            fill_beyond(server, rate, limit, clear, window, at_z, at_over, later)
            total += queue[ahead] * (later[0] - out[0])
        span = min(durations[-1] - rest, window - clear)
        count = min(size - 1, len(queue) - ahead - 1)
        if span <= 0 or count <= 0:
            continue
        # With a constant service time, the batch becomes late with the window: the range is split there.
        at = window - (limit - server.base_ms)
        cut = at if server.slope_ms == 0 and 0 < at < span else span
        for part in range(2 if cut < span else 1):
            begin, end = (0.0, cut) if part == 0 else (cut, span)
            total = add_late(
                total, server, rate, limit, rest, clear, begin, end, ahead, count, durations, flows, first,
                scratch, before,
            )  # fmt: skip
    return total
