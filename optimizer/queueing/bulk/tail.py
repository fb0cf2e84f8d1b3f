"""Share of requests whose latency exceeds a limit, from the number of requests at starts of batches.

A request that finds k others ahead during a service has k // B full batches ahead. When these are completed
(at the time `clear`), its batch starts as soon as it is full, or when the window ends (at the time `over`).
Arrivals are integrated over time, between the points at which completion times jump.
"""

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.bulk.services import late_in_service
from optimizer.queueing.bulk.windows import late_when_free
from optimizer.simulation.batches import CLOCK, BatchServer


def late_per_start(
    server: BatchServer,
    rate: float,
    limit: float,
    starts: FloatArray,
    leaving: FloatArray,
    oldest: OldestLeft,
) -> float:
    """Return the mean number of late requests per start: those whose latency exceeds `limit` [ms].

    Args:
        rate: arrival rate [1/ms].
        limit: limit on the latency [ms].
        starts: distribution of the number of requests at the start of a batch.
        leaving: mean number of services per start that leave q = 0 … B − 1 requests.
        oldest: age distribution of the oldest request that a start leaves.
    """
    size, window = server.size, server.window_ms
    total = late_in_service(server, rate, limit, starts, oldest)
    if server.trigger == CLOCK:
        return total
    if window > 0 and size > 1:
        total += late_when_free(server, rate, limit, starts, leaving, oldest)
    elif server.base_ms + server.slope_ms > limit:
        total += leaving[0]
    return total
