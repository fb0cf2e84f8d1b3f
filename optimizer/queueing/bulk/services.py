"""Requests that come during a service, and are answered beyond a limit: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, fill_beyond, moments_between, moved_on, sort_up
from optimizer.queueing.bulk.gaps import at_end_of_service, late_of_gap
from optimizer.queueing.bulk.pending import pending_share
from optimizer.queueing.bulk.poisson import fill_at_most, fill_chances, largest_count
from optimizer.queueing.bulk.service import room_beside, service_ms
from optimizer.simulation.batches import CLOCK, COLLECT, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays, entry_with_arrays

UNLIKELY = 1e-12
"""Share of the batches behind which a queue may be full and be taken for one that is not."""


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
    queue: FloatArray, at_end: FloatArray, gaps: FloatArray, gap_step: float, scratch: FloatArray,
) -> float:  # fmt: skip
    """Return how many are late of those who find a queue of low … high, `rest` before the end of a service.

    Those of a batch that is not full start it at that end, or a window later; `pending_share` has the rest.
    Under `gap`, `at_end` says how often the queues have become what at that end, if that is known.
    """
    size, window = server.size, server.window_ms
    after = window if server.trigger in (COLLECT, INTERVAL) else 0.0
    full_ms, least_ms = service_ms(server, size), service_ms(server, 1)
    out, total = scratch[0], 0.0
    for f in range(low // size, high // size + 1):
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


@compiled_with_arrays
def kinds_of(
    server: BatchServer, rate: float, starts: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the kinds of services: how long each takes, how often it leaves nobody over, and its room.

    They ascend; the last is that of full batches, which may leave some over, and whose flow is 0. Where all
    have the same room, it stands there once.
    """
    size, clock = server.size, server.trigger == CLOCK
    apart = server.counts_system and fill_up(server, rate, starts)
    kinds = size if apart or (not clock and server.slope_ms != 0) else 1
    durations, flows, rooms = np.empty(kinds), np.zeros(kinds), np.empty(kinds if apart else 1)
    for kind in range(kinds):
        n = size + 1 - kinds + kind
        durations[kind] = server.window_ms if clock else service_ms(server, n)
        rooms[kind if apart else 0] = room_beside(server, n)
        if n < size:
            flows[kind] = starts[n]
    return durations, flows, rooms


@compiled
def fill_up(server: BatchServer, rate: float, starts: FloatArray) -> bool:
    """Say whether services that leave nobody over may fill what room is beside a full batch."""
    room, chance = server.room - server.size, 0.0
    if room <= 0:
        return True
    for n in range(1, server.size):
        mean = rate * service_ms(server, n)
        here = starts[n] * math.exp(room * math.log(mean) - mean - math.lgamma(room + 1.0))
        for k in range(room, largest_count(mean) + 1):
            chance += here
            here *= mean / (k + 1)
    return chance > UNLIKELY


@compiled_with_arrays
def left_over(
    server: BatchServer, rate: float, limit: float, spacing: float, starts: FloatArray
) -> tuple[float, FloatArray]:
    """Return requests that come where too many are left over to look at, and how often fewer are, by number.

    Who finds so many ahead is beyond the limit, whatever comes; they need not be looked at one by one.
    """
    size, states = server.size, len(starts) - 1
    far, late, count = (int(limit / spacing) + 2) * size + 1, 0.0, states + 1
    if far <= states and room_beside(server, size) > states:
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
def left_by_age(
    server: BatchServer, ages: FloatArray, age_chances: FloatArray, carried: FloatArray, last: int
) -> FloatArray:
    """Return how often full services leave l < B over, whose window goes on after the next, by age and l."""
    size, some, count = server.size, 0.0, 0
    for left in range(1, min(size, last)):
        some += carried[left]
    if some > 1e-9:
        while ages[count] < server.window_ms - service_ms(server, size):
            count += 1
    by_age = np.zeros((count, size))
    for m in range(count):
        for left in range(1, min(size, last)):
            by_age[m, left] = carried[left] * age_chances[left, m]
    return by_age


@compiled
def later_by_age(
    server: BatchServer, rate: float, limit: float, u: float, rest: float, mean: float, ages: FloatArray,
    by_age: FloatArray, scratch: FloatArray, chances: FloatArray, before: FloatArray,
) -> float:  # fmt: skip
    """Return how many more are late, `u` after a start, as the window of those left over goes on."""
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


@entry_with_arrays
def beyond_in_service(
    server: BatchServer, rate: float, limit: float, starts: FloatArray, ages: FloatArray,
    age_chances: FloatArray, gaps: FloatArray, gap_step: float,
) -> float:  # fmt: skip
    """Return how many requests that come in a service are answered beyond a limit.

    Args:
        server: the server.
        rate: arrivals [1/ms].
        limit: the limit [ms].
        starts: how often a batch starts with i requests there, by i, as a share of all starts.
        ages: ages of the oldest that is left over [ms].
        age_chances: how likely these are, by the number left over.
        gaps: of `gap_table`.
        gap_step: of its times.
    """
    size, window, full_ms = server.size, server.window_ms, service_ms(server, server.size)
    spacing = window if server.trigger == CLOCK else full_ms
    durations, flows, rooms = kinds_of(server, rate, starts)
    total, first = left_over(server, rate, limit, spacing, starts)
    if len(durations) == 1:
        for i in range(size):
            first[0] += starts[i]
    longest, apart = durations[-1], len(rooms) > 1
    room, last_room = int(min(rooms[0], float(len(first)))), int(min(rooms[-1], float(len(first))))
    if room <= 0:
        return total
    carried, queue = np.zeros(max(last_room, 1)), np.zeros(room)
    for left in range(last_room):
        carried[left] = first[left]
    chances, before, scratch = np.empty(64), np.empty(room + size), np.empty((5, size + 1))
    fill_at_most(rate * max(limit - full_ms, 0.0), scratch[1])
    pending = server.trigger == OLDEST and window > 0 and window + full_ms > limit
    jumps = pending or (server.trigger == GAP and window > 0)
    moments = moments_in_service(server, rate, limit, spacing, durations, 4 if jumps else 1)
    by_age = left_by_age(server, ages, age_chances, carried, last_room if pending else 0)
    at_end = np.zeros(0)
    if server.trigger == GAP and window > 0 and not apart:
        at_end = at_end_of_service(rate, longest, carried, size)
    low, high = 0, last_room - 1
    while high > 0 and carried[high] < NEGLIGIBLE:
        high -= 1
    elapsed, seen, kind = 0.0, 0.0, -1 if apart else len(durations) - 1
    for row in range(len(moments)):
        u, weight = moments[row, 0], moments[row, 1]
        while kind >= 0 and longest - durations[kind] <= u:
            since = longest - durations[kind]
            low, high = moved_on(carried, low, high, rate * (since - elapsed), chances, before)
            elapsed, low = since, 0
            carried[0] += flows[kind]
            if len(at_end) > 0:
                fill_chances(rate * durations[kind], scratch[0])
                for m in range(size):
                    at_end[m] += flows[kind] * scratch[0, m]
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
        late = late_share(
            server, rate, limit, rest, spacing, least, most, there, at_end, gaps, gap_step, scratch
        )
        if pending and window > rest:
            late += pending_share(
                server, rate, limit, rest, spacing, least, most, there, durations, flows, first, scratch,
                before,
            )  # fmt: skip
        if len(by_age) > 0:
            late += later_by_age(
                server, rate, limit, u, rest, mean, ages, by_age, scratch, chances, before
            )  # fmt: skip
        total += weight * late
    return total
