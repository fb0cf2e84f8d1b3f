"""Binary heap in two arrays, ordered by time, with an item for each time (compiled).

A heap without items passes its array of times for both.
"""

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.machine.compiling import compiled

Items = FloatArray | IntArray


@compiled
def push(times: FloatArray, items: Items, size: int, time: float, item: float) -> None:
    """Add a time and its item to a heap of `size` entries; the arrays must have space for one more."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if times[parent] <= time:
            break
        times[place], items[place] = times[parent], items[parent]
        place = parent
    times[place], items[place] = time, item


@compiled
def replace_first(times: FloatArray, items: Items, size: int, time: float, item: float) -> None:
    """Replace the smallest time, and its item, of a heap of `size` entries."""
    _sift_down(times, items, size, 0, time, item)


@compiled
def remove_first(times: FloatArray, items: Items, size: int) -> None:
    """Remove the smallest time of a heap, which has `size` entries afterwards."""
    replace_first(times, items, size, times[size], items[size])


@compiled
def remove_at(times: FloatArray, items: Items, size: int, place: int) -> None:
    """Remove the time at index `place` of a heap, which has `size` entries afterwards."""
    if place > 0 and times[(place - 1) // 2] > times[size]:
        push(times, items, place, times[size], items[size])
    else:
        _sift_down(times, items, size, place, times[size], items[size])


@compiled
def _sift_down(times: FloatArray, items: Items, size: int, place: int, time: float, item: float) -> None:
    """Put a time into the free index `place` of a heap of `size` entries, or below smaller children."""
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[place], items[place] = times[child], items[child]
        place = child
    times[place], items[place] = time, item
