"""Reserves in a plan: which servers have theirs, and the cost. No other module decides this."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from optimizer.arrays import BoolArray, FloatArray, IntArray
from optimizer.candidates import Candidates
from optimizer.candidates.arrays import ReserveArrays
from optimizer.candidates.table import Source
from optimizer.features.reserves.uses import ReserveUse
from optimizer.schema.pools import Pool
from optimizer.solvers.levels import served_in_full, without_reserve
from optimizer.solvers.problem import Problem
from optimizer.spec.streams import members_of
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING
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
    """Return the reserves of the servers that require one, served or not.

    Args:
        system: the system.
        pools: pools by planned server.
        reserve: the reserves that servers require.
        loads_rps: loads of servers [requests/s], shape (S,).
        short: servers that are not served in full, which have no reserve.
        elsewhere: servers that rent or are on shared cards, and require no reserve there.
        has_reserve: whether a server has its reserve.
    """
    uses, names = [], [*system.servers]
    for s in np.flatnonzero(reserve.wanted).tolist():
        name, load_rpm = names[s], float(loads_rps[s]) * SECONDS_PER_MINUTE
        server, mine = system.servers[name], pools.get(name, ())
        if name in elsewhere:
            continue
        if members_of(server) != (server,):
            load_rpm = sum(pool.arrival_rate_rpm for pool in mine)
        uses.append(
            ReserveUse(
                server=name,
                has_reserve=bool(mine) and name not in short and has_reserve.get(name, False),
                headroom_wanted=float(reserve.headroom_share[s]),
                spare_replicas=server.spare_replicas,
                availability_target=server.availability_target,
                cost_cents_per_h=unneeded_cost(mine, load_rpm, server.min_num_replicas),
            )
        )
    return tuple(uses)


def reserves_held(
    candidates: Candidates, problem: Problem, replicas: IntArray
) -> tuple[BoolArray, BoolArray]:
    """Return masks of the servers that require a reserve and of those that have it, shapes (S,).

    A server that is not served in full has no reserve. One that rents or is on shared cards requires none.
    """
    table, servers = problem.table, len(candidates.arrays.server_names)
    elsewhere = table.source != Source.replicas
    required = problem.reserve.wanted & ~problem.has_some_of((replicas > 0) & elsewhere)
    has = required & served_in_full(problem, replicas) & ~without_reserve(problem, replicas)
    return required[:servers], has[:servers]


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
