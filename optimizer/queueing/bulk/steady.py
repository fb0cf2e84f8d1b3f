"""Exact steady state of a batch server with Poisson arrivals: means and latency distribution.

Compiled code is loaded on first use.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from optimizer.arrays import FloatArray, frozen
from optimizer.errors import AnalysisError
from optimizer.queueing.bulk.records import OldestLeft
from optimizer.queueing.roots import root_above
from optimizer.simulation.batches import CLOCK, OLDEST, BatchServer
from optimizer.simulation.limits import UNLIMITED

TAIL = 1e-13
"""Probability of a queue longer than the considered states, if the queue is unlimited."""
MAX_STATES = 40_000
AGES = 12
"""Number of quadrature nodes for the age of the oldest request that a start leaves, if its window is open."""
ANY_AGE = 1e30
"""Value that represents an age beyond any window [ms]."""
ROUNDS = 2
"""Number of fixed-point iterations between the age distribution of the oldest request and the Markov chain.
"""
SLACK = 1e-7
"""Relative excess over the allowed late share that counts as rounding."""
MIN_RATIO = 1e-6
"""Lower bound on the ratio of late share to allowed share, before its logarithm is taken."""
ROUNDING = 1e-12
"""Relative change at which Newton's method stops."""
PRECISION = 1e-9
"""Relative width of the bracket around a percentile."""


@dataclass(frozen=True, slots=True)
class ServerSteadyState:
    """Steady state of a batch server at an arrival rate."""

    server: BatchServer
    rate: float
    """Arrival rate [1/ms]."""
    starts: FloatArray
    """Distribution of the number of requests at the start of a batch, shape (states + 1,)."""
    leaving: FloatArray
    """Mean number of services per start that leave q = 0 … B − 1 requests, shape (B,)."""
    oldest: OldestLeft
    served: float
    """Mean number of requests completed per cycle, which is the time from one start to the next."""
    lost: float
    busy_ms: float
    """Mean time per cycle in which the server is busy [ms]."""
    queue_time: float
    """Mean integral of the queue length over a cycle [requests·ms]."""
    answered: float
    """Mean of n·s(n) over cycles, for batches of n requests with service time s(n) [requests·ms]."""

    @property
    def cycle_ms(self) -> float:
        """Mean time between two starts [ms]."""
        return (self.served + self.lost) / self.rate

    @property
    def rejected(self) -> float:
        """Share of requests that are rejected."""
        return self.lost / (self.served + self.lost)

    @property
    def service_ms(self) -> float:
        """Mean time of a request in service [ms]."""
        return self.answered / self.served

    @property
    def mean_ms(self) -> float:
        """Mean latency [ms]."""
        return (self.queue_time + self.answered) / self.served

    @property
    def queue(self) -> float:
        """Mean queue length."""
        return self.queue_time / self.cycle_ms

    @property
    def busy(self) -> float:
        """Share of time in which the server is busy."""
        return self.busy_ms / self.cycle_ms

    @property
    def mean_batch(self) -> float:
        """Mean batch size."""
        return float(self.served / (1 - self.starts[0]))

    def late_share(self, limit_ms: float) -> float:
        """Return the share of completed requests whose latency exceeds a limit [ms]."""
        from optimizer.queueing.bulk.tail import late_per_start

        limit_ms = float(limit_ms)  # always the same type, so it is compiled only once
        late = late_per_start(self.server, self.rate, limit_ms, self.starts, self.leaving, self.oldest)
        return float(late / self.served)

    def quantile_ms(self, share: float) -> float:
        """Return the latency that a share of completed requests does not exceed [ms]."""
        over = (1 - share) * (1 + SLACK)
        least = self.server.base_ms + self.server.slope_ms
        if self.late_share(least) <= over:
            return least
        high = max(2 * self.mean_ms, least)

        def excess(
            limit_ms: float,
        ) -> float:  # tails are almost exponential, so their logarithm is almost linear
            return math.log(max(self.late_share(limit_ms) / over, MIN_RATIO))

        return root_above(excess, 0.5 * least, high, PRECISION, PRECISION)


def load_of(server: BatchServer, rate: float) -> float:
    """Return the offered load as a share of the saturation throughput."""
    return rate * server.spacing_ms / server.size


def server_steady_state(server: BatchServer, rate: float) -> ServerSteadyState:
    """Return the steady state of a batch server at an arrival rate.

    Args:
        rate: arrival rate [1/ms].

    Raises:
        AnalysisError: the queue is unlimited and grows without bound.
    """
    from optimizer.queueing.bulk.chain import fill_starts
    from optimizer.queueing.bulk.totals import totals, waited_when_free

    states, decay = _states(server, rate)
    full_ms = server.base_ms + server.slope_ms * server.size
    overlaps = server.trigger == OLDEST and server.size > 1 and server.window_ms > full_ms
    oldest = _first_ages(server, rate) if overlaps else OldestLeft(np.full(1, ANY_AGE), np.zeros((1, 1)))
    # With `oldest`, chain and ages depend on each other; two rounds suffice.
    near = np.zeros(states + 1)
    for _ in range(ROUNDS if overlaps else 1):
        fill_starts(server, rate, decay, oldest, near)
        starts = _with_tail(near, decay) if decay > 0 else near
        if overlaps:
            oldest = OldestLeft(oldest.ages, _ages(server, rate, starts, oldest.ages))
    # Means over a cycle: first while the server is busy, then while it is free and a window is open.
    leaving = np.zeros(server.size)
    served, lost, busy_ms, queue_time, answered = totals(server, rate, starts, leaving)
    if server.trigger != CLOCK and server.window_ms > 0 and server.size > 1:
        queue_time += waited_when_free(server, rate, starts, leaving, oldest)
    figures = served, lost, busy_ms, queue_time, answered
    return ServerSteadyState(server, rate, starts, leaving, oldest, *figures)


def _states(server: BatchServer, rate: float) -> tuple[int, float]:
    """Return the largest state of the chain, and the decay rate of the probabilities of larger ones.

    Without an effective limit, probabilities beyond a batch decay geometrically in the end; other terms decay
    faster, by about 1 + √(2π/B) per request. The decay rate is 0 if all states are included.

    Raises:
        AnalysisError: the queue is unlimited and grows without bound.
    """
    mean, load = rate * server.spacing_ms, load_of(server, rate)
    if load >= 1:
        if server.queue_limit >= UNLIMITED:
            raise AnalysisError("the queue grows without bound; lower the rate, or limit the queue")
        return min(max(server.queue_limit, 1), MAX_STATES), 0.0
    decay = _decay(server.size, mean)
    ripples = -math.log(TAIL) / math.log1p(math.sqrt(2 * math.pi / server.size))
    near = int(server.size + 3 * math.sqrt(server.size) + 25 + ripples)
    far = near - math.log(TAIL) / decay
    if server.queue_limit < far:
        return min(max(server.queue_limit, 1), MAX_STATES), 0.0
    return near, decay


def _with_tail(starts: FloatArray, decay: float) -> FloatArray:
    """Return the distribution with the last state split into the larger states that it represents."""
    count = int(min(-math.log(TAIL) / decay, MAX_STATES)) + 1
    share = -math.expm1(-decay) * np.exp(-decay * np.arange(count))
    return np.concatenate((starts[:-1], starts[-1] * share))


def _decay(size: int, mean: float) -> float:
    """Return x > 0 with B·x = λ·s·(eˣ − 1): the queue length distribution decays by e⁻ˣ per request.

    Newton's method starts above the root, where convexity keeps every step above it.
    """
    x = 2 * math.log(size / mean) + 1e-9  # λ·s·(eˣ − 1) − B·x has its minimum at half of this value
    while mean * math.expm1(x) < size * x:
        x *= 2
    step = x
    while step > ROUNDING * x:
        step = (mean * math.expm1(x) - size * x) / (mean * math.exp(x) - size)
        x -= step
    return x


@cache
def _age_nodes() -> tuple[FloatArray, FloatArray]:
    """Return quadrature nodes for ages, as fractions of a full batch's service time, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(AGES)
    return frozen((nodes + 1) / 2), frozen(weights / 2)


def _first_ages(server: BatchServer, rate: float) -> OldestLeft:
    """Return ages of the oldest request left, with an initial guess of their distribution: l/λ for l left."""
    ages = np.append(_age_nodes()[0] * (server.base_ms + server.slope_ms * server.size), ANY_AGE)
    chances = np.zeros((server.size, AGES + 1))
    left = np.arange(1, server.size)
    chances[left, np.abs(ages[:-1] - left[:, np.newaxis] / rate).argmin(axis=1)] = 1.0
    return OldestLeft(ages, chances)


def _ages(server: BatchServer, rate: float, starts: FloatArray, ages: FloatArray) -> FloatArray:
    """Return the age distribution of the oldest request that a start leaves, by the number left."""
    from optimizer.queueing.bulk.chain import add_ages

    full = server.base_ms + server.slope_ms * server.size
    chances = np.zeros((server.size, AGES + 1))
    add_ages(server, rate, starts, ages, _age_nodes()[1] * full, chances)
    total = chances.sum(axis=1)
    chances[total <= 0, AGES] = 1.0
    return np.asarray(chances / np.where(total > 0, total, 1.0)[:, np.newaxis])
