"""The share of requests whose answer takes longer than a limit, from the queue at starts.

A request that finds k others ahead at some moment of a service has k // B full batches before its own. When
these are over (at `clear`), its batch starts as soon as B are there, or when the window is over (at `over`).
Arrivals are looked at in the order of the elapsed time, between the points where an answer's time jumps.
"""

import math

import numpy as np
from scipy.special import pdtrc

from optimizer.arrays import FloatArray, IntArray
from optimizer.queueing.bulk.gaps import gap_table
from optimizer.queueing.bulk.poisson import largest_count
from optimizer.queueing.bulk.services import beyond_in_service
from optimizer.queueing.bulk.windows import beyond_when_free
from optimizer.simulation.batches import CLOCK, GAP, BatchServer

UNLIKELY = 1e-12
"""Share of the batches behind which a queue may be full and be taken for one that is not."""


def beyond(
    server: BatchServer, rate: float, starts: FloatArray, behind: FloatArray, served: float, limit: float,
    ages: FloatArray, age_chances: FloatArray,
) -> float:  # fmt: skip
    """Return the share of answered requests whose answer takes longer than `limit` [ms].

    Args:
        server: the server.
        rate: arrivals [1/ms].
        starts: how often a batch starts with i requests there, by i, as a share of all starts.
        behind: how often a service leaves q requests behind it at its end, by q < B.
        served: mean batch.
        limit: the time [ms].
        ages: ages of the oldest that a start leaves over [ms].
        age_chances: how likely these are, by the number left over; shape (B, ages).
    """
    size, window = server.size, server.window_ms
    states = len(starts) - 1
    step, gaps = 1.0, np.zeros((1, 2))
    if server.trigger == GAP and window > 0:
        step = window / math.ceil(window / min(window / 8, max(limit, 1e-9) / 400))
        gaps = gap_table(server, rate, limit, step)
    clock = server.trigger == CLOCK
    spacing = server.spacing_ms
    first = np.zeros(states + 1)
    first[: states + 1 - size] = starts[size:]
    # Who finds so many ahead is beyond the limit, whatever comes; they need not be looked at one by one.
    far = (int(limit / spacing) + 2) * size + 1
    late = 0.0
    if far < len(first) and _room_beside(server, size) > states:
        late = first[far:].sum() * rate * spacing
        late = float(late)
        first = np.concatenate((first[:far], np.zeros(largest_count(rate * spacing))))
    kinds = 1 if clock or server.slope_ms == 0 else size
    count = np.arange(size + 1 - kinds, size + 1)
    durations = np.full(kinds, spacing) if clock else _services(server, count)
    flows, rooms = np.zeros(kinds), np.array([float(_room_beside(server, size))])
    if server.counts_system and _fill_up(server, rate, starts):
        count = np.arange(1, size + 1)
        durations = _services(server, count)
        flows, rooms = np.zeros(size), np.array([float(server.room - n) for n in count])
    if len(flows) > 1:
        flows[: size - 1] = starts[1:size]
    else:
        first[0] += starts[:size].sum()
    total = late + beyond_in_service(
        server, rate, limit, spacing, durations, flows, rooms, first, ages, age_chances, gaps, step
    )
    if clock:
        return float(total / served)
    if window > 0 and size > 1:
        total += beyond_when_free(server, rate, starts, behind, limit, ages, age_chances, gaps, step)
    elif server.base_ms + server.slope_ms > limit:
        total += behind[0]
    return float(total / served)


def _room_beside(server: BatchServer, n: int) -> int:
    """Return how many may wait while n are served."""
    return server.room - n if server.counts_system else server.room


def _fill_up(server: BatchServer, rate: float, starts: FloatArray) -> bool:
    """Say whether services that leave nobody over may fill what room is beside a full batch."""
    count = np.arange(1, server.size)
    means = rate * _services(server, count)
    room = server.room - server.size
    return room <= 0 or float(starts[1 : server.size] @ pdtrc(room - 1, means)) > UNLIKELY


def _services(server: BatchServer, count: IntArray) -> FloatArray:
    """Return how long so many are served together."""
    return np.asarray(server.base_ms + server.slope_ms * count)
