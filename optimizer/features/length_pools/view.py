"""Computes the pools by length of a plan: router rules, costs, and those of one pool or several pools."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter

import numpy as np

from optimizer.arrays import grouped
from optimizer.candidates import Candidates
from optimizer.features.length_pools.streams import (
    LengthPool,
    boundary_tokens,
    pool_names,
    shape_names,
    wholes_of,
)
from optimizer.features.length_pools.topology import LengthPoolTopology, PossiblePools
from optimizer.features.length_pools.uses import LengthPoolUse, LengthUse, Reason, SizedPool
from optimizer.plan.document import Plan
from optimizer.schema import Server
from optimizer.schema.pools import Pool
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING
from optimizer.topologies.possible_pools import candidates_of_all_pools


def length_pool_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield errors for missing and unknown servers with pools by length, and for impossible partitions."""
    wholes = wholes_of(system.servers)
    yield from (f"{name}: not in lengthPools" for name in wholes if name not in plan.length_pools)
    unserved = {item.server for item in plan.unserved}
    for name in plan.length_pools:
        partition = plan.partitions[name]
        if name not in wholes:
            yield f"{name}: in lengthPools, but no server with pools by length and load"
            continue
        groups, shapes = pool_names(wholes[name]).values(), shape_names(wholes[name])
        if tuple(one for group in partition for one in group) != shapes or not {*partition} <= {*groups}:
            yield f"{name}: its pools by length must serve {', '.join(shapes)}, in this order and each once"
        elif wholes[name].pools_by_length == "required" and len(partition) < 2 and name not in unserved:
            yield f"{name}: has one pool, but several pools by length are required"


def length_uses(
    system: System,
    pools: Mapping[str, Sequence[Pool]],
    unserved: Collection[str],
    candidates: Candidates | None,
) -> dict[str, LengthUse]:
    """Return the plan's entry for each server with pools by length, by name.

    Args:
        system: the system with only the chosen pools.
        pools: pools by planned server.
        unserved: names of servers that are not served in full.
        candidates: candidates of the system; None sizes all possible pools.
    """
    wholes = wholes_of(system.servers)
    if not wholes:
        return {}
    sized = candidates_of_all_pools(system, wholes, candidates)
    topology = LengthPoolTopology.of(sized, np.zeros(0, np.bool_), len(sized.system.servers))
    assert topology is not None
    parts = grouped(
        (one.whole.name, one)
        for one in system.servers.values()
        if isinstance(one, LengthPool) and one.has_load
    )
    result = {}
    for each in sorted(topology.choices, key=attrgetter("name")):
        together, by_length = _sized(sized, each)
        uses = _pools(sorted(parts[each.name], key=attrgetter("first")), pools)
        result[each.name] = LengthUse(
            pools=uses,
            cost_cents_per_h=math.fsum(use.cost_cents_per_h for use in uses),
            together=together,
            by_length=by_length,
            reason=_reason(wholes[each.name], len(uses), together, by_length, each.name in unserved),
        )
    return result


def _pools(parts: Sequence[LengthPool], pools: Mapping[str, Sequence[Pool]]) -> tuple[LengthPoolUse, ...]:
    """Return the pools of a server with the rule of the router, by ascending prompt length."""
    shapes = [one.current.load.shapes for one in parts]
    below = [*(boundary_tokens(*pair) for pair in pairwise(shapes)), None]
    return tuple(
        LengthPoolUse(
            server=one.name,
            shapes=shape_names(one),
            below_tokens=limit,
            arrival_rate_rpm=one.current.load.arrival_rate_rpm,
            num_replicas=sum(pool.num_replicas for pool in pools.get(one.name, ())),
            cost_cents_per_h=math.fsum(pool.cost_cents_per_h for pool in pools.get(one.name, ())),
        )
        for one, limit in zip(parts, below, strict=True)
    )


def _sized(sized: Candidates, each: PossiblePools) -> tuple[SizedPool | None, tuple[SizedPool, ...]]:
    """Return the cheapest single pool of a server, and its cheapest partition into several."""
    table = sized.table
    cost = np.full(len(sized.arrays.server_names), np.inf)
    np.minimum.at(cost, table.server, table.cost_cents_per_h)

    def pool(server: int) -> SizedPool:
        rows = np.flatnonzero((table.server == server) & (table.cost_cents_per_h == cost[server]))
        row, name = int(rows[0]), sized.arrays.server_names[server]
        return SizedPool(
            shapes=shape_names(sized.system.servers[name]),
            accelerator=sized.arrays.accelerator_names[table.accelerator[row]],
            num_replicas=int(table.num_replicas[row]),
            needed_replicas=float(table.load_rps[row] / table.max_rate_rps[row]),
            cost_cents_per_h=float(cost[server]),
        )

    together = pool(each.whole) if np.isfinite(cost[each.whole]) else None
    divided = cost.copy()
    divided[each.whole] = np.inf
    return together, tuple(map(pool, each.cheapest_path(divided)))


def _reason(
    whole: Server,
    count: int,
    together: SizedPool | None,
    by_length: Sequence[SizedPool],
    is_unserved: bool,  # noqa: FBT001  passed by position
) -> Reason:
    """Return why a plan divides a server among a number of pools."""
    split = math.fsum(pool.cost_cents_per_h for pool in by_length) if by_length else math.inf
    one = math.inf if together is None else together.cost_cents_per_h
    is_cheaper = split < one * (1 - ROUNDING)
    reason: Reason = "limits"
    if is_unserved:
        reason = "unserved"
    elif count > 1 and together is None:
        reason = "needed"
    elif count > 1 and is_cheaper:
        reason = "cheaper"
    elif count > 1 and whole.pools_by_length == "required":
        reason = "required"
    elif count == 1 and not by_length:
        reason = "unattainable"
    elif count == 1 and together is not None and not is_cheaper:
        fewer = math.fsum(map(_exact_cost, by_length)) <= _exact_cost(together)
        reason = "one_replica_more" if fewer else "more_replicas"
    return reason


def _exact_cost(pool: SizedPool) -> float:
    """Return the cost of a pool with a fractional number of replicas [cents/h] (eq. 287)."""
    return pool.cost_cents_per_h / pool.num_replicas * pool.needed_replicas
