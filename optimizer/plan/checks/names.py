"""Checks the names in a plan against its system, and that each server occurs once."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from optimizer.arrays import sorted_by_key
from optimizer.features.views import group_names, placement_names
from optimizer.kinds.laws import laws_known
from optimizer.plan.document import Plan
from optimizer.schema import AllocationData, Server
from optimizer.solvers.problem import topologies_of
from optimizer.spec.streams import has_members, members_of
from optimizer.spec.system import System


def check_names(plan: Plan, system: System) -> list[str]:
    """Return errors for missing, unknown and duplicate names; all other checks rely on valid names."""
    problems = [*group_names(plan, system)]
    if problems:
        return problems
    system = plan.planned_in(system)
    planned = as_planned(plan, system)
    problems = [
        *_servers(plan, planned),
        *_reserves(plan, system),
        *_accelerators(plan, planned),
        *_rate_factors(plan, system),
        *_kept(plan, system),
    ]
    return problems or [*placement_names(plan, system)]


def _servers(plan: Plan, system: System) -> Iterator[str]:
    partly = {item.server for item in plan.unserved if item.served_fraction > 0}
    unserved = {item.server for item in plan.unserved} - partly
    known = plan.allocations.keys() | unserved | (partly & plan.queued_servers)
    for name in system.servers:
        if name not in known:
            yield f"{name}: not in the plan"
    for name in sorted(known | partly):
        if name not in system.servers:
            yield f"{name}: not in the system"
    yield from _renting(plan, system, known)
    for name in sorted(plan.allocations.keys() & unserved):
        yield f"{name}: both served and unserved"
    for what, names in (
        ("unserved", [item.server for item in plan.unserved]),
        ("rented", [item.server for item in plan.rented]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{name}: {count} times in {what}"


def _reserves(plan: Plan, system: System) -> Iterator[str]:
    for name in plan.requires_reserve:
        if name not in system.servers:
            yield f"{name}: in reserves, but not in the system"


def _renting(plan: Plan, system: System, known: Collection[str]) -> Iterator[str]:
    for name in sorted({item.server for item in plan.rented} - set(known)):
        yield f"{name}: in rented, but not in allocations"
    for name in plan.not_rented:
        if name not in system.not_rented and (name not in known or system.servers[name].external is None):
            yield f"{name}: in notRented, but has no external service"


def _accelerators(plan: Plan, system: System) -> Iterator[str]:
    roles = {None, *(topology.role for topology in topologies_of(system) if topology.role)}
    for name, pools in plan.allocations.items():
        if name not in system.servers:
            continue
        model = system.servers[name].model
        for pool in pools:
            if pool.role not in roles:
                yield f"{name}: no replicas with the role {pool.role!r} are planned"
            profile = system.profiles.get((model, pool.accelerator))
            if profile is None:
                yield f"{name}: no profile of {model} on {pool.accelerator}"
            elif not laws_known(profile) and not profile.is_estimated:
                yield f"{name}: no token times of {model} on {pool.accelerator} are known"


def _rate_factors(plan: Plan, system: System) -> Iterator[str]:
    for (name, accelerator), factor in plan.factor_of_pair.items():
        if name not in system.servers or accelerator not in system.accelerators:
            yield f"{name}: a factor on its rate on {accelerator}, which the system does not have"
        elif not 0 <= factor < 1:
            yield f"{name}: the factor on its rate on {accelerator} is {factor:g}, not from 0 to less than 1"


def _kept(plan: Plan, system: System) -> Iterator[str]:
    for item in plan.kept:
        if item.server not in system.servers or item.accelerator not in system.accelerators:
            yield f"{item.server}: kept on {item.accelerator}, which the system does not have"
        elif item.num_replicas < 0:
            yield f"{item.server}: {item.num_replicas} replicas kept on {item.accelerator}"
    for (name, accelerator), count in Counter((item.server, item.accelerator) for item in plan.kept).items():
        if count > 1:
            yield f"{name}: {count} times in kept on {accelerator}"


def as_planned(plan: Plan, system: System) -> System:
    """Return the system, in which queues and routes have only the load that a plan serves."""
    servers = system.as_served(plan.served_rpm)
    if servers is system.servers:
        return system
    alone = {
        part.name: _alone(part)
        for queue in system.servers.values()
        if has_members(queue)
        for part in members_of(queue)
        if any(item.server == part.name for item in plan.unserved)
    }
    together = {**servers, **alone}
    return replace(system, servers=sorted_by_key(together))


def _alone(part: Server) -> Server:
    """Return a member of a queue as a separate server without replicas."""
    changes = {
        "current": AllocationData(load=part.current.load),
        "min_num_replicas": 0,
        "headroom_share": 0.0,
        "spare_replicas": 0,
        "availability_target": None,
        "surge": 0.0,
        "preferred": None,
    }
    return part.model_copy(update=changes)
