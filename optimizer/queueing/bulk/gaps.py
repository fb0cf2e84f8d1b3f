"""Batches that a gap between two requests closes: compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays, entry_with_arrays


@compiled_with_arrays
def beyond_gap(
    server: BatchServer, rate: float, there: int, rest: float, gaps: FloatArray, step: float
) -> float:
    """Return P(still unanswered after `rest`) when `there` requests wait and the gap begins anew."""
    if rest < 0:
        return 1.0
    size, window = server.size, server.window_ms
    if there >= size:
        return 1.0 if service_ms(server, size) > rest * (1 + 1e-12) else 0.0
    chance = math.exp(-rate * window) if window + service_ms(server, there) > rest * (1 + 1e-12) else 0.0
    cell = rest / step
    k = min(int(cell), gaps.shape[1] - 2)
    part = cell - k
    return chance + gaps[there, k] * (1 - part) + gaps[there, k + 1] * part


@compiled_with_arrays
def gap_visits(server: BatchServer, rate: float, behind: FloatArray) -> FloatArray:
    """Return how often a free server has j < B waiting, in a mean cycle, by j; shape (B,)."""
    visits = np.zeros(server.size)
    going_on = 1 - math.exp(-rate * server.window_ms)
    here = behind[0]
    for j in range(1, server.size):
        here += behind[j]
        visits[j] = here
        here *= going_on
    return visits


@compiled_with_arrays
def in_gap(rate: float, window: float, late: float, through: float) -> float:
    """Return P(late < gap < window); `through` is P(gap > window)."""
    if late >= window:
        return 0.0
    return max((math.exp(-rate * late) if late > 0 else 1.0) - through, 0.0)


@entry_with_arrays
def gap_table(server: BatchServer, rate: float, limit: float, step: float) -> FloatArray:
    """Return P(another comes in time and the answer is late) by requests there and by time left."""
    size, window = server.size, server.window_ms
    cells = int(limit / step) + 3
    table, gone = np.zeros((size + 1, cells)), np.empty(cells)
    wide = round(window / step)
    x = rate * step
    kept = math.exp(-x)
    old = (1 - kept * (1 + x)) / x if x > 1e-3 else x / 2 - x * x / 3
    new = 1 - kept - old
    through = math.exp(-rate * window)
    for k in range(cells):
        gone[k] = in_gap(rate, window, k * step, through)
    for n in range(size - 1, 0, -1):
        if n + 1 == size:
            full = service_ms(server, size)
            for k in range(cells):
                table[n, k] = in_gap(rate, window, k * step - full, through)
            continue
        answer = window + service_ms(server, n + 1)
        going = 0.0
        for k in range(cells):
            if k > 0:
                going = kept * going + new * table[n + 1, k] + old * table[n + 1, k - 1]
                if k > wide:
                    cell = new * table[n + 1, k - wide] + old * table[n + 1, k - wide - 1]
                    going = max(going - through * cell, 0.0)
            closed = in_gap(rate, window, k * step - answer, through)
            table[n, k] = gone[k] + through * (closed - gone[k]) + going
    return table


@compiled_with_arrays
def fill_beyond_gap(
    server: BatchServer, rate: float, limit: float, clear: float, gaps: FloatArray, step: float,
    in_clear: FloatArray, ahead: FloatArray, out: FloatArray,
) -> None:  # fmt: skip
    """Fill P(L > limit) by the place p in a batch that is collected from `clear` on."""
    size, any_late = server.size, 0.0
    for n in range(1, size + 1):
        ahead[n] = beyond_gap(server, rate, n, limit - clear, gaps, step)
        any_late = max(any_late, ahead[n])
    out[:size] = 0.0
    if any_late == 0:
        return
    fill_chances(rate * clear, in_clear)
    rest = 1.0
    for c in range(size):
        out[size - 1 - c] += max(rest, 0.0) * ahead[size]
        share, reached = in_clear[c], ahead[1 + c : size]
        rest -= share
        for p in range(len(reached)):
            out[p] += share * reached[p]
