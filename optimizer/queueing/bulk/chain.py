"""Markov chain of the number of requests at the start of each batch (compiled)."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.oldest_transitions import Transitions, add_after_first, add_after_rest
from optimizer.queueing.bulk.poisson import fill_chances, largest_count
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.service import fill_window, queue_limit_during, service_ms
from optimizer.queueing.bulk.stationary import fill_stationary
from optimizer.simulation.batches import CLOCK, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays, entry_with_arrays


@compiled
def fill_queue(
    server: BatchServer, i: int, states: int, reach: int, chances: FloatArray, queue: FloatArray
) -> int:
    """Fill the queue length distribution at the end of a service of i requests; return the largest length.

    Args:
        i: number of requests at the start.
        states: largest queue length that is resolved.
        reach: largest number of arrivals that is considered.
        chances: probability of each number of arrivals; shape (reach + 1,) or longer.
        queue: filled with the probability of each queue length.
    """
    n = min(i, server.size)
    left = i - n
    most = min(server.queue_limit if server.trigger == CLOCK else queue_limit_during(server, n), states)
    top = max(min(most, left + reach), left)
    for q in range(left):
        queue[q] = 0.0
    rest = 1.0
    for c in range(top - left):
        queue[left + c] = chances[c]
        rest -= chances[c]
    queue[top] = max(rest, 0.0)
    return top


@compiled
def add_started(
    server: BatchServer, rate: float, in_window: FloatArray, queue: FloatArray, out: FloatArray
) -> None:
    """Add the batches that start after services that left fewer than B requests, whatever their age."""
    size, window = server.size, server.window_ms
    # Without a window, waiting requests start at once; a free server starts the first arrival alone.
    if window == 0 or size == 1:
        out[1] += queue[0]
        for q in range(1, size):
            out[q] += queue[q]
        return
    # With `clock`, only ticks that find requests start a batch. Other triggers open a window at the first
    # arrival.
    if server.trigger == INTERVAL:
        some = -math.expm1(-rate * window)
        rest = queue[0]
        for j in range(1, size):
            chance = queue[0] * in_window[j] / some
            out[j] += chance
            rest -= chance
        out[size] += max(rest, 0.0)
    else:
        fill_window(in_window, 1, size, queue[0], out)
    for q in range(1, size):
        if queue[q] > 0:
            fill_window(in_window, q, size, queue[q], out)


@compiled
def close_tail(
    states: int, decay: float, size: int, reach: int, chances: FloatArray, out: FloatArray
) -> None:
    """Fill the transition probabilities of the last state, which also represents all larger states.

    The probabilities of larger states decay geometrically by a factor of e to the −`decay`.
    """
    kept = math.exp(-decay)
    share, rest = 1 - kept, 1.0
    for j in range(states + 1):
        out[j] = 0.0
    for above in range(size):  # states at least `size` larger stay beyond the last state
        for c in range(min(reach, size - above - 1) + 1):
            chance = share * chances[c]
            out[states + above - size + c] += chance
            rest -= chance
        share *= kept
    out[states] += max(rest, 0.0)


@compiled
def add_row(i: int, least: int, size: int, up: int, high: int, out: FloatArray, rows: FloatArray) -> None:
    """Store the normalised transition probabilities of a batch that starts with i requests."""
    low, total = max(i - size, least), 0.0
    for j in range(low, high + 1):
        total += out[j]
    for j in range(low, high + 1):
        rows[i - least, size + min(j, i + up) - i] += out[j] / total


@compiled
def split_off_full(size: int, top: int, queue: FloatArray, out: FloatArray) -> float:
    """Fill the next start for services that leave at least B requests; return their probability.

    The entries of the queue that are used are set to zero.
    """
    chance = 0.0
    for j in range(size):
        out[j] = 0.0
    for j in range(size, max(top, size) + 1):
        out[j] = queue[j] if j <= top else 0.0
        chance += out[j]
    for j in range(top + 1, size):
        queue[j] = 0.0
    return chance


@compiled_with_arrays
def counts_in_rests(server: BatchServer, rate: float, oldest: OldestLeft) -> FloatArray:
    """Return P(N = 0 … B arrivals) in the rest of a window, by its age; empty if no window continues."""
    window = server.window_ms
    overlaps = server.trigger == OLDEST and window > service_ms(server, server.size)
    chances = np.empty((len(oldest.ages) if overlaps else 0, server.size + 1))
    for m in range(len(chances)):
        fill_chances(rate * max(window - oldest.ages[m], 0.0), chances[m])
    return chances


@compiled
def fill_next_start(
    chain: Transitions, i: int, top: int, in_service: FloatArray, queue: FloatArray, out: FloatArray
) -> None:
    """Fill the distribution of the number of requests at the next start from the queue after i requests."""
    server = chain.server
    size, left = server.size, max(i - server.size, 0)
    full = split_off_full(size, top, queue, out)
    if server.trigger != OLDEST or server.window_ms == 0 or size == 1:
        add_started(server, chain.rate, chain.in_window, queue, out)
    elif left == 0:
        add_after_first(chain, i, full, in_service, out)
    elif len(chain.in_rests) > 0:  # the window of the remaining requests continues
        add_after_rest(chain, left, queue, out)
    else:
        for j in range(left, size):
            out[j] += queue[j]


@entry_with_arrays
def fill_starts(
    server: BatchServer, rate: float, decay: float, oldest: OldestLeft, starts: FloatArray
) -> None:
    """Fill the distribution of the number of requests at the start of a batch.

    Upward transitions that are less probable than rounding are ignored. If `decay` is above 0, the last state
    represents all larger states.

    Args:
        rate: arrival rate [1/ms].
        decay: decay rate of the tail per request; 0 without a tail.
        oldest: age of the oldest request that a start leaves in the queue.
        starts: filled with probabilities, shape (states + 1,).
    """
    size, window, states = server.size, server.window_ms, len(starts) - 1
    clock = server.trigger == CLOCK
    least = 0 if clock else 1
    most = max(largest_count(rate * (window if clock else service_ms(server, size))), size)
    up = min(states - least, most)
    rows = np.zeros((states + 1 - least, size + up + 1))
    queue, out = np.empty(states + size + 2), np.empty(states + size + 2)
    chances, in_window, in_rests = (
        np.empty(most + 1),
        np.empty(size + 1),
        counts_in_rests(server, rate, oldest),
    )
    fill_chances(rate * window, in_window)
    chain = Transitions(server, rate, oldest, in_window, in_rests, np.empty(size + 1), np.empty(size + 1))
    # One row of the transition matrix per number of requests at a start. Arrivals depend on the service time,
    # which is the same from B requests on.
    for i in range(least, states + 1):
        if i <= size:
            span = window if clock else service_ms(server, i)
            reach = largest_count(rate * span)
            fill_chances(rate * span, chances)
        if i == states and decay > 0:
            close_tail(states, decay, size, reach, chances, out)
            add_row(i, least, size, up, states, out, rows)
            continue
        top = fill_queue(server, i, states, reach, chances, queue)
        # At least B requests are left, so the next batch starts when the service ends, with the entire queue.
        if clock or i >= 2 * size:
            add_row(i, least, size, up, top, queue, rows)
            continue
        fill_next_start(chain, i, top, chances, queue, out)
        add_row(i, least, size, up, max(top, size), out, rows)
    fill_stationary(rows, size, up, starts[least:])


@entry_with_arrays
def add_ages(
    server: BatchServer, rate: float, starts: FloatArray, ages: FloatArray, weights: FloatArray,
    chances: FloatArray,
) -> None:  # fmt: skip
    """Add the age distribution of the oldest request that a start leaves, by the number left.

    Requests are left if a service ends with more than B waiting; the oldest of them arrived right after the
    B-th. Requests that already the previous start left are older than any window.
    """
    size, last = server.size, len(ages) - 1
    before, coming, in_service = np.empty(size + 1), np.empty((last, size)), np.empty(2 * size + 1)
    after_age = np.empty((last, size + 1))
    full_ms = service_ms(server, size)
    for m in range(last):
        fill_chances(rate * ages[m], coming[m])
        fill_chances(rate * (full_ms - ages[m]), after_age[m])
    fill_chances(rate * full_ms, in_service)
    for i in range(1, len(starts)):
        n = min(i, size)
        left = i - n
        if starts[i] < 1e-15 or left > 2 * size:
            continue
        service = service_ms(server, n)
        most = queue_limit_during(server, n)
        top = min(size, most - size + 1)
        # More than one batch was left before, so the oldest request behind it arrived before this service.
        if left > size:
            for over in range(max(left - size, 1), top):
                chances[over, last] += starts[i] * in_service[size + over - left]
            continue
        for m in range(last):
            if ages[m] >= service:
                continue
            if i < size:
                fill_chances(rate * (service - ages[m]), before)
            # The oldest one left is the arrival that found B waiting, at this age before the end of the
            # service. The others left arrived after it.
            share = starts[i] * weights[m] * rate * (before[size] if i < size else after_age[m, size - left])
            rest = 1.0
            for over in range(1, top):
                here = max(rest, 0.0) if size + over == most else coming[m, over - 1]
                rest -= coming[m, over - 1]
                chances[over, m] += share * here
