"""A batch server with stages and at most J jobs inside, modelled as a closed network.

Jobs circulate among the stages and the server. Mean value analysis, which is exact for exponential times,
gives the throughput with n = 1 … J jobs. The queue in front behaves like one server whose rate is the
throughput with n jobs inside. Equations 112–115. Sources: Reiser and Lavenberg, Mean-value analysis of closed
multichain queuing networks (1980); Seidmann et al., stages with several workers (1987).
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.errors import AnalysisError
from optimizer.queueing.bulk.lattice import Excess, Lattice, exceeded_by
from optimizer.simulation.batches import BatchServer
from optimizer.simulation.tandem import Tandem

PROMISED = 0.99
"""Share of the computed throughput that counts as capacity, because times need not be exponential."""


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Throughput and server time of a closed network with n = 1 … J jobs, shapes (J,)."""

    rates: FloatArray
    """Throughput of the network [1/ms]."""
    server_ms: FloatArray
    """Mean time of a job at the server, waiting and in service [ms]."""


@dataclass(frozen=True)
class ClosedNetworkSteadyState:
    """Steady state of a replica with at most J jobs inside."""

    line: Tandem
    rate: float
    """Arrival rate [1/ms]."""
    network: ClosedNetwork
    chances: FloatArray
    """Probability of n jobs in the system, n = 0 … J; the last entry covers J or more."""

    rejected = 0.0

    @property
    def _growth(self) -> float:
        """Ratio of the probabilities of n + 1 and n jobs in the system, for n ≥ J."""
        return self.rate / float(self.network.rates[-1])

    @property
    def inside(self) -> float:
        """Mean number of jobs in the replica."""
        return float(self.chances @ np.arange(len(self.chances)))

    @property
    def queue(self) -> float:
        """Mean number of jobs in the queue in front of the replica."""
        return float(self.chances[-1]) * self._growth / (1 - self._growth)

    @property
    def mean_ms(self) -> float:
        """Mean time from arrival to the end of the last stage [ms]."""
        return (self.inside + self.queue) / self.rate

    @property
    def service_ms(self) -> float:
        """Mean service time of a job: at all stages and in its batch [ms]."""
        server = self.line.server
        own = server.base_ms + server.slope_ms * self.mean_batch
        return own + sum(station.mean_ms for station in self.line.stations)

    @property
    def mean_batch(self) -> float:
        """Mean number of jobs in a batch."""
        there = self.rate * float(self.chances[1:] @ self.network.server_ms)
        return max(1.0, min(there / 2, float(self.line.server.size)))

    @property
    def busy(self) -> float:
        """Fraction of time in which the server is busy."""
        server = self.line.server
        return self.rate * (server.base_ms / self.mean_batch + server.slope_ms)

    def late_share(self, limit_ms: float) -> float:
        """Return the share of jobs whose latency exceeds a limit [ms] (eq. 115)."""
        lattice = Lattice(limit_ms)
        wait = float(self.chances[-1])
        mean_ms = 1 / (float(self.network.rates[-1]) - self.rate)
        waiting = lattice.law(lambda x: mean_ms * np.exp(-x / mean_ms))
        law = lattice.law(self._inside) * (1 - wait + wait * waiting)
        return 1 - lattice.within(law)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of jobs does not exceed [ms]."""
        return exceeded_by(self.late_share, 1 - share, self.mean_ms)

    @cached_property
    def _inside(self) -> Excess:
        """Expected excess E[(X − x)⁺] of a job's time in the replica, from a gamma fit to two moments."""
        from scipy.special import gammaincc

        mean = self.inside / self.rate
        server = self.line.server
        least = min(server.base_ms + server.slope_ms, mean * (1 - 1e-6))
        # Service times at the stages vary by their CV. Waiting is divided evenly among the stages and varies
        # like exponential times.
        variance = sum((station.cv * station.mean_ms) ** 2 for station in self.line.stations)
        waiting = max(mean - self.service_ms, 0.0)
        variance += waiting**2 / max(len(self.line.stations), 1)
        shape = (mean - least) ** 2 / max(variance, (1e-3 * mean) ** 2)
        scale = (mean - least) / shape

        def excess(x: FloatArray) -> FloatArray:
            y = np.maximum(x - least, 0.0) / scale
            rest = (mean - least) * gammaincc(shape + 1, y) - y * scale * gammaincc(shape, y)
            return np.asarray(np.maximum(rest, 0.0) + np.maximum(least - x, 0.0))

        return excess


def closed_network_steady_state(line: Tandem, rate: float) -> ClosedNetworkSteadyState:
    """Return the steady state of a replica with at most J jobs inside.

    Args:
        line: the server and its stages.
        rate: arrival rate [1/ms].

    Raises:
        AnalysisError: the rate exceeds the capacity.
    """
    closed_network = solve_closed_network(line)
    if rate >= closed_network.rates[-1]:
        raise AnalysisError("the queue grows without bound; lower the rate, or raise jobs")
    steps = np.concatenate(([0.0], np.cumsum(np.log(rate / closed_network.rates))))
    chances = np.exp(steps - steps.max())
    chances[-1] /= 1 - rate / float(closed_network.rates[-1])
    return ClosedNetworkSteadyState(line, rate, closed_network, frozen(chances / chances.sum()))


def safe_capacity(line: Tandem) -> float:
    """Return the maximum throughput of a replica [jobs/ms], reduced by a safety margin."""
    return PROMISED * float(solve_closed_network(line).rates[-1])


@lru_cache(maxsize=1024)
def solve_closed_network(line: Tandem) -> ClosedNetwork:
    """Return throughput and server time of the network with n = 1 … J jobs (eq. 112–114)."""
    stages = line.stations
    demand = np.array([station.mean_ms / station.workers for station in stages])
    delay = sum(station.mean_ms * (1 - 1 / station.workers) for station in stages)
    excess = np.array([max(station.cv**2 - 1, 0.0) / 2 for station in stages])
    rates, server_ms = np.empty(line.jobs), np.empty(line.jobs)
    queue = np.zeros(len(stages))
    there = np.ones(1)  # probabilities of j jobs at the server
    rate = 0.0
    served = server_rates(line.server, line.jobs)
    # An arriving job sees the steady state with n − 1 jobs (arrival theorem). The batch server needs the
    # distribution of its number of jobs, because its throughput depends on it.
    for n in range(1, line.jobs + 1):
        times = demand * (1 + queue + rate * demand * excess)
        own = float((np.arange(1, n + 1) / served[:n]) @ there)
        rate = n / (delay + float(times.sum()) + own)
        queue = rate * times
        more = rate / served[:n] * there
        there = np.concatenate(([max(1 - more.sum(), 0.0)], more))
        rates[n - 1], server_ms[n - 1] = rate, own
    return ClosedNetwork(frozen(rates), frozen(server_ms))


def server_rates(server: BatchServer, jobs: int) -> FloatArray:
    """Return the throughput of a batch server with n = 1 … `jobs` jobs [1/ms], shape (jobs,) (eq. 114).

    The jobs are in two batches: the one in service and the one that waits. A single job is served alone.
    """
    count = np.arange(1, jobs + 1)
    shared = np.minimum(count, 2 * server.size)
    rates = shared / (2 * server.base_ms + server.slope_ms * shared)
    rates[0] = 1 / (server.base_ms + server.slope_ms)
    return np.asarray(rates)
