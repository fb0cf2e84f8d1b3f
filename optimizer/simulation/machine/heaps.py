"""Binary heap in arrays, ordered by time, with an item for each time (compiled).

Without items, the array of times is passed for both.
"""

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.machine.compiling import compiled

Items = FloatArray | IntArray


@compiled
def push(times: FloatArray, items: Items, size: int, time: float, item: float) -> None:
    """Add a time to a heap of the given size, whose arrays have space for one more."""
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
    """Replace the smallest time of a heap of the given size."""
    _sift_down(times, items, size, 0, time, item)


@compiled
def remove_first(times: FloatArray, items: Items, size: int) -> None:
    """Remove the smallest time of a heap, which then has the given size."""
    replace_first(times, items, size, times[size], items[size])


@compiled
def remove_at(times: FloatArray, items: Items, size: int, place: int) -> None:
    """Remove the time at a place of a heap, which then has the given size."""
    if place > 0 and times[(place - 1) // 2] > times[size]:
        push(times, items, place, times[size], items[size])
    else:
        _sift_down(times, items, size, place, times[size], items[size])


@compiled
def _sift_down(times: FloatArray, items: Items, size: int, place: int, time: float, item: float) -> None:
    """Put a time at a free place of a heap of the given size, or below it."""
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[place], items[place] = times[child], items[child]
        place = child
    times[place], items[place] = time, item
