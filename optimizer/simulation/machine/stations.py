"""Stages of a line: workers who serve one request at a time each, first come, first served; compiled."""

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import entry
from optimizer.simulation.machine.heaps import replace_first


@entry
def run_station(
    come_ms: FloatArray, service_ms: FloatArray, free_ms: FloatArray, left_ms: FloatArray
) -> None:
    """Fill when requests leave a stage.

    Args:
        come_ms: when they come, ascending, shape (R,).
        service_ms: how long each is served, shape (R,).
        free_ms: when each worker is free, a heap: its children are not before it; changed.
        left_ms: to be filled, shape (R,).
    """
    for row in range(len(come_ms)):
        done = max(come_ms[row], free_ms[0]) + service_ms[row]
        left_ms[row] = done
        replace_first(free_ms, free_ms, len(free_ms), done, done)
