"""Number of late requests among those that find the server free (compiled)."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import (
    fill_late,
    latency_limit,
    moments_between,
    moved_on,
    scratch_for,
    sort_up,
)
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.records import LatencyLimit, OldestLeft
from optimizer.queueing.bulk.service import (
    FIRST_POINTS,
    queue_limit_during,
    service_ms,
    window_opens_before_end,
)
from optimizer.simulation.batches import COLLECT, INTERVAL, BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays, entry_with_arrays


@compiled_with_arrays
def moments_in_window(law: LatencyLimit, window: float, ends: FloatArray) -> FloatArray:
    """Return quadrature nodes over a window, from its start [ms], and the mean arrivals of each.

    The panels end where completion times cross the limit, and where the rest of the window is one of `ends`.
    """
    server, limit = law.server, law.limit
    sizes = server.size if server.slope_ms > 0 else 1
    points = np.empty(2 + sizes + len(ends))
    points[0], points[1] = 0.0, window
    count = 2
    # Times at which a batch of n, started by the window's end, completes exactly at the limit.
    for n in range(1, sizes + 1):
        at = window + service_ms(server, n if sizes > 1 else server.size) - limit
        if 0 < at < window:
            points[count] = at
            count += 1
    for end in ends:
        at = window - end
        if 0 < at < window:
            points[count] = at
            count += 1
    sort_up(points, count)
    return moments_between(points, count, law.rate, 1)


@compiled_with_arrays
def late_in_windows(law: LatencyLimit, ends: FloatArray, first: FloatArray) -> float:
    """Return the mean number of late requests among those that arrive in windows.

    Args:
        law: the free server, its arrivals and the limit.
        ends: remaining time of each window, descending [ms].
        first: mean number of open windows by queue length; shape (windows, B).
    """
    size, rate, window = law.server.size, law.rate, ends[0]
    queue, scratch = np.zeros(size), scratch_for(size, size)
    out, moments = scratch.rows[0], moments_in_window(law, window, ends)
    low, high = 0, size - 1
    total, elapsed, number_open = 0.0, 0.0, 0
    # Time advances through the longest window; shorter ones open later, and all end at the same time.
    for row in range(len(moments)):
        v, weight = moments[row, 0], moments[row, 1]
        while number_open < len(ends) and window - ends[number_open] <= v:
            since = window - ends[number_open]
            moved_on(queue, low, high, rate * (since - elapsed), scratch)
            elapsed, low, high = since, 0, size - 1
            for p in range(size):
                queue[p] += first[number_open, p]
            number_open += 1
        low, high = moved_on(queue, low, high, rate * (v - elapsed), scratch)
        elapsed = v
        fill_late(law, 0.0, window - v, out)
        for p in range(low, high + 1):
            total += weight * queue[p] * out[p]
    return total


@compiled_with_arrays
def late_after_first(law: LatencyLimit, idle: float, flows: FloatArray, counted: FloatArray) -> float:
    """Return the mean number of late requests among those that arrive after the first of a window (`oldest`).

    Args:
        law: the free server, its arrivals and the limit.
        idle: mean number of requests that find the server free and no other waiting.
        flows: mean number of services that leave no request, by batch size.
        counted: mask of the batch sizes to include.
    """
    server, rate = law.server, law.rate
    size, window = server.size, server.window_ms
    out, later, none = np.empty(size), np.empty(size), np.zeros(size + 1)
    ends = np.empty(size)
    for n in range(1, size + 1):
        ends[n - 1] = window - service_ms(server, n) if flows[n] > 0 else 0.0
        none[n] = math.exp(-rate * service_ms(server, n))
    moments = moments_in_window(law, window, ends)
    total = 0.0
    # At a time v after the first arrival of a window, all windows that opened v ago and are still open count:
    # those at a free server, and those during services that have ended.
    for row in range(len(moments)):
        v, weight = moments[row, 0], moments[row, 1]
        open_windows = idle
        for n in range(1, size + 1):
            if flows[n] > 0 and counted[n] > 0:
                left = service_ms(server, n) - v
                open_windows += flows[n] * ((math.exp(-rate * left) if left > 0 else 1.0) - none[n])
        fill_chances(rate * v, later)
        fill_late(law, 0.0, window - v, out)
        for p in range(1, size):
            total += weight * open_windows * later[p - 1] * out[p]
    return total


@compiled_with_arrays
def late_of_oldest(law: LatencyLimit, starts: FloatArray, idle: float, oldest: OldestLeft) -> float:
    """Return the mean number of late requests that find a free server and an open window (`oldest`)."""
    server, size = law.server, law.server.size
    can_fill = np.zeros(size + 1)
    for n in range(1, size + 1):
        can_fill[n] = 1.0 if queue_limit_during(server, n) >= size else 0.0
    total = late_after_first(law, idle, starts[: size + 1], can_fill)
    for n in range(1, size + 1):
        if can_fill[n] == 0 and queue_limit_during(server, n) > 0 and starts[n] > 1e-12:
            total += late_in_limited_queue(law, n, starts[n])
    return total + late_left_over(law, starts, oldest)


@compiled_with_arrays
def late_in_limited_queue(law: LatencyLimit, n: int, flow: float) -> float:
    """Return the mean number of late requests after services of n requests that leave none (limit < B)."""
    server, size = law.server, law.server.size
    ends, first, chances = np.empty(FIRST_POINTS), np.zeros((FIRST_POINTS, size)), np.empty(size)
    for m in range(FIRST_POINTS):
        age, weight = window_opens_before_end(server, law.rate, n, flow, m, chances)
        ends[m] = server.window_ms - age
        for c in range(queue_limit_during(server, n)):
            first[m, 1 + c] = weight * chances[c]
    return late_in_windows(law, ends, first)


@compiled_with_arrays
def late_left_over(law: LatencyLimit, starts: FloatArray, oldest: OldestLeft) -> float:
    """Return the mean number of late requests after full batches that leave requests with an open window."""
    server, (ages, age_chances) = law.server, oldest
    size, rest_ms = server.size, server.window_ms - service_ms(server, server.size)
    most, count = queue_limit_during(server, size), 0
    while ages[count] < rest_ms:
        count += 1
    if count == 0:
        return 0.0
    ends, first, chances = np.empty(count), np.zeros((count, size)), np.empty(size)
    fill_chances(law.rate * service_ms(server, size), chances)
    # The window of the requests left continues for `ends` after the service; arrivals during the service
    # joined them, up to the queue limit.
    for m in range(count):
        ends[m] = rest_ms - ages[m]
        for left in range(1, min(size, len(starts) - size)):
            flow, rest = starts[size + left] * age_chances[left, m], 1.0
            for c in range(min(size, most + 1) - left):
                first[m, left + c] += flow * (max(rest, 0.0) if left + c == most else chances[c])
                rest -= chances[c]
    return late_in_windows(law, ends, first)


@entry_with_arrays
def late_when_free(
    server: BatchServer, rate: float, limit: float, starts: FloatArray, leaving: FloatArray,
    oldest: OldestLeft,
) -> float:  # fmt: skip
    """Return the mean number of late requests among those that find the server free, if there is a window."""
    size, window = server.size, server.window_ms
    law = latency_limit(server, rate, limit)
    # Requests that a service leaves get a full window.
    ends, first = np.empty(1), np.zeros((1, size))
    ends[0] = window
    for q in range(1, size):
        first[0, q] = leaving[q]
    if server.trigger == INTERVAL:
        first[0, 0] = leaving[0] / -math.expm1(-rate * window)
        return late_in_windows(law, ends, first)
    # The first arrival at a free server opens the window, and waits for its end unless the batch fills.
    alone = np.empty(size)
    fill_late(law, 0.0, window, alone)
    total = leaving[0] * alone[0]
    if server.trigger == COLLECT:
        first[0, 1] += leaving[0]
        return total + late_in_windows(law, ends, first)
    return total + late_of_oldest(law, starts, leaving[0], oldest)
