"""Number of late requests among those that arrive during a service (compiled)."""

import math
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, fill_late, latency_limit, moved_on, scratch_for
from optimizer.queueing.bulk.open_windows import late_in_open_windows
from optimizer.queueing.bulk.records import (
    LatencyLimit,
    OldestLeft,
    Scratch,
    Waiting,
)
from optimizer.queueing.bulk.service import service_ms
from optimizer.queueing.bulk.service_times import Service, service_of
from optimizer.simulation.batches import COLLECT, INTERVAL, BatchServer
from optimizer.simulation.machine.compiling import compiled, entry_with_arrays


class Progress(NamedTuple):
    """A moment during the longest service, and the range of queue lengths at it."""

    seen: float
    """Time since the start of the longest service [ms]."""
    upcoming: int
    """Index in the service times of the next service to start; -1 for none."""
    low: int
    """Shortest non-negligible queue length."""
    high: int
    """Longest non-negligible queue length."""


@compiled
def add_fresh(
    rate: float,
    rest: float,
    durations: FloatArray,
    flows: FloatArray,
    queue_limits: FloatArray,
    queue: FloatArray,
) -> tuple[int, int]:
    """Add the queue lengths of services that left no request, at a time `rest` [ms] before their end."""
    low, high = len(queue), -1
    for n in range(len(durations)):
        mean = rate * (durations[n] - rest)
        if mean <= 0 or flows[n] < NEGLIGIBLE:
            continue
        reach = 8 * math.sqrt(mean) + 10
        top = min(int(mean + reach), int(queue_limits[n]) - 1, len(queue) - 1)
        bottom = max(int(mean - reach), 0)
        if bottom > top:
            continue
        # Poisson probabilities are computed from the mode outwards, because products from 0 underflow.
        mode = min(max(int(mean), bottom), top)
        chance = flows[n] * math.exp(mode * math.log(mean) - mean - math.lgamma(mode + 1.0))
        here = chance
        for k in range(mode, bottom - 1, -1):
            queue[k] += here
            here *= k / mean
        here = chance
        for k in range(mode + 1, top + 1):
            here *= mean / k
            queue[k] += here
        low, high = min(low, bottom), max(high, top)
    return low, high


@compiled
def late_share(law: LatencyLimit, service: Service, rest: float, waiting: Waiting, scratch: Scratch) -> float:
    """Return the mean number of late requests that find others waiting `rest` ms before a service ends.

    Partial batches start when the service ends or one window later; `late_in_open_windows` has the others.
    """
    server, limit, (queue, low, high) = law.server, law.limit, waiting
    size, window = server.size, server.window_ms
    after = window if server.trigger in (COLLECT, INTERVAL) else 0.0
    full_ms, least_ms = service_ms(server, size), service_ms(server, 1)
    out, total = scratch.rows[0], 0.0
    for f in range(low // size, high // size + 1):
        # f full batches are ahead. Beyond a certain f, even a batch of one is late; below another, even a
        # full batch after its window is in time; in between, it depends on positions.
        clear = rest + f * service.spacing
        begin, end = max(f * size, low), min(f * size + size - 1, high)
        if clear + least_ms > limit:
            for k in range(begin, high + 1):
                total += queue[k]
            break
        if clear + after + full_ms <= limit:
            continue
        fill_late(law, clear, clear + after, out)
        for k in range(begin, end + 1):
            total += queue[k] * out[k - f * size]
    return total


@compiled
def later_by_age(
    law: LatencyLimit, service: Service, ages: FloatArray, u: float, mean: float, scratch: Scratch
) -> float:
    """Return the additional late requests `u` ms after a start, due to windows opened before the start.

    `mean` is the mean number of arrivals since the moment for which `service.by_age` is stored.
    """
    server, by_age, out, later = law.server, service.by_age, scratch.rows[0], scratch.rows[1]
    size, rest, total = server.size, service.durations[-1] - u, 0.0
    in_time = rest + service_ms(server, 1) <= law.limit
    fill_late(law, rest, rest, out)
    for m in range(len(by_age)):
        moved_on(by_age[m], 0, size - 1, mean, scratch)
        if in_time:
            over = server.window_ms - u - ages[m]
            fill_late(law, rest, over, later)
            for p in range(1, size):
                total += by_age[m, p] * (later[p] - out[p])
    return total


@compiled
def moved_to(service: Service, rate: float, at: Progress, u: float, scratch: Scratch) -> Progress:
    """Advance the queue of waiting requests to a moment `u` [ms], including starts of shorter services."""
    carried, durations = service.carried, service.durations
    seen, upcoming, low, high = at
    while upcoming >= 0 and durations[-1] - durations[upcoming] <= u:
        since = durations[-1] - durations[upcoming]
        low, high = moved_on(carried, low, high, rate * (since - seen), scratch)
        seen, low = since, 0
        carried[0] += service.flows[upcoming]
        upcoming -= 1
    low, high = moved_on(carried, low, high, rate * (u - seen), scratch)
    return Progress(u, upcoming, low, high)


@compiled
def fill_queue_before_end(
    service: Service, rate: float, rest: float, low: int, high: int, queue: FloatArray
) -> tuple[int, int]:
    """Fill the queue length distribution `rest` ms before a service ends; return its shortest and longest."""
    queue[:] = 0.0
    least, most = add_fresh(rate, rest, service.durations, service.flows, service.queue_limits, queue)
    for k in range(low, high + 1):
        queue[k] += service.carried[k]
    return min(least, low), max(most, high)


@entry_with_arrays
def late_in_service(
    server: BatchServer, rate: float, limit: float, starts: FloatArray, oldest: OldestLeft
) -> float:
    """Return the mean number of late requests per start among those that arrive during a service.

    Args:
        rate: arrival rate [1/ms].
        limit: the latency limit [ms].
        starts: distribution of the number of requests at the start of a batch.
        oldest: age distribution of the oldest request left.
    """
    service, total = service_of(server, rate, limit, starts, oldest), 0.0
    total += service.far_late
    if service.queue_limit <= 0:
        return total
    law, scratch = (
        latency_limit(server, rate, limit),
        scratch_for(server.size, service.queue_limit + server.size),
    )
    longest, by_service, queue = (
        service.durations[-1],
        len(service.queue_limits) > 1,
        np.zeros(service.queue_limit),
    )
    at = Progress(0.0, -1 if by_service else len(service.durations) - 1, 0, service.longest_queue)
    # Time advances through the longest service, and the queue of requests left grows. If queue limits differ
    # by service, the queues of services that left no request are added at every moment.
    for row in range(len(service.moments)):
        u, weight = service.moments[row, 0], service.moments[row, 1]
        rest, mean = longest - u, rate * (u - at.seen)
        at = moved_to(service, rate, at, u, scratch)
        waiting = Waiting(service.carried, at.low, at.high)
        if by_service:
            waiting = Waiting(queue, *fill_queue_before_end(service, rate, rest, at.low, at.high, queue))
        late = late_share(law, service, rest, waiting, scratch)
        # A window that opened during the service, or continues, delays requests further.
        if service.overlaps and server.window_ms > rest:
            late += late_in_open_windows(law, service, rest, waiting, scratch)
        if len(service.by_age) > 0:
            late += later_by_age(law, service, oldest.ages, u, mean, scratch)
        total += weight * late
    return total
