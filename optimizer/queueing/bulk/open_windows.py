"""Requests whose window opened during a service and continues after it (trigger `oldest`); compiled."""

import math
from typing import NamedTuple

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, NODES, WEIGHTS, fill_late
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.records import LatencyLimit, Scratch, Waiting
from optimizer.queueing.bulk.service import service_ms
from optimizer.queueing.bulk.service_times import Service
from optimizer.simulation.machine.compiling import compiled

LEADS = 4
"""Number of quadrature nodes for the arrival time of a batch's oldest request, between two completion times.
"""


class LastBatch(NamedTuple):
    """The batch that a request joins during a service."""

    rest: float
    """Remaining time of the service [ms]."""
    clear: float
    """Time until the batches ahead are completed [ms]."""
    ahead: int
    """Number of requests in the batches ahead."""
    followers: int
    """Largest number of requests behind the first request of the batch."""


@compiled
def chance_of(service: Service, rate: float, there: int, rest: float, before: FloatArray) -> float:
    """Return the probability that `there` requests wait at a time `rest` [ms] before a service ends."""
    durations, flows, first = service.durations, service.flows, service.first
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
    total: float, law: LatencyLimit, service: Service, batch: LastBatch, begin: float, end: float,
    scratch: Scratch,
) -> float:  # fmt: skip
    """Add the late requests whose batch's first request arrived between `begin` and `end` [ms] before them.

    `total` is the number of other late requests; the result is the sum.
    """
    if begin == end:
        return total
    server, rate, (rest, clear, ahead, followers) = law.server, law.rate, batch
    out, later, between = scratch.rows[0], scratch.rows[1], scratch.rows[2]
    for node in range(LEADS):
        lead = begin + (end - begin) * NODES[LEADS - 1, node]
        there = chance_of(service, rate, ahead, rest + lead, scratch.before)
        if there < NEGLIGIBLE:
            continue
        there *= rate * (end - begin) * WEIGHTS[LEADS - 1, node]
        fill_chances(rate * lead, between)
        fill_late(law, clear, server.window_ms - lead, later)
        for p in range(1, followers + 1):
            total += there * between[p - 1] * (later[p] - out[p])
    return total


@compiled
def late_in_open_windows(
    law: LatencyLimit, service: Service, rest: float, waiting: Waiting, scratch: Scratch
) -> float:
    """Return the change in late requests because the first request of their batch arrived within the window.

    Args:
        law: the server, its arrivals and the limit.
        service: the services of the server.
        rest: remaining time of the service [ms].
        waiting: mean number of times that requests find each queue length.
        scratch: overwritten.
    """
    server, limit, (queue, low, high) = law.server, law.limit, waiting
    size, window, total = server.size, server.window_ms, 0.0
    out, later = scratch.rows[0], scratch.rows[1]
    for f in range(low // size, high // size + 1):
        clear, ahead = rest + f * service.spacing, f * size
        if clear >= window or clear + service_ms(server, 1) > limit:
            break
        fill_late(law, clear, clear, out)
        if low <= ahead <= high:  # the first arrival opens a window
            fill_late(law, clear, window, later)
            total += queue[ahead] * (later[0] - out[0])
        span = min(service.durations[-1] - rest, window - clear)
        count = min(size - 1, len(queue) - ahead - 1)
        if span <= 0 or count <= 0:
            continue
        # With a constant service time, the batch becomes late at a certain time of the window: split the
        # range there.
        at = window - (limit - server.base_ms)
        cut = at if server.slope_ms == 0 and 0 < at < span else span
        batch = LastBatch(rest, clear, ahead, count)
        for begin, end in ((0.0, cut), (cut, span)):
            total = add_late(total, law, service, batch, begin, end, scratch)
    return total
