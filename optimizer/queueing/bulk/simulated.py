"""Batch servers without exact results, which are simulated.

They have non-Poisson arrivals, stages, a limit on jobs, or the trigger `gap`. The random streams are fixed,
so equal servers have equal results. Interarrival times are drawn once per coefficient of variation and
scaled, so results change smoothly with the rate.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.errors import AnalysisError
from optimizer.parallel import thread_count
from optimizer.simulation.arrivals import POISSON_CV
from optimizer.simulation.batches import GAP
from optimizer.simulation.limits import UNLIMITED
from optimizer.simulation.tandem import ALL_JOBS, Station, Tandem

REQUESTS, MANY_REQUESTS = 1_000_000, 2_000_000
"""Numbers of simulated requests, of which more are taken if latencies vary much."""
MUCH_VARIATION = 30.0
"""Ratio (1 + CV²) / (1 - load) above which many are simulated, so that means are within about 1 %."""
DRAFT_REQUESTS = 100_000
"""Number of simulated requests with which sizing searches; limiting rates differ by about 1 %."""
LEFT_OUT = 0.05
"""Share of a run that is discarded at its start, and again at its end."""
SEED = 1
PROMISED = 0.99
"""Share of the simulated saturation throughput under a limit on jobs that counts as capacity."""
REMEMBERED = 3 * thread_count()
"""Maximum number of cached streams: all lengths of one server per thread; each takes up to 16 MB."""


@dataclass(frozen=True, slots=True)
class SimulatedSteadyState:
    """Simulated steady state of a batch server at an arrival rate."""

    latencies_ms: FloatArray
    """Latencies of the completed requests that are not discarded [ms]."""
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
        return float(np.count_nonzero(self.latencies_ms > limit_ms)) / len(self.latencies_ms)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of completed requests does not exceed [ms]."""
        return float(np.quantile(self.latencies_ms, share, method="inverted_cdf"))


def is_simulated(line: Tandem, cv: float) -> bool:
    """Return whether a server with arrivals of a CV has no exact results."""
    collects_gaps = line.server.trigger == GAP and line.server.window_ms > 0 and line.server.size > 1
    return cv != POISSON_CV or not line.is_server_alone or collects_gaps


def simulate_steady_state(
    line: Tandem, rate: float, cv: float, requests: int | None = None
) -> SimulatedSteadyState:
    """Simulate the steady state of a server with its stages.

    Args:
        line: the server and its stages.
        rate: arrival rate [1/ms].
        cv: CV of the interarrival times.
        requests: number of requests; None for as many as figures need.

    Raises:
        AnalysisError: an unlimited queue grows without bound.
    """
    from optimizer.simulation.machine.passing import run_line

    if line.server.queue_limit >= UNLIMITED and rate >= saturation_rate(line):
        raise AnalysisError("the queue grows without bound; lower the rate, or raise jobs or workers")
    requests = requests or _enough_requests(line, rate, cv)
    come_ms = _unit_arrivals(cv, requests) / rate
    start_ms, last_ms = np.empty(requests), np.empty(requests)
    busy_ms, batch_ms, batches = run_line(
        line, come_ms, _stage_times(line.stations, requests), start_ms, last_ms
    )
    counted = slice(int(requests * LEFT_OUT), int(requests * (1 - LEFT_OUT)))
    served = ~np.isnan(last_ms[counted])
    latencies_ms = (last_ms[counted] - come_ms[counted])[served]
    answered, mean_ms = float(served.mean()), float(latencies_ms.mean())
    # The service time is that in the batch and at all stages; the rest of the latency is waiting.
    stages_ms = sum(station.mean_ms for station in line.stations)
    service_ms = batch_ms / (requests * answered) + stages_ms
    return SimulatedSteadyState(
        frozen(latencies_ms),
        mean_ms,
        service_ms,
        1 - answered,
        busy_ms / max(float(np.nanmax(last_ms)), float(come_ms[-1])),
        requests * answered / batches,
        rate * answered * (mean_ms - service_ms),
    )


def _enough_requests(line: Tandem, rate: float, cv: float) -> int:
    """Return the number of requests with which the mean latency is accurate."""
    free = max(1 - rate / saturation_rate(line), 1e-9)
    return MANY_REQUESTS if (1 + cv**2) / free > MUCH_VARIATION else REQUESTS


@lru_cache(maxsize=1024)
def saturation_rate(line: Tandem) -> float:
    """Return the throughput with requests always waiting [requests/ms]; a limit on jobs is simulated."""
    if line.jobs == ALL_JOBS:
        return line.most
    from optimizer.simulation.machine.passing import run_line

    last_ms = np.empty(DRAFT_REQUESTS)
    stages_ms = _stage_times(line.stations, DRAFT_REQUESTS)
    run_line(line, np.zeros(DRAFT_REQUESTS), stages_ms, np.empty(DRAFT_REQUESTS), last_ms)
    begin_ms, end_ms = np.quantile(last_ms, (LEFT_OUT, 1 - LEFT_OUT)).tolist()
    most: float = PROMISED * (1 - 2 * LEFT_OUT) * DRAFT_REQUESTS / (end_ms - begin_ms)
    return min(most, line.most)


@lru_cache(maxsize=REMEMBERED)
def _unit_arrivals(cv: float, requests: int) -> FloatArray:
    """Return arrival times at a rate of 1, from a fixed random stream."""
    return frozen(np.cumsum(_shuffled(_gamma_quantiles(cv), requests, (0,))))


@lru_cache(maxsize=REMEMBERED)
def _stage_times(stations: tuple[Station, ...], requests: int) -> FloatArray:
    """Return service times at the stages [ms], from fixed random streams; shape (stages, requests)."""
    times = [
        _shuffled(station.mean_ms * _lognormal_quantiles(station.cv), requests, (1, place))
        for place, station in enumerate(stations)
    ]
    return frozen(np.reshape(times, (len(stations), requests)))


def _shuffled(quantiles: FloatArray, count: int, stream: tuple[int, ...]) -> FloatArray:
    """Return values of a distribution in random order, whose mean and variance are exact.

    Without the chance in both, results are several times nearer to the steady state.
    """
    rng = np.random.default_rng(np.random.SeedSequence(SEED, spawn_key=stream))
    return np.asarray(rng.permutation(np.resize(quantiles, count)))


@cache
def _shares() -> FloatArray:
    return (np.arange(DRAFT_REQUESTS) + 0.5) / DRAFT_REQUESTS


@lru_cache(maxsize=REMEMBERED)
def _gamma_quantiles(cv: float) -> FloatArray:
    """Return evenly spaced quantiles of a gamma distribution with a mean of 1 and the CV."""
    from scipy.special import gammaincinv

    if cv == 0:
        return np.ones(1)
    quantiles = gammaincinv(1 / cv**2, _shares())
    return frozen(quantiles / quantiles.mean())


@lru_cache(maxsize=REMEMBERED)
def _lognormal_quantiles(cv: float) -> FloatArray:
    """Return evenly spaced quantiles of a lognormal distribution with a mean of 1 and the CV."""
    from scipy.special import ndtri

    quantiles = np.exp(np.sqrt(np.log1p(cv**2)) * ndtri(_shares()))
    return frozen(quantiles / quantiles.mean())
