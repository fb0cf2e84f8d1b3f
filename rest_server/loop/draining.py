"""Backlogs: the part of the waiting requests that needs more replicas than the arrivals need."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from optimizer.candidates.measuring import stable_rates_of
from optimizer.candidates.pairs import arrays_of
from optimizer.plan import Plan
from optimizer.plan.rows import pool_pairs
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE
from rest_server.loop.loads import EstimatedLoad


@dataclass(frozen=True, slots=True)
class PlannedReplicas:
    """Planned replicas of a server, on all accelerators together."""

    for_rate: int
    """Number of replicas that serve the expected arrivals within their targets."""
    for_backlog: int = 0
    """Number of additional replicas that serve the waiting requests within the drain time."""


def planned_replicas(plan: Plan) -> dict[str, int]:
    """Return the number of replicas of each server in a plan."""
    return {name: sum(pool.num_replicas for pool in pools) for name, pools in plan.allocations.items()}


def with_target_shares(
    loads: Mapping[str, EstimatedLoad], system: System, plan: Plan
) -> dict[str, EstimatedLoad]:
    """Return loads in which servers with a backlog have the target share that a plan gives them.

    Args:
        system: the planned system.
        plan: its plan for the expected rates.
    """
    estimated_loads = dict(loads)
    queued = [name for name, load in loads.items() if load.backlog_rps > 0]
    pools = [(name, pool) for name in queued for pool in plan.allocations.get(name, ()) if pool.num_replicas]
    if not pools:
        return estimated_loads
    arrays = arrays_of(system)
    pairs, _ = pool_pairs(arrays, pools)
    stable_rps = stable_rates_of(arrays, pairs)
    within: dict[str, float] = {}
    at_most: dict[str, float] = {}
    for (name, pool), each_rps in zip(pools, stable_rps.tolist(), strict=True):
        within[name] = within.get(name, 0.0) + pool.max_arrival_rate_rpm / SECONDS_PER_MINUTE
        at_most[name] = at_most.get(name, 0.0) + each_rps * pool.num_replicas
    for name, rate_rps in within.items():
        share = min(1.0, rate_rps / at_most[name]) if at_most[name] > 0 else 1.0
        estimated_loads[name] = replace(loads[name], target_share=share)
    return estimated_loads


def with_backlogs(system: System, loads: Mapping[str, EstimatedLoad]) -> System:
    """Return a system whose planned rates include the part of each backlog that needs more replicas."""
    changed = {}
    for name, load in loads.items():
        factor = load.planned_rps / load.rate_rps if load.rate_rps else 1.0
        if factor > 1:
            server = system.servers[name]
            stated = server.current.load
            rate_rpm = stated.arrival_rate_rpm * factor
            changed[name] = server.with_load(stated.model_copy(update={"arrival_rate_rpm": rate_rpm}))
    return system.with_planned(changed)
