"""Late requests among those that arrive during a service (compiled)."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, fill_beyond, moved_on
from optimizer.queueing.bulk.gaps import late_of_gap
from optimizer.queueing.bulk.pending import pending_share
from optimizer.queueing.bulk.poisson import fill_at_most, fill_chances
from optimizer.queueing.bulk.service import service_ms
from optimizer.queueing.bulk.service_kinds import Service, service_of
from optimizer.simulation.batches import COLLECT, GAP, INTERVAL, BatchServer
from optimizer.simulation.machine.compiling import compiled, entry_with_arrays


@compiled
def add_fresh(
    rate: float, rest: float, durations: FloatArray, flows: FloatArray, rooms: FloatArray, queue: FloatArray
) -> tuple[int, int]:
    """Add the queues of services that left no request, `rest` before their end."""
    low, high = len(queue), -1
    for n in range(len(durations)):
        mean = rate * (durations[n] - rest)
        if mean <= 0 or flows[n] < NEGLIGIBLE:
            continue
        reach = 8 * math.sqrt(mean) + 10
        top = min(int(mean + reach), int(rooms[n]) - 1, len(queue) - 1)
        bottom = max(int(mean - reach), 0)
        if bottom > top:
            continue
        # Poisson counts from the mode outwards, because products from 0 underflow.
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
def late_share(
    server: BatchServer, rate: float, limit: float, rest: float, spacing: float, low: int, high: int,
    queue: FloatArray, at_end: FloatArray, gaps: FloatArray, gap_step: float, scratch: FloatArray,
) -> float:  # fmt: skip
    """Return the late requests among those that find low … high waiting, `rest` before the end of a service.

    Partial batches start at that end or one window later; `pending_share` covers the rest. For `gap`,
    `at_end` is the distribution of the queue at that end, if known.
    """
    size, window = server.size, server.window_ms
    after = window if server.trigger in (COLLECT, INTERVAL) else 0.0
    full_ms, least_ms = service_ms(server, size), service_ms(server, 1)
    out, total = scratch[0], 0.0
    for f in range(low // size, high // size + 1):
        # f full batches come first. Even a batch of one is late from here on, or even a full one after its
        # window is in time; positions decide in between.
        clear = rest + f * spacing
        begin, end = max(f * size, low), min(f * size + size - 1, high)
        if clear + least_ms > limit:
            for k in range(begin, high + 1):
                total += queue[k]
            break
        if server.trigger == GAP and window > 0:
            known = at_end if f == 0 else at_end[:0]
            total += late_of_gap(
                server, rate, limit, clear, f * size, begin, end, queue, known, gaps, gap_step, scratch[2:]
            )
            continue
        if clear + after + full_ms <= limit:
            continue
        fill_beyond(server, rate, limit, clear, clear + after, scratch[1], scratch[2], out)
        for k in range(begin, end + 1):
            total += queue[k] * out[k - f * size]
    return total


@compiled
def later_by_age(
    server: BatchServer, rate: float, limit: float, u: float, rest: float, mean: float, ages: FloatArray,
    by_age: FloatArray, scratch: FloatArray, chances: FloatArray, before: FloatArray,
) -> float:  # fmt: skip
    """Return the further late requests, `u` after a start, because the window of requests left continues."""
    size, total = server.size, 0.0
    in_time = rest + service_ms(server, 1) <= limit
    fill_beyond(server, rate, limit, rest, rest, scratch[1], scratch[2], scratch[0])
    for m in range(len(by_age)):
        moved_on(by_age[m], 0, size - 1, mean, chances, before)
        if in_time:
            over = server.window_ms - u - ages[m]
            fill_beyond(server, rate, limit, rest, over, scratch[1], scratch[2], scratch[3])
            for p in range(1, size):
                total += by_age[m, p] * (scratch[3, p] - scratch[0, p])
    return total


@compiled
def moved_to(
    service: Service, rate: float, seen: float, u: float, kind: int, low: int, high: int,
    by_number: FloatArray, chances: FloatArray, before: FloatArray,
) -> tuple[int, int, int]:  # fmt: skip
    """Advance the requests left between two moments, with the starts of shorter services in between.

    Args:
        service: the services.
        rate: arrivals [1/ms].
        seen: the first moment, since the start of the longest service [ms].
        u: the second [ms].
        kind: the next service to begin; -1: none.
        low: the shortest queue.
        high: the longest.
        by_number: scratch.
        chances: scratch.
        before: scratch.

    Returns:
        The next service to begin, the shortest queue, and the longest.
    """
    carried, durations, at_end = service.carried, service.durations, service.at_end
    while kind >= 0 and durations[-1] - durations[kind] <= u:
        since = durations[-1] - durations[kind]
        low, high = moved_on(carried, low, high, rate * (since - seen), chances, before)
        seen, low = since, 0
        carried[0] += service.flows[kind]
        if len(at_end) > 0:
            fill_chances(rate * durations[kind], by_number)
            for m in range(len(at_end)):
                at_end[m] += service.flows[kind] * by_number[m]
        kind -= 1
    low, high = moved_on(carried, low, high, rate * (u - seen), chances, before)
    return kind, low, high


@compiled
def fill_queue(
    service: Service, rate: float, rest: float, low: int, high: int, queue: FloatArray
) -> tuple[int, int]:
    """Fill the queue distribution `rest` before the end; return its smallest and largest queue."""
    queue[:] = 0.0
    least, most = add_fresh(rate, rest, service.durations, service.flows, service.rooms, queue)
    for k in range(low, high + 1):
        queue[k] += service.carried[k]
    return min(least, low), max(most, high)


@entry_with_arrays
def beyond_in_service(
    server: BatchServer, rate: float, limit: float, starts: FloatArray, ages: FloatArray,
    age_chances: FloatArray, gaps: FloatArray, gap_step: float,
) -> float:  # fmt: skip
    """Return the late requests among those that arrive during a service, per start.

    Args:
        server: the server.
        rate: arrivals [1/ms].
        limit: the latency limit [ms].
        starts: distribution of the requests at the start of a batch.
        ages: ages of the oldest request left [ms].
        age_chances: their distribution by the number left.
        gaps: result of `gap_table`.
        gap_step: its time step.
    """
    service = service_of(server, rate, limit, starts, ages, age_chances)
    total, spacing, at_end, by_age = service.far_late, service.spacing, service.at_end, service.by_age
    if service.room <= 0:
        return total
    size, longest, apart = server.size, service.durations[-1], len(service.rooms) > 1
    chances, before, scratch = np.empty(64), np.empty(service.room + size), np.empty((5, size + 1))
    fill_at_most(rate * max(limit - service_ms(server, size), 0.0), scratch[1])
    queue, kind = np.zeros(service.room), -1 if apart else len(service.durations) - 1
    low, high, seen = 0, service.longest_queue, 0.0
    # Time runs through the longest service. Requests left by it are carried on and grow; if queue limits
    # differ by service, those of services that left none are added at every moment.
    for row in range(len(service.moments)):
        u, weight = service.moments[row, 0], service.moments[row, 1]
        kind, low, high = moved_to(service, rate, seen, u, kind, low, high, scratch[0], chances, before)
        rest, mean, seen = longest - u, rate * (u - seen), u
        least, most, there = low, high, service.carried
        if apart:
            there = queue
            least, most = fill_queue(service, rate, rest, low, high, queue)
        late = late_share(
            server, rate, limit, rest, spacing, least, most, there, at_end, gaps, gap_step, scratch
        )
        # A window that opened during the service, or goes on, makes requests later still.
        if service.pending and server.window_ms > rest:
            late += pending_share(
                server, rate, limit, rest, spacing, least, most, there, service.durations, service.flows,
                service.first, scratch, before,
            )  # fmt: skip
        if len(by_age) > 0:
            late += later_by_age(server, rate, limit, u, rest, mean, ages, by_age, scratch, chances, before)
        total += weight * late
    return total
