"""Binary heaps in arrays: no entry is larger than its children, so the least stands first; compiled."""

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import compiled


@compiled
def push(heap: FloatArray, size: int, value: float) -> None:
    """Add a value to a heap of so many entries, which has room for one more."""
    place = size
    while place > 0 and heap[(place - 1) // 2] > value:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = value


@compiled
def replace_first(heap: FloatArray, size: int, value: float) -> None:
    """Replace the least of a heap of so many entries."""
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value
