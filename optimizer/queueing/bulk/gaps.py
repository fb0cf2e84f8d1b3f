"""Batches that start after a gap between two requests (trigger `gap`); compiled."""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.answers import NEGLIGIBLE
from optimizer.queueing.bulk.poisson import fill_chances
from optimizer.queueing.bulk.records import GapTable, LatencyLimit, Scratch, Waiting
from optimizer.queueing.bulk.service import service_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled_with_arrays, entry_with_arrays


@compiled_with_arrays
def gap_visits(server: BatchServer, rate: float, behind: FloatArray) -> FloatArray:
    """Return how often per cycle a free server has j = 0 … B − 1 requests waiting, on average, shape (B,)."""
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
    """Return P(late < gap < window), given `through` = P(gap > window)."""
    if late >= window:
        return 0.0
    return max((math.exp(-rate * late) if late > 0 else 1.0) - through, 0.0)


@entry_with_arrays
def gap_table(server: BatchServer, rate: float, limit: float, step: float) -> FloatArray:
    """Return P(a request arrives within the gap and the batch is late), by remaining time and queue."""
    size, window = server.size, server.window_ms
    cells = int(limit / step) + 3
    table, going = np.zeros((cells, size + 1)), np.zeros(size)
    wide = round(window / step)
    # The next arrival falls between two cells of the table: `old` and `new` are the weights of these cells.
    x = rate * step
    kept = math.exp(-x)
    old = (1 - kept * (1 + x)) / x if x > 1e-3 else x / 2 - x * x / 3
    new = 1 - kept - old
    through = math.exp(-rate * window)
    for k in range(cells):
        table[k, size - 1] = in_gap(rate, window, k * step - service_ms(server, size), through)
        gone, now, before = in_gap(rate, window, k * step, through), table[k], table[max(k - 1, 0)]
        # A batch of n requests is late if its time is over when the gap ends, or if another request arrives
        # in time and the batch of n + 1 is late. `going` is the convolution over that arrival; it advances by
        # one cell, and arrivals older than the window are removed.
        for n in range(size - 2, 0, -1):
            if k > 0:
                more = kept * going[n] + new * now[n + 1] + old * before[n + 1]
                if k > wide:
                    cell = new * table[k - wide, n + 1] + old * table[k - wide - 1, n + 1]
                    more = max(more - through * cell, 0.0)
                going[n] = more
            closed = in_gap(rate, window, k * step - window - service_ms(server, n + 1), through)
            now[n] = gone + through * (closed - gone) + going[n]
    return table


@compiled_with_arrays
def fill_ahead(server: BatchServer, rate: float, rest: float, gaps: GapTable, ahead: FloatArray) -> bool:
    """Fill P(not completed after `rest` [ms]) by queue length up to B; return whether any is above 0."""
    size, window = server.size, server.window_ms
    if rest < 0:
        ahead[:] = 1.0
        return True
    late, through = rest * (1 + 1e-12), math.exp(-rate * window)
    k = min(int(rest / gaps.step), len(gaps.late) - 2)
    part, here, there = rest / gaps.step - k, gaps.late[k], gaps.late[k + 1]
    most = 0.0
    for n in range(1, size):
        closed = through if window + service_ms(server, n) > late else 0.0
        ahead[n] = closed + here[n] * (1 - part) + there[n] * part
        most = max(most, ahead[n])
    ahead[size] = 1.0 if service_ms(server, size) > late else 0.0
    return most > 0 or ahead[size] > 0


@compiled_with_arrays
def fill_late(
    mean: float, first: int, last: int, ahead: FloatArray, in_clear: FloatArray, out: FloatArray
) -> None:
    """Fill P(late) of requests that find `first` … `last` others in their batch, which grows until `clear`.

    Args:
        mean: mean number of requests added until `clear`.
        first: smallest number found.
        last: largest number found.
        ahead: result of `fill_ahead`.
        in_clear: scratch array.
        out: filled with the probabilities.
    """
    size = len(ahead) - 1
    fill_chances(mean, in_clear)
    out[size - 1], more = ahead[size], 1.0
    for c in range(size - 1):
        more -= in_clear[c]
        out[size - 2 - c] = max(more, 0.0) * ahead[size]
    for c in range(size - 1 - first):
        share, reached, late_at = in_clear[c], ahead[1 + c + first : size], out[first : last + 1]
        if share > NEGLIGIBLE:
            for p in range(min(len(reached), len(late_at))):
                late_at[p] += share * reached[p]


@compiled_with_arrays
def late_of_gap(
    law: LatencyLimit, gaps: GapTable, clear: float, place: int, waiting: Waiting, at_clear: FloatArray,
    scratch: Scratch,
) -> float:  # fmt: skip
    """Return the mean number of late requests among those that find others waiting.

    Args:
        law: the server, its arrivals and the limit.
        gaps: result of `gap_table`.
        clear: time until the batches ahead are completed [ms].
        place: number of requests in the batches ahead.
        waiting: queue lengths that requests find, each shorter than `place` plus a batch.
        at_clear: queue distribution at `clear` if `place` is 0; empty if unknown.
        scratch: overwritten.
    """
    server, rate, (queue, low, high) = law.server, law.rate, waiting
    size, in_clear, ahead, out = server.size, scratch.rows[0], scratch.rows[1], scratch.rows[2]
    if not fill_ahead(server, rate, law.limit - clear, gaps, ahead):
        return 0.0
    full, late = 0.0, 0.0
    for k in range(low, high + 1):
        full += queue[k]
    if len(at_clear) > 0:
        for m in range(size - 1):
            full -= at_clear[m]
            late += at_clear[m] * ahead[1 + m]
        return late + max(full, 0.0) * ahead[size]
    mean = rate * clear
    if mean - 9 * math.sqrt(mean) > size:  # the batch is full before
        return full * ahead[size]
    fill_late(mean, low - place, high - place, ahead, in_clear, out)
    for k in range(low, high + 1):
        late += queue[k] * out[k - place]
    return late


@compiled_with_arrays
def at_end_of_service(rate: float, longest: float, queue: FloatArray, size: int) -> FloatArray:
    """Return the length distribution of a queue a time `longest` [ms] after it was below one batch."""
    chances, at_end = np.empty(size), np.zeros(size)
    fill_chances(rate * longest, chances)
    for k in range(min(size, len(queue))):
        for m in range(k, size):
            at_end[m] += queue[k] * chances[m - k]
    return at_end
