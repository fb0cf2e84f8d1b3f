"""Prefill and decode pools of a running fleet: which of them run, and which a plan uses."""

from collections.abc import Mapping

from optimizer.features.disaggregation.streams import (
    RolePool,
    current_roles,
    owner_of_role,
    role_names,
    wholes_with_roles,
    with_role_allocations,
)
from optimizer.plan import Plan
from optimizer.schema import Server
from optimizer.schema.current_pools import of_replicas
from optimizer.spec.system import System
from optimizer.stabilisation.decisions import Decisions, Observation, ServerDecision
from optimizer.stabilisation.keeping import Planner
from optimizer.stabilisation.loads import LoadEstimate
from optimizer.stabilisation.running import Running


def with_running_roles(system: System, last: Decisions | None, seen: Observation) -> System:
    """Return the system in which servers run the pools of the last decisions, or else the reported ones.

    Servers of which neither is known run the pools that the system states.
    """
    changed: dict[str, Server] = {}
    for name, server in system.servers.items():
        running = {
            one: pools for one in role_names(server) if (pools := _running(one, last, seen)) is not None
        }
        if running:
            allocations = {one: of_replicas(pools) for one, pools in running.items()}
            changed[name] = with_role_allocations(server, allocations, "current")
    return system.with_planned(changed)


def _running(name: str, last: Decisions | None, seen: Observation) -> Mapping[str, int] | None:
    if last is not None and name in last.servers:
        return last.servers[name].replicas
    reported = seen.replicas.get(name)
    return None if reported is None else {on: one.ready + one.pending for on, one in reported.items()}


def with_chosen_roles(system: System, planner: Planner) -> System:
    """Return the system with only the pools that a plan of the whole system uses.

    A server that cannot be served keeps the pools that run.

    Raises:
        SolverError: the solver failed.
    """
    if not wholes_with_roles(system.servers):
        return system
    plan = planner.solve(system, dict(system.kept), set()).plan
    now = next(current_roles(system.servers))
    unserved = {name: now[name] for name, use in plan.disaggregation.items() if not use.pools and name in now}
    staying = {name: choice for name, choice in unserved.items() if name in plan.left_out}
    return system.partitioned({**plan.partitions, **staying})


def starts_in_other_roles(system: System, plan: Plan, running: Running, name: str) -> bool:
    """Return whether other pools of a server will replace one that a plan does not use, but are not ready."""
    server = system.servers[name]
    if server.disaggregation is None or server.current.load.arrival_rate_rpm:
        return False
    for other, one in system.servers.items():
        if owner_of_role(one) == owner_of_role(server) and one.current.load.arrival_rate_rpm:
            pools, there = plan.serving_pools_of(other), running.get(other, {})
            ready = {on: pool.ready for on, pool in there.items()}
            if not pools or any(ready.get(pool.accelerator, 0) < pool.num_replicas for pool in pools):
                return True
    return False


def last_estimate(last: Decisions | None, server: Server) -> ServerDecision | None:
    """Return the last decision of a server, or of its pools, that has an estimate of the load."""
    names = (server.name, *role_names(server)) if last is not None else ()
    decisions = [last.servers[name] for name in names if last is not None and name in last.servers]
    return next((one for one in decisions if one.load is not None), decisions[0] if decisions else None)


def estimates_of_roles(system: System, estimates: Mapping[str, LoadEstimate]) -> dict[str, LoadEstimate]:
    """Return estimates of loads by planned server: pools have that of their server, which then has none."""
    pools = {name: one for name, one in system.servers.items() if isinstance(one, RolePool) and one.has_load}
    owners = {name: owner_of_role(one) for name, one in pools.items()}
    return {
        **{name: one for name, one in estimates.items() if name not in owners.values()},
        **{name: estimates[owner] for name, owner in owners.items() if owner in estimates},
    }
