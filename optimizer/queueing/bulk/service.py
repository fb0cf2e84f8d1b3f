"""Service times, queue limits during a service, and windows after it (compiled)."""

import math

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.poisson import fill_chances
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


@compiled
def window_opens_before_end(
    server: BatchServer, rate: float, n: int, flow: float, m: int, chances: FloatArray
) -> tuple[float, float]:
    """Return the age of a window at the end of a service, at quadrature node m, and the mean number of such.

    Args:
        server: a server whose queue limit is below B.
        rate: arrival rate [1/ms].
        n: number of requests in the service, which leaves none.
        flow: mean number of such services.
        m: index of the node, below `FIRST_POINTS`.
        chances: filled with the probabilities of c further requests in the queue, up to the queue limit.
    """
    service, most = service_ms(server, n), queue_limit_during(server, n)
    horizon = min(service, server.window_ms)
    age = (m + 0.5) * horizon / FIRST_POINTS
    fill_chances(rate * age, chances)
    rest = 1.0
    for c in range(most - 1):
        rest -= chances[c]
    chances[most - 1] = max(rest, 0.0)
    return age, flow * rate * math.exp(-rate * (service - age)) * horizon / FIRST_POINTS
