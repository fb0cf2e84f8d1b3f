"""Share of requests with a longer latency than a limit, from the queue at starts.

A request that finds k others ahead during a service has k // B full batches before its own. When these are
done (at `clear`), its batch starts as soon as it is full, or when the window ends (at `over`). Arrivals are
integrated over the elapsed time, between the points where completion times jump.
"""

import math

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.queueing.bulk.gaps import gap_table
from optimizer.queueing.bulk.services import beyond_in_service
from optimizer.queueing.bulk.windows import beyond_when_free
from optimizer.simulation.batches import CLOCK, GAP, BatchServer


def late_share_of_server(
    server: BatchServer, rate: float, starts: FloatArray, behind: FloatArray, served: float, limit: float,
    ages: FloatArray, age_chances: FloatArray,
) -> float:  # fmt: skip
    """Return the share of completed requests with a latency above `limit` [ms].

    Args:
        server: the server.
        rate: arrivals [1/ms].
        starts: distribution of the requests at the start of a batch.
        behind: mean number of services per start that leave q requests, by q < B.
        served: mean batch.
        limit: the limit [ms].
        ages: ages of the oldest request left by a start [ms].
        age_chances: their distribution by the number left; shape (B, ages).
    """
    size, window = server.size, server.window_ms
    step, gaps = 1.0, np.zeros((2, 1))
    if server.trigger == GAP and window > 0:
        step = window / math.ceil(window / min(window / 8, max(limit, 1e-9) / 400))
        gaps = gap_table(server, rate, limit, step)
    total = beyond_in_service(server, rate, limit, starts, ages, age_chances, gaps, step)
    if server.trigger == CLOCK:
        return float(total / served)
    if window > 0 and size > 1:
        total += beyond_when_free(server, rate, starts, behind, limit, ages, age_chances, gaps, step)
    elif server.base_ms + server.slope_ms > limit:
        total += behind[0]
    return float(total / served)
