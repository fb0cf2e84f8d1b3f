"""Versions of split servers in a plan: shares, replicas and costs, compared with one version alone."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from optimizer.candidates import Candidates
from optimizer.candidates.arrays import headroom_wanted
from optimizer.candidates.measuring import COUNT_TOLERANCE
from optimizer.candidates.reserve import least_available
from optimizer.plan.document import OneVersion, Pool, ReserveUse, SplitUse, Unserved, VersionUse
from optimizer.solvers.problem import Problem
from optimizer.spec.versions import Version, whole_servers
from optimizer.units import SECONDS_PER_MINUTE


def split_uses(
    candidates: Candidates,
    problem: Problem,
    pools: Mapping[str, Sequence[Pool]],
    unserved: Iterable[Unserved],
    reserves: Iterable[ReserveUse],
) -> dict[str, SplitUse]:
    """Return the versions of each split server, by its name.

    Args:
        candidates: candidates of the system.
        problem: the planning problem.
        pools: pools by planned server.
        unserved: servers that are not served in full.
        reserves: reserves of servers that are served in full.
    """
    servers, found = candidates.system.servers, {}
    short = {item.server for item in unserved} | {item.server for item in reserves if not item.has_reserve}
    for name, whole in whole_servers(servers).items() if _has_versions(servers.values()) else ():
        if not whole.split:
            continue
        versions = _versions(servers.values(), name)
        uses = tuple(
            _use(versions[share.model], share.weight, pools.get(versions[share.model].name, ()))
            for share in whole.split
        )
        main = versions[whole.model]
        complete = not any(use.server in short for use in uses)
        one = _one_version(candidates, problem, main, pools.get(main.name, ())) if complete else None
        found[name] = SplitUse(
            model=whole.model,
            versions=uses,
            one_version=one,
            extra_cost_cents_per_h=_extra_cost(uses, one),
            roll_back=main.name not in short if main.roll_back else None,
        )
    return found


def _extra_cost(uses: Sequence[VersionUse], one: OneVersion | None) -> float | None:
    if one is None:
        return None
    return math.fsum(use.cost_cents_per_h for use in uses) - one.cost_cents_per_h


def _has_versions(servers: Iterable[object]) -> bool:
    return any(isinstance(server, Version) for server in servers)


def _versions(servers: Iterable[object], name: str) -> dict[str, Version]:
    """Return the versions of a server by model."""
    mine = (server for server in servers if isinstance(server, Version) and server.whole.name == name)
    return {server.model: server for server in mine}


def _use(version: Version, weight: float, pools: Sequence[Pool]) -> VersionUse:
    """Return a version with the fractional number of replicas that its load needs (eq. 214)."""
    shares = [pool.arrival_rate_rpm / pool.max_arrival_rate_rpm for pool in pools]
    return VersionUse(
        server=version.name,
        model=version.model,
        weight=weight,
        arrival_rate_rpm=version.current.load.arrival_rate_rpm,
        num_replicas=sum(pool.num_replicas for pool in pools),
        needed_replicas=math.fsum(p.num_replicas * share for p, share in zip(pools, shares, strict=True)),
        cost_cents_per_h=math.fsum(pool.cost_cents_per_h for pool in pools),
        unused_cost_cents_per_h=math.fsum(
            pool.cost_cents_per_h * (1 - share) for pool, share in zip(pools, shares, strict=True)
        ),
    )


def _one_version(
    candidates: Candidates, problem: Problem, main: Version, pools: Sequence[Pool]
) -> OneVersion | None:
    """Return the replicas of the main version that would carry all load with the same reserve (eq. 215).

    They are on the cheapest accelerator that has a pool of this version. None without such a pool or load.
    """
    system, arrays = candidates.system, candidates.arrays
    servers = list(system.servers.values())
    rates = [
        problem.load_rps[s]
        for s, server in enumerate(servers)
        if isinstance(server, Version) and server.whole.name == main.whole.name
    ]
    load_rpm = math.fsum(rates) * SECONDS_PER_MINUTE
    if not load_rpm:
        return None
    grown = load_rpm * (1 + headroom_wanted(system, main.model_copy(update={"roll_back": False})))
    s, options = arrays.server_names.index(main.name), []
    for pool in pools:
        each = pool.max_arrival_rate_rpm / pool.num_replicas
        needed = max(math.ceil(grown / each * (1 - COUNT_TOLERANCE)), main.min_num_replicas, 1)
        a = arrays.accelerator_names.index(pool.accelerator)
        there = arrays.profiles.availability[arrays.profile_of[[s], [a]]]
        target = np.array([main.availability_target or 0.0])
        available = least_available(np.array([needed]), there, target)[0]
        if math.isfinite(available):
            count = max(needed + main.spare_replicas, int(available))
            options.append((count * pool.cost_cents_per_h / pool.num_replicas, pool.accelerator, count))
    if not options:
        return None
    cost, accelerator, count = min(options)
    return OneVersion(accelerator=accelerator, num_replicas=count, cost_cents_per_h=cost)
