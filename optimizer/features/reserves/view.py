"""Determines which servers of a plan have their reserve, and its cost; no other module decides this."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates.arrays import ReserveArrays
from optimizer.features.reserves.uses import ReserveUse
from optimizer.plan.unneeded import dearest_first, unneeded_replicas
from optimizer.schema.pools import Pool
from optimizer.spec.streams import members_of
from optimizer.spec.system import System
from optimizer.units import SECONDS_PER_MINUTE


def reserve_uses(
    system: System,
    pools: Mapping[str, Sequence[Pool]],
    reserve: ReserveArrays,
    loads_rps: FloatArray,
    short: Collection[str],
    elsewhere: Collection[str],
    has_reserve: Mapping[str, bool],
) -> tuple[ReserveUse, ...]:
    """Return the reserves of all servers that require one, whether they are served or not.

    Args:
        pools: pools by planned server.
        reserve: the reserves that servers require.
        loads_rps: loads of servers [requests/s], shape (S,).
        short: servers that are not served in full; they have no reserve.
        elsewhere: servers that rent or are on shared cards; they require no reserve.
        has_reserve: whether each server has its reserve, by name.
    """
    uses, names = [], [*system.servers]
    for s in np.flatnonzero(reserve.wanted).tolist():
        name, load_rpm = names[s], float(loads_rps[s]) * SECONDS_PER_MINUTE
        server, of_server = system.servers[name], pools.get(name, ())
        if name in elsewhere:
            continue
        if members_of(server) != (server,):
            load_rpm = sum(pool.arrival_rate_rpm for pool in of_server)
        uses.append(
            ReserveUse(
                server=name,
                has_reserve=bool(of_server) and name not in short and has_reserve.get(name, False),
                headroom_wanted=float(reserve.headroom_share[s]),
                spare_replicas=server.spare_replicas,
                availability_target=server.availability_target,
                cost_cents_per_h=unneeded_cost(of_server, load_rpm, server.min_num_replicas),
            )
        )
    return tuple(uses)


def unneeded_cost(pools: Sequence[Pool], load_rpm: float, least: int) -> float:
    """Return the cost of the replicas that the load does not need [cents/h] (eq. 146)."""
    unneeded, cost = unneeded_replicas(pools, load_rpm, least), 0.0
    for pool in dearest_first(pools):
        cost += unneeded[pool.accelerator] * pool.cost_cents_per_h / pool.num_replicas
    return cost
