"""Batch servers with non-Poisson arrivals, which are simulated because no exact results are known.

The random streams are fixed, so equal servers have equal results. Interarrival times are drawn once per
coefficient of variation and scaled, so results change smoothly with the rate.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.parallel import thread_count
from optimizer.simulation.arrivals import arrival_times_ms
from optimizer.simulation.tandem import Station, Tandem

RUNS = 4
"""Number of simulated runs that are averaged."""
REQUESTS = 1_000_000
"""Number of requests per run."""
LEFT_OUT = 0.05
"""Share of a run that is discarded at its start, and again at its end."""
SEED = 1
REMEMBERED = RUNS * thread_count()
"""Maximum number of cached runs: those of one server per thread; each takes 8 MB."""


@dataclass(frozen=True, slots=True)
class SimulatedSteadyState:
    """Simulated steady state of a batch server at an arrival rate."""

    latencies_ms: FloatArray
    """Latencies of the completed requests that are not discarded [ms], ascending."""
    mean_ms: float
    """Mean latency [ms]."""
    service_ms: float
    """Mean time of a request in service [ms]."""
    rejected: float
    """Share of requests that are rejected."""
    busy: float
    """Share of time in which the server is busy."""
    mean_batch: float
    """Mean batch size."""
    queue: float
    """Mean queue length."""

    def late_share(self, limit_ms: float) -> float:
        """Return the share of completed requests whose latency exceeds a limit [ms]."""
        within = np.searchsorted(self.latencies_ms, limit_ms, side="right")
        return 1 - float(within) / len(self.latencies_ms)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of completed requests does not exceed [ms]."""
        return float(np.quantile(self.latencies_ms, share, method="inverted_cdf"))


def simulate_steady_state(line: Tandem, rate: float, cv: float) -> SimulatedSteadyState:
    """Simulate the steady state of a server with stages and non-Poisson arrivals.

    Args:
        line: the server and its stages.
        rate: arrival rate [1/ms].
        cv: CV of the interarrival times.
    """
    from optimizer.simulation.machine.passing import run_line

    size, waits, services = 0, [], []
    busy_ms = batch_ms = lasted_ms = 0.0
    batches = 0
    start_ms, last_ms = np.empty(REQUESTS), np.empty(REQUESTS)
    counted = slice(int(REQUESTS * LEFT_OUT), int(REQUESTS * (1 - LEFT_OUT)))
    # Streams are equal at every rate, so that curves over rates are smooth. Start and end of each run are
    # discarded.
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
    # With stages, the service time is that at all stages and in the batch; the rest of the latency is
    # waiting.
    if line.stations:
        service_ms = batch_ms / (RUNS * REQUESTS * (1 - rejected))
        service_ms += sum(station.mean_ms for station in line.stations)
        waits_ms = float(total.mean()) - service_ms
    return SimulatedSteadyState(
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
    """Return arrival times at a rate of 1, from a fixed random stream."""
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(run,)))
    return frozen(arrival_times_ms(1000.0, REQUESTS, rng, cv))


@lru_cache(maxsize=REMEMBERED)
def _stage_times(stations: tuple[Station, ...], run: int) -> FloatArray:
    """Return service times at the stages [ms], from a fixed random stream."""
    from optimizer.simulation.machine.passing import stage_times_ms

    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=(run, len(stations))))
    return frozen(stage_times_ms(stations, REQUESTS, rng))
