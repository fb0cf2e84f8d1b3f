"""Dynamic-batching servers with non-Poisson arrivals, simulated because no exact results are known.

The random streams are fixed, so the same server has the same results, and results change smoothly with the
rate: interarrival times are drawn once per coefficient of variation and scaled.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.parallel import thread_count
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.tandem import Station, Tandem

RUNS = 4
"""Number of runs averaged."""
REQUESTS = 1_000_000
"""Number of requests per run."""
LEFT_OUT = 0.05
"""Share of a run discarded at its start and again at its end."""
SEED = 1
REMEMBERED = RUNS * thread_count()
"""Maximum number of cached runs: those of one server per thread, 8 MB each."""


@dataclass(frozen=True, slots=True)
class SimulatedSteadyState:
    """Simulated steady state of a server at a rate."""

    server: BatchServer
    latencies_ms: FloatArray
    """Latencies of the completed requests that count, ascending [ms]."""
    mean_ms: float
    """Mean latency [ms]."""
    service_ms: float
    """Mean time of a request in service [ms]."""
    rejected: float
    """Share of requests rejected."""
    busy: float
    """Share of time the server is busy."""
    mean_batch: float
    """Mean batch size."""
    queue: float
    """Mean queue length."""

    def late_share(self, limit_ms: float) -> float:
        """Return the share of completed requests with a longer latency than a limit."""
        within = np.searchsorted(self.latencies_ms, limit_ms, side="right")
        return 1 - float(within) / len(self.latencies_ms)

    def quantile_ms(self, share: float) -> float:
        """Return a quantile of the latency of completed requests."""
        return float(np.quantile(self.latencies_ms, share, method="inverted_cdf"))


def simulate_steady_state(line: Tandem, rate: float, cv: float) -> SimulatedSteadyState:
    """Simulate a tandem's steady state for non-Poisson arrivals.

    Args:
        line: server and stages.
        rate: arrival rate [1/ms].
        cv: CV of the interarrival times.
    """
    from optimizer.simulation.machine.passing import run_line

    size, waits, services = 0, [], []
    busy_ms = batch_ms = lasted_ms = 0.0
    batches = 0
    start_ms, last_ms = np.empty(REQUESTS), np.empty(REQUESTS)
    counted = slice(int(REQUESTS * LEFT_OUT), int(REQUESTS * (1 - LEFT_OUT)))
    # The same streams at every rate, so that curves over rates are smooth; start and end of each run do not
    # count.
    for run in range(RUNS):
        come_ms = _unit_arrivals(cv, run) / rate
        stages_ms = _stage_times(line.stations, run)
        busy, batch, count = run_line(line, come_ms, stages_ms, start_ms, last_ms)
        served = ~np.isnan(last_ms[counted])
        waits.append((start_ms[counted] - come_ms[counted])[served])
        services.append((last_ms[counted] - start_ms[counted])[served])
        size += len(served)
        busy_ms, batch_ms, batches = busy_ms + busy, batch_ms + batch, batches + count
        lasted_ms += max(float(np.nanmax(last_ms)), float(come_ms[-1]))
    wait, service = np.concatenate(waits), np.concatenate(services)
    rejected = 1 - len(wait) / size
    total, service_ms = wait + service, float(service.mean())
    waits_ms = float(wait.mean())
    # With stages, service is all work at stages and batch, and waiting is the rest of the latency.
    if line.stations:
        service_ms = batch_ms / (RUNS * REQUESTS * (1 - rejected))
        service_ms += sum(station.mean_ms for station in line.stations)
        waits_ms = float(total.mean()) - service_ms
    return SimulatedSteadyState(
        line.server,
        frozen(np.sort(total)),
        float(total.mean()),
        service_ms,
        rejected,
        busy_ms / lasted_ms,
        RUNS * REQUESTS * (1 - rejected) / batches,
        rate * (1 - rejected) * waits_ms,
    )


@lru_cache(maxsize=REMEMBERED)
def _unit_arrivals(cv: float, run: int) -> FloatArray:
    """Return arrival times at a rate of one, from a fixed stream."""
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(run,)))
    return frozen(arrival_times_ms(1000.0, REQUESTS, rng, cv))


@lru_cache(maxsize=REMEMBERED)
def _stage_times(stations: tuple[Station, ...], run: int) -> FloatArray:
    """Return service times at the stages, from a fixed stream."""
    from optimizer.simulation.machine.passing import stage_times_ms

    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(run, len(stations))))
    return frozen(stage_times_ms(stations, REQUESTS, rng))
