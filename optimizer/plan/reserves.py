"""Reserves in a plan: the servers that have theirs, and the cost."""

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.arrays import BoolArray
from optimizer.candidates import Candidates
from optimizer.plan.document import Pool, ReserveUse
from optimizer.solvers.levels import without_reserve
from optimizer.solvers.problem import Problem
from optimizer.solvers.solution import Solution
from optimizer.units import SECONDS_PER_MINUTE

TOLERANCE = 1e-9
"""Relative shortfall of a rate that counts as rounding."""


def reserve_uses(
    candidates: Candidates,
    problem: Problem,
    solution: Solution,
    pools: Mapping[str, Sequence[Pool]],
    served: BoolArray,
) -> tuple[ReserveUse, ...]:
    """Return the reserves of the fully served servers that require one."""
    reserve, system = candidates.arrays.servers.reserve, candidates.system
    lacking = without_reserve(problem, solution.replicas)
    uses = []
    for s in np.flatnonzero(reserve.wanted & served).tolist():
        name = candidates.arrays.server_names[s]
        server, mine = system.servers[name], pools.get(name, ())
        if not mine:
            continue  # the server rents
        load_rpm = float(problem.load_rps[s]) * SECONDS_PER_MINUTE
        if problem.is_queue[s]:
            load_rpm = sum(pool.arrival_rate_rpm for pool in mine)
        uses.append(
            ReserveUse(
                server=name,
                has_reserve=not lacking[s],
                headroom_wanted=float(reserve.headroom_share[s]),
                spare_replicas=server.spare_replicas,
                availability_target=server.availability_target,
                cost_cents_per_h=unneeded_cost(mine, load_rpm, server.min_num_replicas),
            )
        )
    return tuple(uses)


def unneeded_cost(pools: Sequence[Pool], load_rpm: float, least: int) -> float:
    """Return the cost of the replicas that the load alone does not need [cents/h] (eq. 146).

    Replicas are removed from the pools with the highest cost per request first, as long as the others carry
    the load and meet the server's minimum.
    """
    each = {pool.accelerator: pool.max_arrival_rate_rpm / pool.num_replicas for pool in pools}
    order = sorted(
        pools, key=lambda pool: (-pool.cost_cents_per_h / pool.max_arrival_rate_rpm, pool.accelerator)
    )
    spare = sum(pool.max_arrival_rate_rpm for pool in pools) - load_rpm * (1 - TOLERANCE)
    beyond, cost = sum(pool.num_replicas for pool in pools) - max(least, 1), 0.0
    for pool in order:
        count = max(min(int(spare / each[pool.accelerator]), beyond, pool.num_replicas), 0)
        spare -= count * each[pool.accelerator]
        beyond -= count
        cost += count * pool.cost_cents_per_h / pool.num_replicas
    return cost
