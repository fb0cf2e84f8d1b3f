"""The services of a batch server, prepared for computing arrivals during them (compiled)."""

import math
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, moments_between, sort_up
from optimizer.queueing.bulk.poisson import largest_count
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.service import queue_limit_during, service_ms
from optimizer.simulation.batches import CLOCK, COLLECT, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays

UNLIKELY = 1e-12
"""Share of batches with a full queue up to which full queues are neglected."""


class Service(NamedTuple):
    """Services of a server, aligned at their ends: the longest, and shorter ones that start during it."""

    spacing: float
    """Time between the ends of consecutive full batches [ms]."""
    durations: FloatArray
    """Distinct service times [ms], ascending."""
    flows: FloatArray
    """Mean number of services with each service time per start, of those that leave no request."""
    queue_limits: FloatArray
    """Maximum number of waiting requests during each service; a single entry if it is the same for all."""
    far_late: float
    """Mean number of arrivals that find too many requests to be resolved; all of them are late."""
    first: FloatArray
    """Mean number of longest services per start, by the number of requests that they leave."""
    carried: FloatArray
    """Distribution of the number of requests that a service leaves waiting, updated as time advances."""
    longest_queue: int
    """Largest number of requests that a service leaves waiting with a non-negligible probability."""
    queue_limit: int
    """Maximum queue length that is resolved; 0 if all requests find the server free."""
    overlaps: bool
    """Whether a window that opens during a service can make a request late."""
    moments: FloatArray
    """Quadrature nodes from the start of the longest service, and the mean arrivals of each."""
    by_age: FloatArray
    """Result of `left_by_age`: frequency of full services by age of the window and requests left."""


@compiled_with_arrays
def moments_in_service(
    server: BatchServer,
    rate: float,
    limit: float,
    spacing: float,
    durations: FloatArray,
    least: int,
) -> FloatArray:
    """Return quadrature nodes over a service, from its start [ms], and the mean arrivals of each.

    The panels end at the starts of services and at jumps of completion times across the limit.
    """
    after = 0.0
    if server.trigger in (COLLECT, INTERVAL):
        after = server.window_ms
    longest = durations[-1]
    batches = int((limit + after) / spacing) + 2
    sizes = server.size if server.slope_ms > 0 else 1
    points = np.empty(2 + len(durations) + batches * (2 * sizes + 1))
    points[0], points[1] = 0.0, longest
    count = 2
    # Shorter services start during the longest one.
    for n in range(len(durations)):
        if 0 < durations[n] < longest:
            points[count] = longest - durations[n]
            count += 1
    # Completion times behind f full batches cross the limit, depending on the size of the last batch and on a
    # window before it. With `oldest`, windows also end.
    for f in range(batches):
        for n in range(1, sizes + 1):
            late = limit - service_ms(server, n if sizes > 1 else server.size) - f * spacing
            for shift in range(2 if after > 0 else 1):
                at = late - shift * after
                if 0 < at < longest:
                    points[count] = longest - at
                    count += 1
        at = server.window_ms - f * spacing
        if server.trigger == OLDEST and 0 < at < longest:
            points[count] = longest - at
            count += 1
    sort_up(points, count)
    return moments_between(points, count, rate, least)


@compiled_with_arrays
def service_times_of(
    server: BatchServer, rate: float, starts: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the distinct services: service time, mean number that leaves no request, and queue limit.

    Times are ascending. The last service is that of full batches, which can leave requests; its mean number
    is 0. If all services have the same queue limit, it is returned only once.
    """
    size, clock = server.size, server.trigger == CLOCK
    by_service = server.counts_system and fill_up(server, rate, starts)
    count = size if by_service or (not clock and server.slope_ms != 0) else 1
    durations, flows, queue_limits = np.empty(count), np.zeros(count), np.empty(count if by_service else 1)
    for i in range(count):
        n = size + 1 - count + i
        durations[i] = server.window_ms if clock else service_ms(server, n)
        queue_limits[i if by_service else 0] = queue_limit_during(server, n)
        if n < size:
            flows[i] = starts[n]
    return durations, flows, queue_limits


@compiled
def fill_up(server: BatchServer, rate: float, starts: FloatArray) -> bool:
    """Return whether arrivals during services that leave no request can fill the queue."""
    queue_limit, chance = server.queue_limit - server.size, 0.0
    if queue_limit <= 0:
        return True
    for n in range(1, server.size):
        mean = rate * service_ms(server, n)
        here = starts[n] * math.exp(queue_limit * math.log(mean) - mean - math.lgamma(queue_limit + 1.0))
        for k in range(queue_limit, largest_count(mean) + 1):
            chance += here
            here *= mean / (k + 1)
    return chance > UNLIKELY


@compiled_with_arrays
def left_over(
    server: BatchServer, rate: float, limit: float, spacing: float, starts: FloatArray
) -> tuple[float, FloatArray]:
    """Return the mean arrivals with too many requests ahead, and the distribution of shorter queues left.

    Arrivals with too many requests ahead are always late, so they need not be resolved.
    """
    size, states = server.size, len(starts) - 1
    far, late, count = (int(limit / spacing) + 2) * size + 1, 0.0, states + 1
    if far <= states and queue_limit_during(server, size) > states:
        for i in range(size + far, states + 1):
            late += starts[i]
        count = far + largest_count(rate * spacing)
    else:
        far = states + 1
    first = np.zeros(count)
    for i in range(min(far, states + 1 - size)):
        first[i] = starts[size + i]
    return late * rate * spacing, first


@compiled_with_arrays
def left_by_age(server: BatchServer, oldest: OldestLeft, carried: FloatArray, last: int) -> FloatArray:
    """Return the frequency of full services that leave l < B requests whose window outlasts the next one.

    The result is by age of the window and l.
    """
    size, some, count = server.size, 0.0, 0
    for left in range(1, min(size, last)):
        some += carried[left]
    if some > 1e-9:
        while oldest.ages[count] < server.window_ms - service_ms(server, size):
            count += 1
    by_age = np.zeros((count, size))
    for m in range(count):
        for left in range(1, min(size, last)):
            by_age[m, left] = carried[left] * oldest.chances[left, m]
    return by_age


@compiled_with_arrays
def carried_over(first: FloatArray, queue_limit: int) -> tuple[FloatArray, int]:
    """Return the distribution of the number of requests left, and the largest non-negligible number."""
    carried, high = np.zeros(max(queue_limit, 1)), queue_limit - 1
    for left in range(queue_limit):
        carried[left] = first[left]
    while high > 0 and carried[high] < NEGLIGIBLE:
        high -= 1
    return carried, high


@compiled_with_arrays
def service_of(
    server: BatchServer, rate: float, limit: float, starts: FloatArray, oldest: OldestLeft
) -> Service:
    """Prepare the services of a server for computing the arrivals during them.

    Args:
        rate: arrival rate [1/ms].
        limit: the latency limit [ms].
        starts: distribution of the number of requests at the start of a batch.
        oldest: age distribution of the oldest request left.
    """
    size, window, full_ms = server.size, server.window_ms, service_ms(server, server.size)
    spacing = window if server.trigger == CLOCK else full_ms
    durations, flows, queue_limits = service_times_of(server, rate, starts)
    far_late, first = left_over(server, rate, limit, spacing, starts)
    # All service times are equal, so services that leave no request are treated as full ones with 0 left.
    if len(durations) == 1:
        for i in range(size):
            first[0] += starts[i]
    queue_limit, last_limit = (
        int(min(queue_limits[0], float(len(first)))),
        int(min(queue_limits[-1], float(len(first)))),
    )
    carried, longest = carried_over(first, last_limit)
    overlaps = server.trigger == OLDEST and window > 0 and window + full_ms > limit
    moments = moments_in_service(server, rate, limit, spacing, durations, 4 if overlaps else 1)
    by_age = left_by_age(server, oldest, carried, last_limit if overlaps else 0)
    return Service(
        spacing, durations, flows, queue_limits, far_late, first, carried, longest, queue_limit, overlaps,
        moments, by_age,
    )  # fmt: skip
