"""Means over the cycles of a batch server: requests, busy time and queue (compiled)."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.chain import fill_queue
from optimizer.queueing.bulk.poisson import fill_chances, largest_count
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.service import (
    FIRST_POINTS,
    queue_limit_during,
    service_ms,
    window_opens_before_end,
)
from optimizer.simulation.batches import CLOCK, COLLECT, INTERVAL, BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays, entry_with_arrays


@compiled
def waited(
    rate: float, span: float, first: int, queue_limit: int, reach: int, chances: FloatArray
) -> tuple[float, float]:
    """Return the mean integral of the queue over a time `span` [ms], and the mean number of rejections.

    The queue starts at `first` and grows with all arrivals up to `queue_limit`. `chances` are the
    probabilities of 0 … `reach` arrivals.
    """
    places = queue_limit - first
    survival, total, lasting = 1.0, 0.0, 0.0
    # The queue length is first + c for a mean time of P(N > c) / rate.
    for c in range(min(places, reach + 1)):
        survival -= chances[c]
        here = max(survival, 0.0) / rate
        total += (first + c) * here
        lasting += here
    if places > reach:
        return total, 0.0
    full = max(span - lasting, 0.0)
    return total + queue_limit * full, rate * full


@compiled
def waited_in_window(rate: float, first: int, size: int, chances: FloatArray) -> float:
    """Return the mean integral of the queue length over a window that ends early if the batch is full."""
    survival, total = 1.0, 0.0
    for c in range(size - first):
        survival -= chances[c]
        total += (first + c) * max(survival, 0.0) / rate
    return total


@entry_with_arrays
def totals(
    server: BatchServer, rate: float, starts: FloatArray, leaving: FloatArray
) -> tuple[float, float, float, float, float]:
    """Return means of a cycle: completed and rejected requests, busy time, integral of the queue, Σ n·s(n).

    The integral covers the time in which the server is busy; `waited_when_free` covers the rest. Fills
    `leaving` with the mean number of services that leave q < B requests.
    """
    size, window, states = server.size, server.window_ms, len(starts) - 1
    served, lost, busy, queue_time, answered = 0.0, 0.0, 0.0, 0.0, 0.0
    leaving[:] = 0.0
    clock = server.trigger == CLOCK
    longest = window if clock else service_ms(server, size)
    reach = largest_count(rate * longest)
    queue, chances = np.empty(states + 1), np.empty(reach + 1)
    queue_limit, own, growth = 0, 0.0, 0.0
    for i in range(0 if clock else 1, states + 1):
        n = min(i, size)
        service = service_ms(server, n) if n > 0 else 0.0
        span = window if clock else service
        # The service time, and with it the arrivals, depends on i only up to B.
        if i <= size:
            reach = largest_count(rate * span)
            fill_chances(rate * span, chances)
            queue_limit = server.queue_limit if clock else queue_limit_during(server, n)
            if i == size:  # if all arrivals fit, requests left only add to the integral
                growth, _ = waited(rate, span, 0, reach + 1, reach, chances)
                own = waited(rate, span, 1, reach + 2, reach, chances)[0] - growth
        if starts[i] < 1e-18:
            continue
        served += starts[i] * n
        busy += starts[i] * service
        answered += starts[i] * n * service
        # If no arrival is rejected, the integral is linear in the number left. Otherwise the queue limit
        # bounds it.
        if i >= size and queue_limit - (i - n) > reach:
            queue_time += starts[i] * (growth + own * (i - n))
        else:
            waiting, gone = waited(rate, span, i - n, queue_limit, reach, chances)
            queue_time += starts[i] * waiting
            lost += starts[i] * gone
        if not clock and i < 2 * size:
            top = fill_queue(server, i, states, reach, chances, queue)
            for q in range(i - n, min(size - 1, top) + 1):
                leaving[q] += starts[i] * queue[q]
    return served, lost, busy, queue_time, answered


@entry_with_arrays
def waited_when_free(
    server: BatchServer, rate: float, starts: FloatArray, leaving: FloatArray, oldest: OldestLeft
) -> float:
    """Return the mean integral of the queue length over the time of a cycle in which the server is free."""
    size, window = server.size, server.window_ms
    total = 0.0
    # At a free server without waiting requests, windows open at an arrival, or at a tick (`interval`).
    in_window = np.empty(size)
    fill_chances(rate * window, in_window)
    if server.trigger == INTERVAL:
        total = leaving[0] / -math.expm1(-rate * window) * waited_in_window(rate, 0, size, in_window)
    else:
        total = leaving[0] * waited_in_window(rate, 1, size, in_window)
    # They also open at the end of a service that leaves requests, unless their windows continue (`oldest`).
    if server.trigger in (INTERVAL, COLLECT):
        for q in range(1, size):
            total += leaving[q] * waited_in_window(rate, q, size, in_window)
        return total
    return total + waited_oldest(server, rate, starts, oldest)


@compiled_with_arrays
def waited_oldest(server: BatchServer, rate: float, starts: FloatArray, oldest: OldestLeft) -> float:
    """Return the mean integral of the queue length over windows that opened during a service (`oldest`)."""
    size, window = server.size, server.window_ms
    total = 0.0
    chances, in_horizon, in_window = np.empty(size + 2), np.empty(size + 1), np.empty(size + 1)
    for n in range(1, size + 1):
        most, service = queue_limit_during(server, n), service_ms(server, n)
        if starts[n] == 0 or most <= 0:
            continue
        horizon = min(service, window)
        if most >= size:
            # The first request arrived in the last `horizon` of the service; j requests wait before its
            # window ends.
            late = math.exp(-rate * (service - horizon))
            opening = -math.expm1(-rate * horizon)
            fill_chances(rate * horizon, in_horizon)
            fill_chances(rate * window, in_window)
            beyond_horizon, beyond_window = 1.0 - in_horizon[0], 1.0
            for j in range(1, size):
                beyond_horizon -= in_horizon[j]
                beyond_window -= in_window[j - 1]
                total += starts[n] * late * j * max(opening * beyond_window - beyond_horizon, 0.0) / rate
            continue
        # If the queue limit is below B: quadrature over the age of the window at the end of the service.
        for m in range(FIRST_POINTS):
            age, weight = window_opens_before_end(server, rate, n, starts[n], m, chances)
            fill_chances(rate * (window - age), in_window)
            for c in range(most):
                total += weight * chances[c] * waited_in_window(rate, 1 + c, size, in_window)
    return total + waited_left_over(server, rate, starts, oldest, chances, in_window)


@compiled
def waited_left_over(
    server: BatchServer, rate: float, starts: FloatArray, oldest: OldestLeft, chances: FloatArray,
    in_window: FloatArray,
) -> float:  # fmt: skip
    """Return the mean integral of the queue over the rest of windows of requests that full batches leave."""
    size, window, (ages, age_chances) = server.size, server.window_ms, oldest
    full, total = service_ms(server, size), 0.0
    most = queue_limit_during(server, size)
    fill_chances(rate * full, chances)
    for m in range(len(ages)):
        over = window - full - ages[m]
        if over <= 0:
            continue
        fill_chances(rate * over, in_window)
        for q in range(1, min(size, most + 1)):
            flow = 0.0
            for left in range(1, min(q + 1, len(starts) - size)):
                here = chances[q - left]
                if q == most:  # further arrivals are rejected
                    here = 1.0
                    for c in range(q - left):
                        here -= chances[c]
                flow += starts[size + left] * age_chances[left, m] * max(here, 0.0)
            if flow > 0:
                total += flow * waited_in_window(rate, q, size, in_window)
    return total
