"""Requests that come during a service, and are answered beyond a limit: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, fill_beyond, moments_between, moved_on, sort_up
from optimizer.queueing.bulk.gaps import fill_beyond_gap
from optimizer.queueing.bulk.pending import pending_share
from optimizer.queueing.bulk.poisson import fill_at_most
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import COLLECT, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays, entry_with_arrays


@compiled_with_arrays
def moments_in_service(
    server: BatchServer,
    rate: float,
    limit: float,
    spacing: float,
    durations: FloatArray,
    least: int,
) -> FloatArray:
    """Return moments of a service, from its start, and how many arrivals each stands for.

    The panels end where services begin, and where an answer's time passes the limit.
    """
    after = 0.0
    if server.trigger in (COLLECT, INTERVAL, GAP):
        after = server.window_ms
    longest = durations[-1]
    batches = int((limit + after) / spacing) + 2
    sizes = server.size if server.slope_ms > 0 else 1
    points = np.empty(2 + len(durations) + batches * (2 * sizes + 1))
    points[0], points[1] = 0.0, longest
    count = 2
    for n in range(len(durations)):
        if 0 < durations[n] < longest:
            points[count] = longest - durations[n]
            count += 1
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


@compiled
def add_fresh(
    rate: float, rest: float, durations: FloatArray, flows: FloatArray, rooms: FloatArray, queue: FloatArray
) -> tuple[int, int]:
    """Add the queues of the services that left nobody over as they began, `rest` before their end."""
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
    queue: FloatArray, gaps: FloatArray, gap_step: float, scratch: FloatArray,
) -> float:  # fmt: skip
    """Return how many are late of those who find a queue of low … high, `rest` before the end of a service.

    Those of a batch that is not full start it at that end, or a window later; `pending_share` has the rest.
    """
    size, window = server.size, server.window_ms
    after = window if server.trigger in (COLLECT, INTERVAL) else 0.0
    full_ms, least_ms = service_ms(server, size), service_ms(server, 1)
    out, total = scratch[0], 0.0
    for f in range(low // size, high // size + 1):
        clear = rest + f * spacing
        begin = max(f * size, low)
        if clear + least_ms > limit:
            for k in range(begin, high + 1):
                total += queue[k]
            break
        if server.trigger == GAP and window > 0:
            fill_beyond_gap(server, rate, limit, clear, gaps, gap_step, scratch[2], scratch[3], out)
        elif clear + after + full_ms <= limit:
            continue
        else:
            fill_beyond(server, rate, limit, clear, clear + after, scratch[1], scratch[2], out)
        for k in range(begin, min(f * size + size - 1, high) + 1):
            total += queue[k] * out[k - f * size]
    return total


@entry_with_arrays
def beyond_in_service(
    server: BatchServer, rate: float, limit: float, spacing: float, durations: FloatArray, flows: FloatArray,
    rooms: FloatArray, first: FloatArray, ages: FloatArray, age_chances: FloatArray, gaps: FloatArray,
    gap_step: float,
) -> float:  # fmt: skip
    """Return how many requests that come in a service are answered beyond a limit.

    Args:
        server: the server.
        rate: arrivals [1/ms].
        limit: the limit [ms].
        spacing: from the end of a service to that of the next, where B wait.
        durations: of the services, ascending, those of full batches last.
        flows: how often each begins and leaves nobody over; 0 for the last.
        rooms: how many may wait during each, where they differ; else of all.
        first: how often the last kind begins, by the number of those that it leaves over.
        ages: ages of the oldest that is left over [ms].
        age_chances: how likely these are, by the number left over.
        gaps: of `gap_table`.
        gap_step: of its times.
    """
    size, window = server.size, server.window_ms
    full_ms, longest = service_ms(server, size), durations[-1]
    apart = len(rooms) > 1
    room, last_room = int(min(rooms[0], float(len(first)))), int(min(rooms[-1], float(len(first))))
    if room <= 0:
        return 0.0
    carried, queue = np.zeros(max(last_room, 1)), np.zeros(room)
    carried[:last_room] = first[:last_room]
    chances, before, scratch = np.empty(64), np.empty(room + size), np.empty((5, size + 1))
    fill_at_most(rate * max(limit - full_ms, 0.0), scratch[1])
    pending = server.trigger == OLDEST and window > 0 and window + full_ms > limit
    moments = moments_in_service(server, rate, limit, spacing, durations, 4 if pending else 1)
    open_ages = 0
    if pending and last_room > 1 and carried[1:size].sum() > 1e-9:
        while ages[open_ages] < window - full_ms:
            open_ages += 1
    by_age = np.zeros((open_ages, size))
    for m in range(open_ages):
        for left in range(1, min(size, last_room)):
            by_age[m, left] = carried[left] * age_chances[left, m]
    low, high = 0, last_room - 1
    while high > 0 and carried[high] < NEGLIGIBLE:
        high -= 1
    total, elapsed, seen, kind = 0.0, 0.0, 0.0, -1 if apart else len(durations) - 1
    for row in range(len(moments)):
        u, weight = moments[row, 0], moments[row, 1]
        while kind >= 0 and longest - durations[kind] <= u:
            since = longest - durations[kind]
            low, high = moved_on(carried, low, high, rate * (since - elapsed), chances, before)
            elapsed, low = since, 0
            carried[0] += flows[kind]
            kind -= 1
        low, high = moved_on(carried, low, high, rate * (u - elapsed), chances, before)
        rest, mean, elapsed, seen = longest - u, rate * (u - seen), u, u
        least, most, there = low, high, carried
        if apart:
            queue[:] = 0.0
            least, most = add_fresh(rate, rest, durations, flows, rooms, queue)
            for k in range(low, high + 1):
                queue[k] += carried[k]
            least, most, there = min(least, low), max(most, high), queue
        total += weight * late_share(
            server, rate, limit, rest, spacing, least, most, there, gaps, gap_step, scratch
        )
        if pending and window > rest:
            total += weight * pending_share(
                server, rate, limit, rest, spacing, least, most, there, durations, flows, first, scratch,
                before,
            )  # fmt: skip
            if open_ages > 0:
                fill_beyond(server, rate, limit, rest, rest, scratch[1], scratch[2], scratch[0])
        for m in range(open_ages):
            moved_on(by_age[m], 0, size - 1, mean, chances, before)
            if rest + service_ms(server, 1) <= limit:
                over = window - u - ages[m]
                fill_beyond(server, rate, limit, rest, over, scratch[1], scratch[2], scratch[3])
                for p in range(1, size):
                    total += weight * by_age[m, p] * (scratch[3, p] - scratch[0, p])
    return total
