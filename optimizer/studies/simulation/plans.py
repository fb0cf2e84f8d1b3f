"""Simulates a plan: one replica of each pool, at its share of the pool's load."""

import math
from functools import partial

from optimizer.parallel import Progress, as_done, ignore_progress
from optimizer.plan import Plan
from optimizer.simulation.replicas import Effort
from optimizer.simulation.workload import TraceLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, pool_runs, simulate_pool
from optimizer.studies.simulation.simulation_document import SimulatedPool, Simulation


def simulate_pools(
    system: System, plan: Plan, effort: Effort, progress: Progress = ignore_progress
) -> Simulation:
    """Simulate every pool of a plan that has a load.

    Args:
        system: the planned system.
        effort: extent of the simulation.
        progress: called at the start, and after each finished pool.

    Raises:
        SpecError: the plan is not for this system.
    """
    return simulation_of(pool_runs(system, plan), effort, progress)


def simulation_of(runs: list[PoolRun], effort: Effort, progress: Progress) -> Simulation:
    """Simulate pools in parallel, one per core; the result does not depend on the number of cores."""
    return simulation_from(runs, [*as_done(partial(simulate_pool, effort=effort), runs, progress)], effort)


def simulation_from(runs: list[PoolRun], pools: list[SimulatedPool], effort: Effort) -> Simulation:
    """Combine the simulated pools of a plan to a simulation document."""
    recorded = [len(run.load.requests) for run in runs if isinstance(run.load, TraceLoad)]
    return Simulation(
        requests=recorded[0] if recorded else effort.requests,
        traced=bool(recorded),
        seed=effort.seed,
        holds=all(pool.holds for pool in pools),
        offered_rps=math.fsum(run.rate_rps * run.pool.num_replicas for run in runs),
        goodput_rps=math.fsum(pool.goodput_rps for pool in pools),
        pools=tuple(pools),
    )
