"""Does a plan speak of the servers and accelerators of its system, and of each server once?"""

from collections import Counter
from collections.abc import Iterator

from optimizer.plan.document import Plan
from optimizer.spec.system import System
from optimizer.timing import laws_known


def check_names(plan: Plan, system: System) -> list[str]:
    """Return which names are missing, unknown or repeated; the other checks look up every name."""
    return [*_servers(plan, system), *_accelerators(plan, system)]


def _servers(plan: Plan, system: System) -> Iterator[str]:
    partly = {item.server for item in plan.unserved if item.served_fraction > 0}
    wholly = {item.server for item in plan.unserved} - partly
    known = plan.allocations.keys() | wholly
    for name in system.servers:
        if name not in known:
            yield f"{name}: not in the plan"
    for name in sorted(known | partly):
        if name not in system.servers:
            yield f"{name}: not in the system"
    for name in sorted(plan.allocations.keys() & wholly):
        yield f"{name}: both served and unserved"
    for what, names in (
        ("unserved", [item.server for item in plan.unserved]),
        ("changes", [item.server for item in plan.changes]),
        ("capacity", [item.type for item in plan.capacity]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{name}: {count} times in {what}"


def _accelerators(plan: Plan, system: System) -> Iterator[str]:
    for name, pools in plan.allocations.items():
        if name not in system.servers:
            continue
        model = system.servers[name].model
        for pool in pools:
            profile = system.profiles.get((model, pool.accelerator))
            if profile is None:
                yield f"{name}: no profile of {model} on {pool.accelerator}"
            elif not laws_known(profile) and not profile.is_estimated:
                yield f"{name}: no token times of {model} on {pool.accelerator} are known"
            elif pool.estimated != (system.options.estimates if profile.is_estimated else None):
                yield f"{name}: on {pool.accelerator} estimated is {pool.estimated}, which its profile is not"
