"""Check the names in a plan against its system, and that each server occurs once."""

from collections import Counter
from collections.abc import Collection, Iterator

from optimizer.kinds.laws import laws_known
from optimizer.plan.document import Plan, Pool
from optimizer.spec.provenance import Provenance
from optimizer.spec.schema import Server
from optimizer.spec.system import System


def check_names(plan: Plan, system: System) -> list[str]:
    """Return missing, unknown and duplicate names; the other checks rely on valid names."""
    return [
        *_servers(plan, system),
        *_accelerators(plan, system),
        *_rate_factors(plan, system),
        *_kept(plan, system),
    ]


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
        ("changes", [item.server for item in plan.changes]),
        ("rented", [item.server for item in plan.rented]),
        ("capacity", [item.type for item in plan.capacity]),
    ):
        for name, count in Counter(names).items():
            if count > 1:
                yield f"{name}: {count} times in {what}"


def _renting(plan: Plan, system: System, known: Collection[str]) -> Iterator[str]:
    for name in sorted({item.server for item in plan.rented} - set(known)):
        yield f"{name}: rents, but is not in the plan"
    for name in plan.not_rented:
        if name not in system.not_rented and (name not in known or system.servers[name].external is None):
            yield f"{name}: in notRented, but has no external service"


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
            else:
                yield from _origin(name, system.servers[name], pool, profile.provenance)


def _origin(name: str, server: Server, pool: Pool, given: Provenance | None) -> Iterator[str]:
    """Yield errors in a pool's information on measured token times."""
    named = None if given is None else given.of_pair(server.model, pool.accelerator)
    if pool.provenance != named:
        yield f"{name}: on {pool.accelerator} the provenance differs from that of its profile"
    load, inside = server.current.load, pool.utilization * pool.max_batch
    missed = () if given is None else tuple(given.domain.misses(load.in_tokens, load.out_tokens, inside))
    if len(pool.outside) != len(missed):
        yield f"{name}: on {pool.accelerator} {len(missed)} of its figures are outside what was measured"


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
