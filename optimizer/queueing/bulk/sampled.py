"""A batch server at arrivals that are not Poisson: simulated, as no exact figures are known.

The same chances every time, so that the same server gives the same figures, and figures move smoothly with
the rate: the times between arrivals are drawn once for a coefficient of variation, and stretched.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.batches import BatchServer

RUNS = 4
"""Runs that the figures are taken over."""
REQUESTS = 1_000_000
"""Requests of a run."""
LEFT_OUT = 0.05
"""Share of a run that is not counted, at its beginning and again at its end."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Sampled:
    """The long run of a server at a rate, as simulated."""

    server: BatchServer
    latencies_ms: FloatArray
    """Of the answered requests that count, ascending."""
    mean_ms: float
    """Mean latency."""
    service_ms: float
    """Mean time of a request in service."""
    rejected: float
    """Share of requests that find no room."""
    busy: float
    """Share of the time in which the server is busy."""
    mean_batch: float
    """Mean number of requests that are answered together."""
    queue: float
    """Mean number of requests that wait."""

    def beyond(self, limit_ms: float) -> float:
        """Return the share of answered requests that take longer than a limit."""
        within = np.searchsorted(self.latencies_ms, limit_ms, side="right")
        return 1 - float(within) / len(self.latencies_ms)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of the answered requests does not exceed."""
        return float(np.quantile(self.latencies_ms, share, method="inverted_cdf"))


def sampled(server: BatchServer, rate: float, cv: float) -> Sampled:
    """Return the long run of a server at a rate of arrivals [1/ms] whose gaps vary."""
    from optimizer.simulation.machine.collecting import run_batches

    size, waits, services = 0, [], []
    busy_ms = batch_ms = lasted_ms = 0.0
    batches = 0
    start_ms, last_ms = np.empty(REQUESTS), np.empty(REQUESTS)
    queue = np.empty(REQUESTS, dtype=np.int64)
    counted = slice(int(REQUESTS * LEFT_OUT), int(REQUESTS * (1 - LEFT_OUT)))
    for run in range(RUNS):
        come_ms = _unit_arrivals(cv, run) / rate
        busy, batch, count = run_batches(server, come_ms, start_ms, last_ms, queue)
        served = ~np.isnan(last_ms[counted])
        waits.append((start_ms[counted] - come_ms[counted])[served])
        services.append((last_ms[counted] - start_ms[counted])[served])
        size += len(served)
        busy_ms, batch_ms, batches = busy_ms + busy, batch_ms + batch, batches + count
        lasted_ms += max(float(np.nanmax(last_ms)), float(come_ms[-1]))
    wait, service = np.concatenate(waits), np.concatenate(services)
    rejected = 1 - len(wait) / size
    return Sampled(
        server,
        frozen(np.sort(wait + service)),
        float((wait + service).mean()),
        float(service.mean()),
        rejected,
        busy_ms / lasted_ms,
        RUNS * REQUESTS * (1 - rejected) / batches,
        rate * (1 - rejected) * float(wait.mean()),
    )


@lru_cache(maxsize=RUNS)
def _unit_arrivals(cv: float, run: int) -> FloatArray:
    """Return arrivals at a rate of one, the same every time."""
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(run,)))
    return frozen(arrival_times_ms(1000.0, REQUESTS, rng, cv))
