"""Computes the versions of split servers in a plan: shares, replicas and costs, compared with one version."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from optimizer.arrays import grouped
from optimizer.candidates.arrays import headroom_wanted, server_loads_rps
from optimizer.features.reserves.offers import availability_of, least_available
from optimizer.features.reserves.uses import ReserveUse
from optimizer.features.versions.streams import Version
from optimizer.features.versions.uses import OneVersion, SplitUse, VersionUse
from optimizer.schema.pools import Pool
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE


def split_uses(
    system: System,
    pools: Mapping[str, Sequence[Pool]],
    unserved: Collection[str],
    reserves: Iterable[ReserveUse],
) -> dict[str, SplitUse]:
    """Return the plan's entry for each split server, by its name.

    Args:
        pools: pools by planned server.
        unserved: names of servers that are not served in full.
        reserves: the plan's entries for reserves.
    """
    loads, result = zip(system.servers.values(), server_loads_rps(system).tolist(), strict=True), {}
    parts = grouped((one.whole.name, (one, rate)) for one, rate in loads if isinstance(one, Version))
    short = {*unserved, *(item.server for item in reserves if not item.has_reserve)}
    for name in sorted(parts):
        whole = parts[name][0][0].whole
        versions = {version.model: version for version, _ in parts[name]}
        uses = tuple(
            _use(versions[share.model], share.weight, pools.get(versions[share.model].name, ()))
            for share in whole.split or ()
        )
        main = versions[whole.model]
        complete = not any(use.server in short for use in uses)
        load_rpm = math.fsum(rate for _, rate in parts[name]) * SECONDS_PER_MINUTE
        one = _one_version(system, main, pools.get(main.name, ()), load_rpm) if complete else None
        result[name] = SplitUse(
            model=whole.model,
            versions=uses,
            one_version=one,
            extra_cost_cents_per_h=_extra_cost(uses, one),
            roll_back=main.name not in short if main.roll_back else None,
        )
    return result


def _extra_cost(uses: Sequence[VersionUse], one: OneVersion | None) -> float | None:
    if one is None:
        return None
    return math.fsum(use.cost_cents_per_h for use in uses) - one.cost_cents_per_h


def _use(version: Version, weight: float, pools: Sequence[Pool]) -> VersionUse:
    """Return the plan's entry for a version, with its fractional number of needed replicas (eq. 214)."""
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


def _one_version(system: System, main: Version, pools: Sequence[Pool], load_rpm: float) -> OneVersion | None:
    """Return the replicas of the main version that would carry all load with the same reserve (eq. 215).

    They are on the cheapest accelerator that has a pool of this version. The result is None if there is no
    such pool or no load.
    """
    if not load_rpm:
        return None
    grown = load_rpm * (1 + headroom_wanted(system, main.model_copy(update={"roll_back": False})))
    options = []
    for pool in pools:
        each = pool.max_arrival_rate_rpm / pool.num_replicas
        needed = max(math.ceil(grown / each * (1 - ROUNDING)), main.min_num_replicas, 1)
        there = np.array([availability_of(system, main.model, pool.accelerator)])
        target = np.array([main.availability_target or 0.0])
        available = least_available(np.array([needed]), there, target)[0]
        if math.isfinite(available):
            count = max(needed + main.spare_replicas, int(available))
            options.append((count * pool.cost_cents_per_h / pool.num_replicas, pool.accelerator, count))
    if not options:
        return None
    cost, accelerator, count = min(options)
    return OneVersion(accelerator=accelerator, num_replicas=count, cost_cents_per_h=cost)
