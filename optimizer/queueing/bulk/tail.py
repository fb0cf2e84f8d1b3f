"""The share of requests whose answer takes longer than a limit, from the queue at starts.

A request that finds k others ahead at some moment of a service has k // B full batches before its own. When
these are over (at `clear`), its batch starts as soon as B are there, or when the window is over (at `over`).
Arrivals are looked at in the order of the elapsed time, between the points where an answer's time jumps.
"""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.gaps import gap_table
from optimizer.queueing.bulk.services import beyond_in_service
from optimizer.queueing.bulk.windows import beyond_when_free
from optimizer.simulation.batches import CLOCK, GAP, BatchServer


def late_share_of_server(
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
    step, gaps = 1.0, np.zeros((2, 1))
    if server.trigger == GAP and window > 0:
        step = window / math.ceil(window / min(window / 8, max(limit, 1e-9) / 400))
        gaps = gap_table(server, rate, limit, step)
    total = beyond_in_service(server, rate, limit, starts, ages, age_chances, gaps, step)
    if server.trigger == CLOCK:
        return float(total / served)
    if window > 0 and size > 1:
        total += beyond_when_free(server, rate, starts, behind, limit, ages, age_chances, gaps, step)
    elif server.base_ms + server.slope_ms > limit:
        total += behind[0]
    return float(total / served)
