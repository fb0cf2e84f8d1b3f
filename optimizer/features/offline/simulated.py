"""Simulates offline work: all requests are present at the start, and the completion time is measured."""

import math
from dataclasses import dataclass, replace

import numpy as np

from optimizer.candidates.arrays import profile_of
from optimizer.kinds.simulated import open_load
from optimizer.kinds.table import kind_of_profile
from optimizer.plan import Plan, Pool
from optimizer.simulation.replicas import Effort, SimulatedReplica, run_replica
from optimizer.simulation.summary import MIN_REQUESTS
from optimizer.simulation.workload import Backlog
from optimizer.spec.system import System

MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True)
class OfflineRun:
    """Share of a server's offline work that one replica of a pool processes."""

    requests: float
    load: Backlog
    replica: SimulatedReplica

    def finishes_h(self, effort: Effort, stream: int) -> float:
        """Simulate the completion time of the replica's work [h]; extrapolate if there are many requests."""
        count = min(max(math.ceil(self.requests), MIN_REQUESTS), effort.requests)
        (run,) = run_replica(self.load, self.replica, replace(effort, requests=count, runs=1), stream)
        return float(np.nanmax(run.last_ms)) * self.requests / count / MS_PER_HOUR


def offline_run(system: System, plan: Plan, name: str, pool: Pool) -> OfflineRun | None:
    """Return the offline work of one replica of a pool; None if the server has no offline work.

    Pools share the work in proportion to their maximum rates, so they finish together.
    """
    server = system.servers[name]
    if server.deadline is None:
        return None
    together = sum(other.max_arrival_rate_rpm for other in plan.allocations[name])
    patient = server.model_copy(update={"max_queue_size": None})  # offline requests can wait
    profile, load = profile_of(system, server, pool.accelerator), open_load(server.current.load, 1.0)
    return OfflineRun(
        requests=server.deadline.requests * pool.max_arrival_rate_rpm / together / pool.num_replicas,
        load=Backlog(load.in_lengths, load.out_lengths),
        replica=kind_of_profile(profile).replica(patient, profile, pool.max_batch, pool),
    )
