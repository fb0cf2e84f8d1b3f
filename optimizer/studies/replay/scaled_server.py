"""Policy of the control loop for one server with one pool, by the functions of the loop but without a solver.

So a day of periods of 15 s takes a second, and many days and settings can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from optimizer.schema import Server
from optimizer.stabilisation.arrivals import ArrivalCount
from optimizer.stabilisation.backlog import Queue, ReplicaCapacity, starting_times
from optimizer.stabilisation.decisions import (
    Observation,
    ReplicaStatus,
    ReplicaTarget,
    ServerDecision,
    TargetReason,
)
from optimizer.stabilisation.demand import DemandMemory, ServerDemand
from optimizer.stabilisation.forecast import ForecastSettings
from optimizer.stabilisation.pools import Recommendation, remembered, ruled
from optimizer.stabilisation.rules import FOR_COUNTS, Rules
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE

ON = "pool"
"""Name of the pool's accelerator."""
SERVER = Server.model_validate({"name": "server", "class": "class", "model": "model"})
"""Server that stands for the scaled one; the rules use only its name."""


@dataclass(slots=True)
class ScaledServer:
    """A server under the policy, with the state that the policy keeps."""

    capacity: ReplicaCapacity
    startup_s: float
    """Start-up time of a replica [s]."""
    most: int
    """Maximum number of replicas."""
    is_common: bool = True
    """Whether all replicas serve one queue; otherwise each replica has its own."""
    late_cost: float = 20.0
    """Cost of a late request, in costs of serving one request."""
    headroom: float = 0.0
    """Headroom as a share of the load."""
    period_s: float = 15.0
    """Time between two decisions [s]."""
    rules: Rules = FOR_COUNTS
    settings: ForecastSettings | None = field(default_factory=ForecastSettings)
    """Settings of the forecast; None for no forecast."""
    memory: DemandMemory = field(default_factory=DemandMemory)
    _decision: ServerDecision | None = None

    def replicas(
        self,
        now_s: float,
        arrived: float,
        waiting: float,
        replicas: ReplicaStatus,
        of_replicas: Sequence[float] | None = None,
    ) -> int:
        """Return the desired replicas after a period.

        Args:
            now_s: time [s].
            arrived: number of requests that arrived in the period.
            waiting: number of waiting requests.
            replicas: existing replicas.
            of_replicas: number of waiting requests of each ready replica, if known.
        """
        count = ArrivalCount(now_s, self.period_s, max(0.0, arrived))
        self.memory = self.memory.after(count, self.startup_s, self.settings)
        ahead_s = self.startup_s + self.period_s
        demand = self.memory.at(ahead_s, self.settings, self.startup_s)
        desired = replicas.ready + replicas.pending
        base, decision, recommended = self._base(now_s, demand, replicas)
        past = () if self._decision is None else self._decision.past
        starting_s = starting_times(past, ON, replicas.pending, self.startup_s, now_s)
        queue = Queue(
            waiting, demand.now.rate_rps, max(base, desired), replicas.ready, starting_s, self.startup_s,
            self.late_cost, self.is_common, of_replicas, self.capacity,
        )  # fmt: skip
        extra = queue.replicas(now_s)
        wanted = min(self.most, queue.desired + extra if queue.is_long or extra else base)
        done = replace(decision, targets={ON: replace(decision.targets[ON], replicas=wanted)})
        self._decision = remembered(self.rules, done, recommended, now_s)
        return wanted

    def planned(self, rate_rps: float) -> int:
        """Return the replicas that serve a rate [requests/s] within the targets."""
        number = ceil(rate_rps * (1 + self.headroom) / self.capacity.within_rps - ROUNDING)
        return min(self.most, max(1, number))

    def _base(
        self, now_s: float, demand: ServerDemand, replicas: ReplicaStatus
    ) -> tuple[int, ServerDecision, Mapping[str, int]]:
        """Return the replicas without a backlog, the last decision, and the recommendation of this period."""
        rate_rpm, load_rpm = (
            SECONDS_PER_MINUTE * rate_rps for rate_rps in (self.capacity.within_rps, demand.rate_rps)
        )
        target = ReplicaTarget(self.planned(demand.rate_rps), TargetReason.unchanged, 1, rate_rpm)
        there = replace(target, replicas=replicas.ready + replicas.pending)
        last = replace(self._decision or ServerDecision({}, 0.0), targets={ON: there})
        may_use = frozenset({ON})
        wanted = Recommendation(SERVER, {ON: target}, load_rpm, load_rpm, None, may_use)
        name = SERVER.name
        seen = Observation(now_s, replicas={name: {ON: replicas}}, demands={name: demand})
        way = ruled(wanted, self.rules, last, seen, {}, 0.0)
        return way.targets[ON].replicas, last, way.recommended
