"""Requests that come during a service, and are answered beyond a limit: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, NODES, STEP, WEIGHTS, fill_beyond, moved_on, sort_up
from optimizer.queueing.bulk.gaps import fill_beyond_gap
from optimizer.queueing.bulk.poisson import fill_at_most, fill_chances
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import COLLECT, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays, entry_with_arrays


@compiled_with_arrays
def jumps_in_service(
    server: BatchServer, limit: float, spacing: float, durations: FloatArray, after: float
) -> FloatArray:
    """Return the remaining times of services at which an answer's time passes the limit, descending."""
    longest = durations.max()
    batches = int((limit + after) / spacing) + 2
    sizes = server.size if server.slope_ms > 0 else 1
    points = np.empty(2 + len(durations) + batches * (2 * sizes + 1))
    points[0], points[1] = 0.0, longest
    count = 2
    for duration in durations:
        if 0 < duration < longest:
            points[count] = duration
            count += 1
    for f in range(batches):
        for n in range(1, sizes + 1):
            late = limit - service_ms(server, n if sizes > 1 else server.size) - f * spacing
            for shift in range(2 if after > 0 else 1):
                at = late - shift * after
                if 0 < at < longest:
                    points[count] = at
                    count += 1
        at = server.window_ms - f * spacing
        if server.trigger == OLDEST and 0 < at < longest:
            points[count] = at
            count += 1
    sort_up(points, count)
    return points[:count][::-1]


@compiled_with_arrays
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
        durations: of the services, those of full batches last.
        flows: how often each begins and leaves nobody over; 0 for the last.
        rooms: how many may wait during each.
        first: how often the last kind begins, by the number of those that it leaves over.
        ages: ages of the oldest that is left over [ms].
        age_chances: how likely these are, by the number left over.
        gaps: of `gap_table`.
        gap_step: of its times.
    """
    size, window = server.size, server.window_ms
    after = window if server.trigger in (COLLECT, INTERVAL) else 0.0
    room = int(min(rooms.max(), float(len(first))))
    if room <= 0:
        return 0.0
    last_room = int(min(rooms[-1], float(len(first))))
    carried = first[:last_room].copy()
    queue = np.zeros(room)
    chances = np.empty(64)
    out, out_later = np.empty(size), np.empty(size)
    at_over, at_z = np.empty(size), np.empty(size)
    in_clear, ahead = np.empty(size + 1), np.empty(size + 1)
    full_ms, least_ms = service_ms(server, size), service_ms(server, 1)
    fill_at_most(rate * max(limit - full_ms, 0.0), at_z)
    window_ends = window if server.trigger == GAP else after
    points = jumps_in_service(server, limit, spacing, durations, window_ends)
    with_ages = (
        server.trigger == OLDEST and window > full_ms and last_room > 1 and carried[1:size].sum() > 1e-9
    )
    by_age = np.zeros((len(ages) if with_ages else 1, size))
    if with_ages:
        for m in range(len(ages)):
            for left in range(1, min(size, last_room)):
                by_age[m, left] = carried[left] * age_chances[left, m]
    c_low, c_high = 0, last_room - 1
    while c_high > 0 and carried[c_high] < NEGLIGIBLE:
        c_high -= 1
    total, elapsed = 0.0, 0.0
    longest = durations[-1]
    for panel in range(len(points) - 1):
        begin, end = points[panel], points[panel + 1]
        if begin - end < 1e-12 * longest:
            continue
        parts = int(rate * (begin - end) / STEP) + 1
        for part in range(parts):
            for node in range(4):
                rest = begin - (begin - end) * (part + NODES[node]) / parts
                weight = rate * (begin - end) / parts * WEIGHTS[node]
                u = longest - rest
                if last_room > 0:
                    c_low, c_high = moved_on(carried, c_low, c_high, rate * (u - elapsed), chances)
                if with_ages:
                    for m in range(len(ages)):
                        moved_on(by_age[m], 0, size - 1, rate * (u - elapsed), chances)
                elapsed = u
                queue[:] = 0.0
                low, high = add_fresh(rate, rest, durations, flows, rooms, queue)
                if last_room > 0:
                    for k in range(c_low, c_high + 1):
                        queue[k] += carried[k]
                    low, high = min(low, c_low), max(high, c_high)
                f = low // size
                while f * size <= high:
                    clear = rest + f * spacing
                    if clear + least_ms > limit:
                        for k in range(max(f * size, low), high + 1):
                            total += weight * queue[k]
                        break
                    pending = server.trigger == OLDEST and window > clear
                    if server.trigger == GAP and window > 0:
                        fill_beyond_gap(server, rate, limit, clear, gaps, gap_step, in_clear, ahead, out)
                    else:
                        latest = window if pending else clear + after
                        if latest + full_ms <= limit:
                            f += 1
                            continue
                        fill_beyond(server, rate, limit, clear, clear + after, at_z, at_over, out)
                    for p in range(size):
                        k = f * size + p
                        if low <= k <= high:
                            total += weight * queue[k] * out[p]
                    if pending:
                        total += weight * pending_more(
                            server, rate, limit, rest, clear, f, queue, durations, flows, first, at_z,
                            at_over, out, out_later,
                        )  # fmt: skip
                        if f == 0 and with_ages:
                            for m in range(len(ages)):
                                over = window - u - ages[m]
                                if over > clear:
                                    fill_beyond(server, rate, limit, clear, over, at_z, at_over, out_later)
                                    for p in range(1, size):
                                        total += weight * by_age[m, p] * (out_later[p] - out[p])
                    f += 1
    return total


@compiled_with_arrays
def pending_more(
    server: BatchServer, rate: float, limit: float, rest: float, clear: float, f: int, queue: FloatArray,
    durations: FloatArray, flows: FloatArray, first: FloatArray, at_z: FloatArray, at_over: FloatArray,
    out: FloatArray, out_later: FloatArray,
) -> float:  # fmt: skip
    """Return how many more are beyond the limit as the first of their batch came within the window."""
    size, window = server.size, server.window_ms
    ahead = f * size
    fill_beyond(server, rate, limit, clear, window, at_z, at_over, out_later)
    more = queue[ahead] * (out_later[0] - out[0]) if ahead < len(queue) else 0.0
    span = min(durations[-1] - rest, window - clear)
    count = min(size - 1, len(queue) - ahead - 1)
    if span <= 0 or count <= 0:
        return more
    between = np.empty(count)
    before = np.empty(ahead + 1)
    # An answer of constant time passes the limit with the window: the range is cut there.
    cut = span
    if server.slope_ms == 0:
        at = window - (limit - server.base_ms)
        if 0 < at < span:
            cut = at
    for part in range(2 if cut < span else 1):
        begin, end = (0.0, cut) if part == 0 else (cut, span)
        for node in range(4):
            lead = begin + (end - begin) * NODES[node]
            weight = rate * (end - begin) * WEIGHTS[node]
            there = 0.0
            for n in range(len(durations)):
                since = durations[n] - rest - lead
                if since > 0 and flows[n] > NEGLIGIBLE:
                    mean = rate * since
                    there += flows[n] * math.exp(ahead * math.log(mean) - mean - math.lgamma(ahead + 1.0))
            fill_chances(rate * (durations[-1] - rest - lead), before)
            for left in range(min(ahead + 1, len(first))):
                there += first[left] * before[ahead - left]
            if there < NEGLIGIBLE:
                continue
            fill_chances(rate * lead, between)
            fill_beyond(server, rate, limit, clear, window - lead, at_z, at_over, out_later)
            for p in range(1, count + 1):
                more += weight * there * between[p - 1] * (out_later[p] - out[p])
    return more
