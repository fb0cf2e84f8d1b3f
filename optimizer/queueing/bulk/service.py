"""Service times, queue limits during a service, and windows after it (compiled)."""

from optimizer.arrays import FloatArray
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.machine.compiling import compiled

FIRST_POINTS = 48
"""Number of quadrature nodes for the age of the oldest request when its window opened."""


@compiled
def service_ms(server: BatchServer, n: int) -> float:
    """Return the service time of a batch of n requests [ms]."""
    return server.base_ms + server.slope_ms * n


@compiled
def queue_limit_during(server: BatchServer, n: int) -> int:
    """Return the maximum number of requests that can wait during the service of n requests."""
    return server.queue_limit - n if server.counts_system else server.queue_limit


@compiled
def fill_window(in_window: FloatArray, first: int, size: int, flow: float, out: FloatArray) -> None:
    """Add the size distribution of the batch after a window that starts with `first` < B requests.

    Args:
        in_window: probabilities of 0 … B − 1 − first arrivals in the window.
        first: number of requests at the start of the window.
        size: batch limit B.
        flow: mean number of such windows.
        out: increased by the distribution, by batch size.
    """
    rest = 1.0
    for j in range(first, size):
        out[j] += flow * in_window[j - first]
        rest -= in_window[j - first]
    out[size] += flow * max(rest, 0.0)
