"""Replicas for a backlog: requests that will still wait when a replica that is ordered now is ready.

Arrivals and service are a fluid. Let λ be the arrival rate, μ the maximum throughput of a replica, S the
start-up time, and B the backlog after S. If m replicas are added to d desired ones, the backlog falls by
x = (d + m) μ - λ per second, and is served after B/x. The cost is m (S + B/x) replica-seconds, and κ for each
of the λ B/x requests that arrive until then and are late (docs/loop.md, eq. L3-L5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

from optimizer.stabilisation.decisions import Moment
from optimizer.tolerances import ROUNDING

OVERLOADED_S = 600.0
"""Time over which requests are counted as late if the replicas do not serve the arrivals [s]."""


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """Rates that a replica serves."""

    within_rps: float
    """Maximum rate within all targets, μ_t [requests/s]."""
    most_rps: float
    """Maximum throughput, μ [requests/s]."""
    max_batch: float
    """Batch limit [requests]."""


def starting_times(
    past: Sequence[Moment], accelerator: str, number: int, startup_s: float, now_s: float
) -> list[float]:
    """Return the times at which starting replicas are expected to be ready [s since the epoch].

    Replicas start when the desired number rises; if it falls, the newest ones stop.

    Args:
        past: desired replicas over time.
        accelerator: the accelerator of the replicas.
        number: number of replicas that are not ready.
        startup_s: start-up time of a replica [s].
        now_s: time [s since the epoch], at which replicas of unknown age are expected.
    """
    ready_s: list[float] = []
    for before, after in pairwise(past):
        more = after.desired.get(accelerator, 0) - before.desired.get(accelerator, 0)
        ready_s += [after.first_s + startup_s] * more
        del ready_s[len(ready_s) + min(more, 0) :]
    return [now_s] * (number - len(ready_s)) + ready_s[max(0, len(ready_s) - number) :]


@dataclass(frozen=True, slots=True)
class Queue:
    """Queue of a server, and the replicas that serve it."""

    waiting: float
    rate_rps: float
    """Arrival rate, λ [requests/s]."""
    desired: int
    """Number of replicas that stay without a backlog, d."""
    ready: int
    starting_s: Sequence[float]
    """Times at which the starting replicas are expected to be ready [s since the epoch]."""
    startup_s: float
    """Start-up time of a replica, S [s]."""
    late_cost: float
    """Cost of a late request, in costs of serving one request."""
    is_common: bool
    """Whether all replicas serve one queue; otherwise each replica has its own."""
    of_replicas: Sequence[float] | None = None
    """Number of waiting requests of each ready replica; None if unknown."""
    capacity: ReplicaCapacity = ReplicaCapacity(0.0, 0.0, 0.0)

    @property
    def is_long(self) -> bool:
        """Whether more than a batch waits for each ready replica."""
        return self.waiting > self.capacity.max_batch * max(1, self.ready)

    @property
    def late_price_s(self) -> float:
        """Cost of a late request, κ [replica-seconds]."""
        return self.late_cost / self.capacity.within_rps

    @property
    def surplus_rps(self) -> float:
        """Throughput of the desired replicas beyond the arrival rate, e [requests/s]."""
        return self.desired * self.capacity.most_rps - self.rate_rps

    def backlog(self, now_s: float) -> float:
        """Return the requests that wait when a replica that is ordered now is ready, B."""
        served_s = self.ready * self.startup_s + self._served_by_starting_s(now_s)
        arriving = self.rate_rps * self.startup_s
        return max(0.0, self.waiting + arriving - self.capacity.most_rps * served_s)

    def _served_by_starting_s(self, now_s: float) -> float:
        """Return the time of service of the starting replicas within a start-up time [replica-seconds]."""
        return sum(self.startup_s - min(self.startup_s, max(0.0, at_s - now_s)) for at_s in self.starting_s)

    def replicas_with_queue(self, now_s: float) -> int:
        """Return the number of ready replicas whose own queue lasts until an ordered replica is ready.

        New requests go to the replicas with the shortest queues. If these cannot serve them, all have a
        queue.
        """
        if self.of_replicas is None:
            return self.ready
        each = self.capacity.most_rps * self.startup_s
        spare = self.capacity.most_rps * self._served_by_starting_s(now_s)
        spare += sum(max(0.0, each - number) for number in self.of_replicas)
        lasting = sum(number > each for number in self.of_replicas)
        return lasting if spare >= self.rate_rps * self.startup_s else self.ready

    def replicas(self, now_s: float) -> int:
        """Return the number of replicas to add for the backlog."""
        backlog = self.backlog(now_s)
        if not self.late_cost or not self.startup_s or backlog <= self.capacity.max_batch * self.desired:
            return 0
        if self.is_common:
            return self._for_common_queue(backlog)
        return self._for_own_queues(backlog, self.replicas_with_queue(now_s)) if self.is_long else 0

    def _for_common_queue(self, backlog: float) -> int:
        """Return the number nearest to the least cost: x = √(B (κ λ μ - e) / S) (docs/loop.md, eq. L4)."""
        gain = self.late_price_s * self.rate_rps * self.capacity.most_rps - self.surplus_rps
        if gain <= 0:
            return 0
        speed_rps = sqrt(backlog * gain / self.startup_s)
        return max(0, ceil((speed_rps - self.surplus_rps) / self.capacity.most_rps - 0.5))

    def _for_own_queues(self, backlog: float, queued: int) -> int:
        """Return the number that takes all new requests, if this costs less than their delay.

        New replicas cannot serve the queues of others (docs/loop.md, eq. L5).
        """
        missing = ceil(self.rate_rps / self.capacity.within_rps - ROUNDING) - (self.desired - queued)
        if missing <= 0 or not queued:
            return 0
        drain_s = backlog / self.surplus_rps if self.surplus_rps > 0 else OVERLOADED_S
        late = self.late_price_s * self.rate_rps * drain_s
        cost_s = missing * (self.startup_s + backlog / (queued * self.capacity.most_rps))
        return missing if late > cost_s else 0
