"""Completion times of requests by position in the queue, and growth of a queue (compiled)."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_at_most, fill_step
from optimizer.queueing.bulk.records import LatencyLimit, Scratch
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled, compiled_with_arrays

_RULES = [np.polynomial.legendre.leggauss(nodes) for nodes in range(1, 5)]
NODES = np.array([np.pad(nodes / 2 + 0.5, (0, 4 - len(nodes))) for nodes, _ in _RULES])
WEIGHTS = np.array([np.pad(weights / 2, (0, 4 - len(weights))) for _, weights in _RULES])
"""Weights of Gauss-Legendre quadrature on 0 … 1, for one to four nodes."""
STEPS = (0.002, 0.08, 0.6, 3.0)
"""Maximum mean number of arrivals in one quadrature panel, for one to four nodes."""
NEGLIGIBLE = 1e-15
"""Probability below which a value counts as zero."""
ROUNDING = 1e-9
"""Tolerance on the number of requests in a batch that just completes in time."""


@compiled_with_arrays
def latency_limit(server: BatchServer, rate: float, limit: float) -> LatencyLimit:
    """Create the record of a server, its arrival rate [1/ms] and a latency limit [ms]."""
    at_z, at_over = np.empty(server.size + 1), np.empty(server.size + 1)
    fill_at_most(rate * max(limit - service_ms(server, server.size), 0.0), at_z)
    return LatencyLimit(server, rate, limit, at_z, at_over)


@compiled_with_arrays
def scratch_for(size: int, longest: int) -> Scratch:
    """Create scratch arrays for batches up to `size` and queues up to `longest` requests."""
    return Scratch(np.empty((3, size + 1)), np.empty(64), np.empty(longest))


@compiled
def fill_late(law: LatencyLimit, clear: float, over: float, out: FloatArray) -> None:
    """Fill `out` with P(latency > limit) by position in a batch that starts between `clear` and `over`.

    At `clear` [ms] the batches ahead are completed, and at `over` [ms] the window ends.
    """
    server, limit, at_z, at_over = law.server, law.limit, law.at_z, law.at_over
    size = server.size
    z = limit - service_ms(server, size)
    fill_at_most(law.rate * over, at_over)
    # A batch that the window's end starts at `over` completes in time with at most `fits` requests.
    if server.slope_ms > 0:
        fits = math.floor((limit - server.base_ms - over) / server.slope_ms + ROUNDING)
    else:
        fits = size if limit >= server.base_ms + over else 0
    out[size - 1] = 1.0 if clear > z else 0.0
    # The batch of the request at position p lacks `missing` requests. Either it is full before `over`, and
    # late if that is after `z`; or the window's end starts it, and it is late with more than `fits` requests.
    for p in range(size - 1):
        missing = size - 1 - p
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


@compiled
def moved_on(queue: FloatArray, low: int, high: int, mean: float, scratch: Scratch) -> tuple[int, int]:
    """Add Poisson arrivals to a queue length distribution, in place; return its new `low` and `high`.

    Args:
        queue: probability of each length; changed in place.
        low: smallest length with a non-negligible probability.
        high: largest such length.
        mean: mean number of arrivals, which must be small; arrivals beyond the array are rejected.
        scratch: overwritten.
    """
    chances, before = scratch.chances, scratch.before
    if mean <= 0 or high < low:
        return low, high
    reach = fill_step(mean, chances)
    top = min(high + reach, len(queue) - 1)
    for k in range(low, high + 1):
        before[k] = queue[k]
        queue[k] *= chances[0]
    for k in range(high + 1, top + 1):
        queue[k] = 0.0
    # All lengths increase by c arrivals at once; the compiler vectorises operations on slices.
    for c in range(1, min(reach, top - low) + 1):
        share, moving = chances[c], before[low : min(high, top - c) + 1]
        to = queue[low + c :]
        for k in range(len(moving)):
            to[k] += share * moving[k]
    # Lengths with a negligible probability are dropped.
    while top > low and queue[top] < NEGLIGIBLE:
        queue[top] = 0.0
        top -= 1
    while low < top and queue[low] < NEGLIGIBLE:
        queue[low] = 0.0
        low += 1
    return low, top


@compiled
def panel_of(mean: float, least: int) -> tuple[int, int]:
    """Return the number of parts into which to divide a panel with `mean` arrivals, and the nodes of each."""
    parts = int(mean / STEPS[3]) + 1
    for nodes in range(least, 4):
        if mean / parts <= STEPS[nodes - 1]:
            return parts, nodes
    return parts, 4


@compiled_with_arrays
def moments_between(points: FloatArray, count: int, rate: float, least: int) -> FloatArray:
    """Return quadrature nodes between ascending points and the mean arrivals of each, shape (nodes, 2).

    Args:
        points: ascending points.
        count: number of points to use.
        rate: arrival rate [1/ms].
        least: minimum number of nodes of a panel; four if the integrand also jumps inside panels.
    """
    rows = 0
    for panel in range(count - 1):
        parts, nodes = panel_of(rate * (points[panel + 1] - points[panel]), least)
        rows += parts * nodes
    moments = np.empty((rows, 2))
    row = 0
    for panel in range(count - 1):
        begin, length = points[panel], points[panel + 1] - points[panel]
        parts, nodes = panel_of(rate * length, least)
        for part in range(parts):
            for node in range(nodes):
                moments[row, 0] = begin + length * (part + NODES[nodes - 1, node]) / parts
                moments[row, 1] = rate * length / parts * WEIGHTS[nodes - 1, node]
                row += 1
    return moments


@compiled
def sort_up(values: FloatArray, count: int) -> None:
    """Sort the first `count` values in place."""
    for i in range(1, count):
        value, place = values[i], i
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value
