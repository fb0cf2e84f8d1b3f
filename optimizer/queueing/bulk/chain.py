"""The queue at the starts of batches, as a Markov chain: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_chances, fill_up_to, largest_count
from optimizer.simulation.batches import CLOCK, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays, entry_with_arrays

FIRST_POINTS = 48
"""Ages of the oldest at which a window is opened, where no closed form is at hand."""


@compiled_with_arrays
def service_ms(server: BatchServer, n: int) -> float:
    """Return how long n requests are served together."""
    return server.base_ms + server.slope_ms * n


@compiled_with_arrays
def room_beside(server: BatchServer, n: int) -> int:
    """Return how many may wait while n are served."""
    return server.room - n if server.counts_system else server.room


@compiled_with_arrays
def fill_window(
    server: BatchServer, rate: float, first: int, window: float, flow: float, out: FloatArray
) -> None:
    """Add what becomes of `first` < B requests with a window ahead: the batch with which it ends."""
    size = server.size
    chances = np.empty(size - first)
    fill_chances(rate * window, chances)
    rest = 1.0
    for j in range(first, size):
        out[j] += flow * chances[j - first]
        rest -= chances[j - first]
    out[size] += flow * max(rest, 0.0)


@compiled_with_arrays
def started(server: BatchServer, rate: float, waiting: int, flow: float, out: FloatArray) -> None:
    """Add the batch that starts after a service that left fewer than B waiting, whatever their age."""
    size, window = server.size, server.window_ms
    if window == 0:
        out[max(waiting, 1)] += flow
    elif server.trigger == GAP:
        going_on = 1 - math.exp(-rate * window)
        here = flow
        for j in range(max(waiting, 1), size):
            out[j] += here * (1 - going_on)
            here *= going_on
        out[size] += here
    elif server.trigger == INTERVAL and waiting == 0:
        chances = np.empty(size)
        fill_chances(rate * window, chances)
        some = -math.expm1(-rate * window)
        rest = 1.0
        for j in range(1, size):
            out[j] += flow * chances[j] / some
            rest -= chances[j] / some
        out[size] += flow * max(rest, 0.0)
    elif size == 1:
        out[1] += flow
    else:
        fill_window(server, rate, max(waiting, 1), window, flow, out)


@compiled_with_arrays
def after_service(server: BatchServer, rate: float, i: int, states: int, queue: FloatArray) -> int:
    """Fill the queue at the end of the service that began with i requests there, up to the index returned."""
    n = min(i, server.size)
    left = i - n
    most = min(room_beside(server, n), states)
    mean = rate * service_ms(server, n)
    top = max(min(most, left + largest_count(mean)), left)
    fill_up_to(mean, left, top, np.empty(top - left + 1), queue)
    return top


@compiled_with_arrays
def row_of(
    server: BatchServer,
    rate: float,
    i: int,
    states: int,
    ages: FloatArray,
    age_chances: FloatArray,
    queue: FloatArray,
    out: FloatArray,
) -> int:
    """Fill the chances of the next start up to the index returned, when a batch starts with i there."""
    size = server.size
    top = after_service(server, rate, i, states, queue)
    n = min(i, size)
    left = i - n
    service = service_ms(server, n)
    high = max(top, size)
    out[: high + 1] = 0.0
    for q in range(size, top + 1):
        out[q] += queue[q]
    for q in range(top + 1, size):
        queue[q] = 0.0
    if left >= size:
        return high
    window = server.window_ms
    if server.trigger != OLDEST or window == 0 or size == 1:
        for q in range(size):
            if queue[q] > 0:
                started(server, rate, q, queue[q], out)
    elif left > 0:
        if window <= service:
            for q in range(left, size):
                out[q] += queue[q]
        else:
            pending_rest(server, rate, left, ages, age_chances, queue, out)
    else:
        pending_first(server, rate, n, out[: high + 1])
    return high


@compiled_with_arrays
def pending_rest(
    server: BatchServer,
    rate: float,
    left: int,
    ages: FloatArray,
    age_chances: FloatArray,
    queue: FloatArray,
    out: FloatArray,
) -> None:
    """Add the batches of fewer than B behind a full one that left some over, under `oldest` (eq. A7)."""
    size, window = server.size, server.window_ms
    service = service_ms(server, size)
    capped = room_beside(server, size) < size
    few = queue[left:size].sum()
    for m in range(len(ages)):
        share, rest = age_chances[left, m], window - service - ages[m]
        if share < 1e-12:
            continue
        if rest <= 0:
            for q in range(left, size):
                out[q] += share * queue[q]
        elif capped:
            for q in range(left, size):
                fill_window(server, rate, q, rest, share * queue[q], out)
        else:
            chances = np.empty(size - left)
            fill_chances(rate * (window - ages[m]), chances)
            filled = few
            for c in range(size - left):
                out[left + c] += share * chances[c]
                filled -= chances[c]
            out[size] += share * max(filled, 0.0)


@compiled_with_arrays
def pending_first(server: BatchServer, rate: float, n: int, out: FloatArray) -> None:
    """Add the batches of fewer than B behind a service of n that left nobody over, under `oldest`.

    The first to come opens the window, during the service or after it (eq. A6).
    """
    size, window = server.size, server.window_ms
    service = service_ms(server, n)
    most = room_beside(server, n)
    known = out.sum()
    if most >= size:
        in_window = np.empty(size)
        fill_chances(rate * window, in_window)
        total = 0.0
        if service < window:
            for j in range(1, size):
                out[j] += in_window[j - 1]
                total += in_window[j - 1]
        else:
            in_service = np.empty(size)
            fill_chances(rate * service, in_service)
            late = math.exp(-rate * (service - window))
            for j in range(1, size):
                chance = max(in_service[j] - late * in_window[j] + late * in_window[j - 1], 0.0)
                out[j] += chance
                total += chance
        out[size] += max(1.0 - known - total, 0.0)
        return
    # Room for fewer than B while n are served: whoever comes beyond is lost, and the window goes on after.
    if most <= 0:
        fill_window(server, rate, 1, window, 1.0, out)
        return
    horizon = min(service, window)
    none = math.exp(-rate * service)
    fill_window(server, rate, 1, window, none, out)
    if service > window:
        early = np.empty(most + 1)
        fill_chances(rate * service, early)
        in_window = np.empty(most + 1)
        fill_chances(rate * window, in_window)
        late = math.exp(-rate * (service - window))
        rest = 1.0 - late
        for q in range(1, most):
            chance = max(early[q] - late * in_window[q], 0.0)
            out[q] += chance
            rest -= chance
        out[most] += max(rest, 0.0)
    in_age = np.empty(most)
    for m in range(FIRST_POINTS):
        age = (m + 0.5) * horizon / FIRST_POINTS
        weight = rate * math.exp(-rate * (service - age)) * horizon / FIRST_POINTS
        fill_chances(rate * age, in_age)
        rest = 1.0
        for c in range(most - 1):
            fill_window(server, rate, 1 + c, window - age, weight * in_age[c], out)
            rest -= in_age[c]
        fill_window(server, rate, most, window - age, weight * max(rest, 0.0), out)
    missing = 1.0 - out.sum()
    out[size] += missing


@compiled_with_arrays
def clock_row(server: BatchServer, rate: float, i: int, states: int, out: FloatArray) -> int:
    """Fill the chances of the queue at the next tick up to the index returned, when i are there now."""
    left = i - min(i, server.size)
    mean = rate * server.window_ms
    top = min(states, left + largest_count(mean))
    fill_up_to(mean, left, top, np.empty(top - left + 1), out)
    return top


@compiled_with_arrays
def close_tail(states: int, decay: float, span: float, size: int, rate: float, out: FloatArray) -> None:
    """Fill the chances of the next start from the last state, which stands for all beyond it as well.

    Beyond it each is less likely than the one before by e to the −`decay`.
    """
    kept = math.exp(-decay)
    out[:] = 0.0
    chances = np.empty(largest_count(rate * span) + 1)
    fill_chances(rate * span, chances)
    share, here = 1 - kept, states
    for _ in range(size):  # who begins `size` or more beyond it ends beyond it
        for c in range(len(chances)):
            to = here - size + c
            out[min(to, states)] += share * chances[c]
        share *= kept
        here += 1
    out[states] += max(1.0 - out.sum(), 0.0)


@entry_with_arrays
def fill_band(
    server: BatchServer,
    rate: float,
    states: int,
    up: int,
    decay: float,
    ages: FloatArray,
    age_chances: FloatArray,
    band: FloatArray,
) -> None:
    """Fill Pᵀ − 1 in the form of banded matrices: `size` diagonals above the main one, `up` below.

    Moves by more than `up` are taken as moves by `up`; their chance is below rounding. With a `decay` above 0
    the last state stands for all beyond it.
    """
    clock = server.trigger == CLOCK
    least = 0 if clock else 1
    queue, out = np.empty(states + server.size + 2), np.empty(states + server.size + 2)
    for i in range(least, states + 1):
        if i == states and decay > 0:
            span = server.window_ms if clock else service_ms(server, server.size)
            close_tail(states, decay, span, server.size, rate, out[: states + 1])
            high = states
        elif clock:
            high = clock_row(server, rate, i, states, out)
        else:
            high = row_of(server, rate, i, states, ages, age_chances, queue, out)
        total = out[: high + 1].sum()
        low = max(i - server.size, least)
        for j in range(low, high + 1):
            if out[j] > 0:
                band[server.size + min(j, i + up) - i, i - least] += out[j] / total
        band[server.size, i - least] -= 1.0


@entry_with_arrays
def fill_ages(
    server: BatchServer,
    rate: float,
    starts: FloatArray,
    ages: FloatArray,
    weights: FloatArray,
    chances: FloatArray,
) -> None:
    """Fill how old the oldest is that a start leaves over, by the number left over.

    Requests are left over where a service ends with more than B there; the oldest of them came as the one
    after the B-th. Those that were left over before are older than any window that counts.
    """
    size = server.size
    states = len(starts) - 1
    before, behind = np.empty(size + 1), np.empty(size)
    count = len(ages) - 1
    for i in range(1, states + 1):
        if starts[i] < 1e-15:
            continue
        n = min(i, size)
        left = i - n
        service = service_ms(server, n)
        most = room_beside(server, n)
        if left > size:
            in_service = np.empty(2 * size + 1)
            fill_chances(rate * service, in_service)
            for over in range(1, size):
                came = size + over - left
                if came >= 0 and size + over <= most:
                    chances[over, count] += starts[i] * in_service[came]
            continue
        for m in range(count):
            if ages[m] >= service:
                continue
            fill_chances(rate * (service - ages[m]), before)
            fill_chances(rate * ages[m], behind)
            rest = 1.0
            for over in range(1, size):
                if size + over > most:
                    break
                here = max(rest, 0.0) if size + over == most else behind[over - 1]
                rest -= behind[over - 1]
                chances[over, m] += starts[i] * weights[m] * rate * before[size - left] * here
    for over in range(1, size):
        total = chances[over].sum()
        if total > 0:
            chances[over] /= total
        else:
            chances[over, count] = 1.0
