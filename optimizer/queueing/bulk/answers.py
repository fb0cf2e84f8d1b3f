"""When requests of one batch are answered, by their places in it, and a queue that grows: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_at_most, fill_chances, largest_count
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays

NODES = np.array([0.06943184420297371, 0.33000947820757187, 0.6699905217924281, 0.9305681557970262])
WEIGHTS = np.array([0.17392742256872693, 0.32607257743127307, 0.32607257743127307, 0.17392742256872693])
"""Of Gauss and Legendre, on 0 … 1."""
STEP = 3.0
"""Arrivals in one panel of the quadrature at most."""
NEGLIGIBLE = 1e-15
"""Of a probability."""
ROUNDING = 1e-9
"""Of the number of requests whose answer just fits."""


@compiled_with_arrays
def fill_beyond(
    server: BatchServer, rate: float, limit: float, clear: float, over: float, at_z: FloatArray,
    at_over: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Fill P(L > limit) by the place in the batch, which starts between `clear` and `over`.

    `at_z` holds P(N ≤ j) at the latest start of a full batch that is answered in time.
    """
    size = server.size
    z = limit - service_ms(server, size)
    fill_at_most(rate * over, at_over)
    if server.slope_ms > 0:
        fits = math.floor((limit - server.base_ms - over) / server.slope_ms + ROUNDING)
    else:
        fits = size if limit >= server.base_ms + over else 0
    for p in range(size):
        missing = size - 1 - p
        if missing == 0:
            out[p] = 1.0 if clear > z else 0.0
            continue
        by_timer = at_over[missing - 1]
        chance = 0.0
        if z < clear:
            chance = 1.0 - by_timer
        elif z < over:
            chance = max(at_z[missing - 1] - by_timer, 0.0)
        within = fits - 1 - p
        if within < 0:
            chance += by_timer
        elif within < missing - 1:
            chance += by_timer - at_over[within]
        out[p] = chance


@compiled_with_arrays
def moved_on(queue: FloatArray, low: int, high: int, mean: float, chances: FloatArray) -> tuple[int, int]:
    """Let `mean` requests come on average, lost beyond the end of the array. Only low … high count."""
    if mean <= 0:
        return low, high
    fill_chances(mean, chances)
    reach = min(largest_count(mean), len(chances) - 1)
    top = min(high + reach, len(queue) - 1)
    for k in range(top, low - 1, -1):
        total = 0.0
        for c in range(max(k - high, 0), min(k - low, reach) + 1):
            total += chances[c] * queue[k - c]
        queue[k] = total
    while top > low and queue[top] < NEGLIGIBLE:
        queue[top] = 0.0
        top -= 1
    while low < top and queue[low] < NEGLIGIBLE:
        queue[low] = 0.0
        low += 1
    return low, top


@compiled_with_arrays
def moments_between(points: FloatArray, rate: float) -> FloatArray:
    """Return moments between ascending points and how many arrivals each stands for, shape (moments, 2)."""
    count = 0
    for panel in range(len(points) - 1):
        count += 4 * (int(rate * (points[panel + 1] - points[panel]) / STEP) + 1)
    moments = np.empty((count, 2))
    row = 0
    for panel in range(len(points) - 1):
        begin, end = points[panel], points[panel + 1]
        parts = int(rate * (end - begin) / STEP) + 1
        for part in range(parts):
            for node in range(4):
                moments[row, 0] = begin + (end - begin) * (part + NODES[node]) / parts
                moments[row, 1] = rate * (end - begin) / parts * WEIGHTS[node]
                row += 1
    return moments


@compiled_with_arrays
def sort_up(values: FloatArray, count: int) -> None:
    """Sort the first of some values, which are few, in place."""
    for i in range(1, count):
        value, place = values[i], i
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value
