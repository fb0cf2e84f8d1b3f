"""Requests that find the server free, and are answered beyond a limit: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import fill_beyond, moments_between, moved_on, sort_up
from optimizer.queueing.bulk.gaps import beyond_gap, gap_visits
from optimizer.queueing.bulk.poisson import fill_at_most, fill_chances
from optimizer.queueing.bulk.service import FIRST_POINTS, room_beside, service_ms
from optimizer.simulation.batches import COLLECT, GAP, INTERVAL, BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays, entry_with_arrays


@compiled_with_arrays
def jumps_in_window(server: BatchServer, limit: float, window: float, extra: FloatArray) -> FloatArray:
    """Return the elapsed times of a window at which an answer's time passes the limit, with both ends."""
    sizes = server.size if server.slope_ms > 0 else 1
    points = np.empty(2 + 2 * sizes + len(extra))
    points[0], points[1] = 0.0, window
    count = 2
    for n in range(1, sizes + 1):
        at = window + service_ms(server, n if sizes > 1 else server.size) - limit
        if 0 < at < window:
            points[count] = at
            count += 1
    for at in extra:
        if 0 < at < window:
            points[count] = at
            count += 1
    sort_up(points, count)
    return points[:count]


@compiled_with_arrays
def beyond_in_window(
    server: BatchServer, rate: float, limit: float, window: float, first: FloatArray
) -> float:
    """Return how many requests that come in a window are answered beyond a limit; `first` by queue < B."""
    size = server.size
    queue = first.copy()
    chances = np.empty(64)
    out, at_over, at_z = np.empty(size), np.empty(size), np.empty(size)
    fill_at_most(rate * max(limit - service_ms(server, size), 0.0), at_z)
    points = jumps_in_window(server, limit, window, np.empty(0))
    low, high = 0, size - 1
    total, elapsed = 0.0, 0.0
    for v, weight in moments_between(points, rate):
        low, high = moved_on(queue, low, high, rate * (v - elapsed), chances)
        elapsed = v
        fill_beyond(server, rate, limit, 0.0, window - v, at_z, at_over, out)
        for p in range(low, high + 1):
            total += weight * queue[p] * out[p]
    return total


@compiled_with_arrays
def beyond_behind_first(
    server: BatchServer, rate: float, limit: float, idle: float, flows: FloatArray, room_counts: FloatArray
) -> float:
    """Return how many that come behind the first of a window are beyond a limit (`oldest`).

    Args:
        server: the server, which is free.
        rate: arrivals [1/ms].
        limit: the limit [ms].
        idle: how often a request finds the server free and nobody there.
        flows: by batch, how often its service leaves nobody over.
        room_counts: which of these count here.
    """
    size, window = server.size, server.window_ms
    out, at_over, at_z = np.empty(size), np.empty(size), np.empty(size)
    fill_at_most(rate * max(limit - service_ms(server, size), 0.0), at_z)
    behind = np.empty(size)
    ends = np.empty(size)
    for n in range(1, size + 1):
        ends[n - 1] = service_ms(server, n) if flows[n] > 0 else 0.0
    points = jumps_in_window(server, limit, window, ends if server.slope_ms > 0 else ends[size - 1 :])
    total = 0.0
    for v, weight in moments_between(points, rate):
        open_windows = idle
        for n in range(1, size + 1):
            if flows[n] > 0 and room_counts[n] > 0:
                service = service_ms(server, n)
                none = math.exp(-rate * service)
                open_windows += flows[n] * (math.exp(-rate * max(service - v, 0.0)) - none)
        fill_chances(rate * v, behind)
        fill_beyond(server, rate, limit, 0.0, window - v, at_z, at_over, out)
        for p in range(1, size):
            total += weight * open_windows * behind[p - 1] * out[p]
    return total


@compiled_with_arrays
def beyond_oldest(
    server: BatchServer, rate: float, starts: FloatArray, idle: float, limit: float, ages: FloatArray,
    age_chances: FloatArray,
) -> float:  # fmt: skip
    """Return how many that find a free server with a window open are beyond a limit, under `oldest`."""
    size, window = server.size, server.window_ms
    roomy = np.zeros(size + 1)
    for n in range(1, size + 1):
        roomy[n] = 1.0 if room_beside(server, n) >= size else 0.0
    total = beyond_behind_first(server, rate, limit, idle, starts[: size + 1], roomy)
    first, chances = np.zeros(size), np.empty(size)
    for n in range(1, size + 1):
        most = room_beside(server, n)
        if roomy[n] > 0 or most <= 0 or starts[n] < 1e-12:
            continue
        service = service_ms(server, n)
        horizon = min(service, window)
        for m in range(FIRST_POINTS):
            age = (m + 0.5) * horizon / FIRST_POINTS
            weight = starts[n] * rate * math.exp(-rate * (service - age)) * horizon / FIRST_POINTS
            fill_chances(rate * age, chances)
            first[:] = 0.0
            rest = 1.0
            for c in range(most - 1):
                first[1 + c] = weight * chances[c]
                rest -= chances[c]
            first[most] += weight * max(rest, 0.0)
            total += beyond_in_window(server, rate, limit, window - age, first)
    full = service_ms(server, size)
    if window <= full:
        return total
    most = room_beside(server, size)
    for m in range(len(ages)):
        over = window - full - ages[m]
        if over <= 0:
            continue
        first[:] = 0.0
        for left in range(1, min(size, len(starts) - size)):
            flow = starts[size + left] * age_chances[left, m]
            fill_chances(rate * full, chances)
            rest = 1.0
            for c in range(min(size, most + 1) - left):
                if left + c == most:
                    first[most] += flow * max(rest, 0.0)
                else:
                    first[left + c] += flow * chances[c]
                    rest -= chances[c]
        total += beyond_in_window(server, rate, limit, over, first)
    return total


@entry_with_arrays
def beyond_when_free(
    server: BatchServer, rate: float, starts: FloatArray, behind: FloatArray, limit: float, ages: FloatArray,
    age_chances: FloatArray, gaps: FloatArray, step: float,
) -> float:  # fmt: skip
    """Return how many requests that find the server free are answered beyond a limit; with a window."""
    size, window = server.size, server.window_ms
    if server.trigger == GAP:
        total = behind[0] * beyond_gap(server, rate, 1, limit, gaps, step)
        going_on = 1 - math.exp(-rate * window)
        visits = gap_visits(server, rate, behind)
        for j in range(1, size):
            total += visits[j] * going_on * beyond_gap(server, rate, j + 1, limit, gaps, step)
        return total
    first = np.zeros(size)
    first[1:] = behind[1:size]
    if server.trigger == INTERVAL:
        first[0] = behind[0] / -math.expm1(-rate * window)
        return beyond_in_window(server, rate, limit, window, first)
    alone = np.empty(size)
    at_over, at_z = np.empty(size), np.empty(size)
    fill_at_most(rate * max(limit - service_ms(server, size), 0.0), at_z)
    fill_beyond(server, rate, limit, 0.0, window, at_z, at_over, alone)
    total = behind[0] * alone[0]
    if server.trigger == COLLECT:
        first[1] += behind[0]
        return total + beyond_in_window(server, rate, limit, window, first)
    return total + beyond_oldest(server, rate, starts, behind[0], limit, ages, age_chances)
