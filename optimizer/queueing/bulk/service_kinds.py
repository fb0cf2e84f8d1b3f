"""The services of a batch server, before the requests that come during one are looked at: compiled."""

import math
from typing import NamedTuple

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE, moments_between, sort_up
from optimizer.queueing.bulk.gaps import at_end_of_service
from optimizer.queueing.bulk.poisson import largest_count
from optimizer.queueing.bulk.service import room_beside, service_ms
from optimizer.simulation.batches import CLOCK, COLLECT, GAP, INTERVAL, OLDEST, BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays

UNLIKELY = 1e-12
"""Share of the batches behind which a queue may be full and be taken for one that is not."""


class Service(NamedTuple):
    """The services of a server, which end together: the longest, and shorter ones that begin during it."""

    spacing: float
    """From the end of one with B waiting to that of the next [ms]."""
    durations: FloatArray
    """By kind, ascending."""
    flows: FloatArray
    """How often each kind begins and leaves nobody over."""
    rooms: FloatArray
    """How many may wait beside each; once if it is the same for all."""
    far_late: float
    """Requests that come where too many are left over to look at."""
    first: FloatArray
    """How often the longest begins, by the number of those that it leaves over."""
    carried: FloatArray
    """How often so many are left over, by their number; changed as time passes,"""
    longest_queue: int
    """with the largest number that is likely."""
    room: int
    """How many may wait at any time, as far as they are looked at; nobody: all find the server free."""
    pending: bool
    """Whether a window that opens during a service may make an answer late."""
    moments: FloatArray
    """Moments from the start of the longest, and how many arrivals each stands for."""
    by_age: FloatArray
    """Of `left_by_age`."""
    at_end: FloatArray
    """Of `at_end_of_service` under `gap`; empty if that is not known."""


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


@compiled_with_arrays
def carried_over(first: FloatArray, room: int) -> tuple[FloatArray, int]:
    """Return how often so many are left over, by their number, and the largest that is likely."""
    carried, high = np.zeros(max(room, 1)), room - 1
    for left in range(room):
        carried[left] = first[left]
    while high > 0 and carried[high] < NEGLIGIBLE:
        high -= 1
    return carried, high


@compiled_with_arrays
def service_of(
    server: BatchServer, rate: float, limit: float, starts: FloatArray, ages: FloatArray,
    age_chances: FloatArray,
) -> Service:  # fmt: skip
    """Return what is known of the services before arrivals are looked at, moment by moment."""
    size, window, full_ms = server.size, server.window_ms, service_ms(server, server.size)
    spacing = window if server.trigger == CLOCK else full_ms
    durations, flows, rooms = kinds_of(server, rate, starts)
    far_late, first = left_over(server, rate, limit, spacing, starts)
    if len(durations) == 1:
        for i in range(size):
            first[0] += starts[i]
    room, last_room = int(min(rooms[0], float(len(first)))), int(min(rooms[-1], float(len(first))))
    carried, longest = carried_over(first, last_room)
    pending = server.trigger == OLDEST and window > 0 and window + full_ms > limit
    gapped = server.trigger == GAP and window > 0
    moments = moments_in_service(server, rate, limit, spacing, durations, 4 if pending or gapped else 1)
    by_age = left_by_age(server, ages, age_chances, carried, last_room if pending else 0)
    at_end = np.zeros(0)
    if gapped and len(rooms) == 1:
        at_end = at_end_of_service(rate, durations[-1], carried, size)
    return Service(
        spacing, durations, flows, rooms, far_late, first, carried, longest, room, pending, moments, by_age,
        at_end,
    )  # fmt: skip
