"""Stages of a tandem: each worker serves one request at a time, first come, first served (compiled)."""

from optimizer.arrays import FloatArray
from optimizer.simulation.machine.compiling import entry
from optimizer.simulation.machine.heaps import replace_first


@entry
def run_station(
    come_ms: FloatArray, service_ms: FloatArray, free_ms: FloatArray, left_ms: FloatArray
) -> None:
    """Fill in the times at which requests leave a stage.

    Args:
        come_ms: arrivals, ascending, shape (R,).
        service_ms: service times, shape (R,).
        free_ms: heap of the times at which workers become free; changed.
        left_ms: filled, shape (R,).
    """
    for row in range(len(come_ms)):
        done = max(come_ms[row], free_ms[0]) + service_ms[row]
        left_ms[row] = done
        replace_first(free_ms, free_ms, len(free_ms), done, done)
