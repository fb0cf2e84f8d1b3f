"""A plan held against a simulation: every pool at its load, one replica standing for all of the pool."""

import math
from collections.abc import Callable
from functools import partial

from optimizer.parallel import as_done
from optimizer.plan import Plan
from optimizer.simulation.replicas import Effort
from optimizer.spec.system import System
from optimizer.studies.simulation.document import SimulatedPool, Simulation
from optimizer.studies.simulation.pools import PoolRun, pool_runs, simulate_pool

Progress = Callable[[int, int], None]
"""Told how many of how many pools are done."""


def simulate_plan(system: System, plan: Plan, effort: Effort, progress: Progress | None = None) -> Simulation:
    """Simulate every pool of a plan that has a load.

    Args:
        system: what was planned.
        plan: its plan.
        effort: how much to simulate.
        progress: told of every pool that is done, and at the beginning of none.

    Raises:
        SpecError: the plan is not for this system.
    """
    return simulation_of(pool_runs(system, plan), effort, progress)


def simulation_of(runs: list[PoolRun], effort: Effort, progress: Progress | None = None) -> Simulation:
    """Simulate pools, as many at once as there are cores; the answer does not depend on how many."""
    pools: list[SimulatedPool] = []
    if progress is not None:
        progress(0, len(runs))
    for pool in as_done(partial(simulate_pool, effort=effort), runs):
        pools.append(pool)
        if progress is not None:
            progress(len(pools), len(runs))
    return simulation_from(runs, pools, effort)


def simulation_from(runs: list[PoolRun], pools: list[SimulatedPool], effort: Effort) -> Simulation:
    """Return the sum of the simulated pools."""
    return Simulation(
        requests=effort.requests,
        seed=effort.seed,
        holds=all(pool.holds for pool in pools),
        offered_rps=math.fsum(run.rate_rps * run.pool.num_replicas for run in runs),
        goodput_rps=math.fsum(pool.goodput_rps for pool in pools),
        pools=tuple(pools),
    )
