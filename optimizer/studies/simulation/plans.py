"""Simulates a plan: one replica of each pool, at its share of the pool's load.

Prefill and decode pools of a server are simulated together, with all of their replicas.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial

from optimizer.parallel import Progress, as_done, ignore_progress
from optimizer.plan import Plan
from optimizer.simulation.replicas import Effort
from optimizer.simulation.workload import TraceLoad
from optimizer.spec.system import System
from optimizer.studies.simulation.pools import PoolRun, pool_runs, simulate_together, together
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
    groups = together(runs)
    simulated = as_done(partial(simulate_together, effort=effort), groups, progress)
    return simulation_from(runs, in_order(runs, groups, simulated), effort)


def in_order(
    runs: Sequence[PoolRun], groups: Sequence[Sequence[PoolRun]], simulated: Iterable[Sequence[SimulatedPool]]
) -> list[SimulatedPool]:
    """Return the simulated pools of groups in the order of their runs."""
    of_run = {
        id(run): pool
        for group, pools in zip(groups, simulated, strict=True)
        for run, pool in zip(group, pools, strict=True)
    }
    return [of_run[id(run)] for run in runs]


def simulation_from(runs: list[PoolRun], pools: list[SimulatedPool], effort: Effort) -> Simulation:
    """Combine the simulated pools of a plan to a simulation document."""
    recorded = [len(run.load.requests) for run in runs if isinstance(run.load, TraceLoad)]
    return Simulation(
        requests=recorded[0] if recorded else effort.requests,
        traced=bool(recorded),
        seed=effort.seed,
        holds=all(pool.holds for pool in pools),
        offered_rps=math.fsum(run.counted_rps for run in runs),
        goodput_rps=math.fsum(
            pool.goodput_rps for run, pool in zip(runs, pools, strict=True) if run.counted_rps
        ),
        pools=tuple(pools),
    )
