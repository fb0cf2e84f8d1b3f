"""A binary heap in arrays: times, no one after its children's, so that the first is the least; compiled.

Beside the times stands what each is of. Where nothing is, the times themselves are given for it.
"""

from optimizer.arrays import FloatArray, IntArray
from optimizer.simulation.machine.compiling import compiled

Items = FloatArray | IntArray


@compiled
def push(times: FloatArray, items: Items, size: int, time: float, item: float) -> None:
    """Add a time to a heap of so many, which has room for one more."""
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
    """Replace the least time of a heap of so many."""
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[place], items[place] = times[child], items[child]
        place = child
    times[place], items[place] = time, item


@compiled
def remove_first(times: FloatArray, items: Items, size: int) -> None:
    """Take the least time away from a heap, of which so many are left."""
    replace_first(times, items, size, times[size], items[size])
