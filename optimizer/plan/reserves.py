"""Reserves in a plan: the servers that have theirs, and the cost."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from optimizer.candidates.arrays import reserve_arrays, server_loads_rps
from optimizer.plan.document import Pool, ReserveUse
from optimizer.spec.shared_queues import SharedQueue
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING
from optimizer.units import SECONDS_PER_MINUTE


def reserve_uses(
    system: System,
    pools: Mapping[str, Sequence[Pool]],
    short: Collection[str],
    has_reserve: Mapping[str, bool],
) -> tuple[ReserveUse, ...]:
    """Return the reserves of the fully served servers that require one.

    Args:
        system: the system.
        pools: pools by planned server; servers that rent have none.
        short: servers that are not served in full.
        has_reserve: whether a server has its reserve.
    """
    loads, names = server_loads_rps(system), [*system.servers]
    reserve, uses = reserve_arrays(system, loads), []
    for s in np.flatnonzero(reserve.wanted).tolist():
        name, load_rpm = names[s], float(loads[s]) * SECONDS_PER_MINUTE
        server, mine = system.servers[name], pools.get(name, ())
        if not mine or name in short:
            continue
        if isinstance(server, SharedQueue):
            load_rpm = sum(pool.arrival_rate_rpm for pool in mine)
        uses.append(
            ReserveUse(
                server=name,
                has_reserve=has_reserve.get(name, True),
                headroom_wanted=float(reserve.headroom_share[s]),
                spare_replicas=server.spare_replicas,
                availability_target=server.availability_target,
                cost_cents_per_h=unneeded_cost(mine, load_rpm, server.min_num_replicas),
            )
        )
    return tuple(uses)


def unneeded_cost(pools: Sequence[Pool], load_rpm: float, least: int) -> float:
    """Return the cost of the replicas that the load alone does not need [cents/h] (eq. 146)."""
    unneeded, cost = unneeded_replicas(pools, load_rpm, least), 0.0
    for pool in _dearest_first(pools):
        cost += unneeded[pool.accelerator] * pool.cost_cents_per_h / pool.num_replicas
    return cost


def unneeded_replicas(pools: Sequence[Pool], load_rpm: float, least: int) -> dict[str, int]:
    """Return the replicas that the load alone does not need, by accelerator (eq. 146).

    Replicas are removed from the pools with the highest cost per request first, as long as the others carry
    the load and meet the server's minimum.
    """
    each = {pool.accelerator: pool.max_arrival_rate_rpm / pool.num_replicas for pool in pools}
    spare = sum(pool.max_arrival_rate_rpm for pool in pools) - load_rpm * (1 - ROUNDING)
    beyond, found = sum(pool.num_replicas for pool in pools) - max(least, 1), dict[str, int]()
    for pool in _dearest_first(pools):
        count = max(min(int(spare / each[pool.accelerator]), beyond, pool.num_replicas), 0)
        spare -= count * each[pool.accelerator]
        beyond -= count
        found[pool.accelerator] = count
    return found


def _dearest_first(pools: Sequence[Pool]) -> list[Pool]:
    """Return pools in the order of their cost per request, the highest first."""
    return sorted(
        pools, key=lambda pool: (-pool.cost_cents_per_h / pool.max_arrival_rate_rpm, pool.accelerator)
    )
