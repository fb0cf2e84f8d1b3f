"""Computes what a plan states about prefill and decode pools: costs, parts of the TTFT, alternatives."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np

from optimizer.arrays import FloatArray
from optimizer.candidates import Candidates
from optimizer.candidates.class_rows import ServerRows
from optimizer.candidates.measuring import parts
from optimizer.candidates.pairs import Pairs
from optimizer.features.disaggregation.streams import (
    ROLES,
    RolePool,
    handover_of,
    is_seeded,
    wholes_with_roles,
)
from optimizer.features.disaggregation.topology import PossibleRoles, RolePoolTopology
from optimizer.features.disaggregation.uses import Reason, RolePoolUse, RoleUse, SizedWay, TtftParts
from optimizer.plan.document import Plan
from optimizer.queueing.targets import target_ratio
from optimizer.schema import Server
from optimizer.schema.pools import Pool
from optimizer.spec.system import System
from optimizer.tolerances import ROUNDING
from optimizer.topologies.possible_pools import candidates_of_all_pools

BINDING = 0.99
"""Ratio of a metric to its limit at the largest rate from which the target limits the rate."""


def role_pool_names(plan: Plan, system: System) -> Iterator[str]:
    """Yield errors for missing and unknown servers with prefill and decode pools, and for wrong pools."""
    wholes = wholes_with_roles(system.servers)
    yield from (f"{name}: not in disaggregation" for name in wholes if name not in plan.disaggregation)
    unserved = {item.server for item in plan.unserved}
    for name, use in plan.disaggregation.items():
        if name not in wholes:
            yield f"{name}: in disaggregation, but no server with prefill and decode pools and load"
        elif use.pools and tuple(pool.role for pool in use.pools) != ROLES:
            yield f"{name}: must have one prefill and one decode pool, in this order"
        elif wholes[name].disaggregation == "required" and not use.pools and name not in unserved:
            yield f"{name}: has no prefill and decode pools, but they are required"


def role_uses(
    system: System,
    pools: Mapping[str, Sequence[Pool]],
    unserved: Collection[str],
    candidates: Candidates | None,
) -> dict[str, RoleUse]:
    """Return the plan's entry for each server with prefill and decode pools, by name.

    Args:
        system: the system with only the chosen pools.
        pools: pools by planned server.
        unserved: names of servers that are not served in full.
        candidates: candidates of the system; None sizes all possible pools.
    """
    wholes = wholes_with_roles(system.servers)
    if not wholes:
        return {}
    sized = candidates_of_all_pools(system, wholes, candidates)
    topology = RolePoolTopology.of(sized, np.zeros(0, np.bool_), len(sized.system.servers))
    assert isinstance(topology, RolePoolTopology)
    fixed_ms, prices = handover_of(system.options).fixed_ms, _card_prices(system)
    costs = _costs(sized, prices)
    binding = _binding(sized, costs, [each.whole for each in topology.choices])
    result = {}
    for each in sorted(topology.choices, key=attrgetter("name")):
        aggregated, disaggregated = _aggregated(sized, costs, each), _disaggregated(sized, costs, each)
        chosen = [
            one
            for one in system.servers.values()
            if isinstance(one, RolePool) and one.whole.name == each.name and one.has_load
        ]
        chosen.sort(key=lambda one: ROLES.index(one.role))
        uses = tuple(_pool_use(one, pools.get(one.name, ()), prices) for one in chosen)
        served = [pool for name in (each.name, *(one.name for one in chosen)) for pool in pools.get(name, ())]
        result[each.name] = RoleUse(
            pools=uses,
            decode_share=chosen[0].decode_share if chosen else None,
            ttft_parts=_parts(chosen, pools, fixed_ms) if chosen else None,
            cost_cents_per_h=_cost(served, prices),
            aggregated_alternative=aggregated,
            disaggregated_alternative=disaggregated,
            reason=_reason(
                binding.get(each.whole, "capacity"),
                wholes[each.name],
                aggregated,
                disaggregated,
                uses,
                any(name in unserved for name in (each.name, *(one.name for one in chosen))),
            ),
        )
    return result


def _card_prices(system: System) -> dict[str, float]:
    """Return the price of a card in the cheapest node for each type of cards in nodes [cents/h]."""
    return {
        pool.type: min(node.cost_cents_per_h / node.cards for node in pool.nodes)
        for pool in system.node_pools
    }


def _costs(sized: Candidates, prices: Mapping[str, float]) -> FloatArray:
    """Return the cost of each candidate, in nodes by its cards [cents/h], shape (C,)."""
    types = (item.type for item in sized.system.accelerators.values())
    each = np.array([*(prices.get(name, 0.0) for name in types), 0.0, 0.0])
    table = sized.table
    return np.asarray(table.cost_cents_per_h + table.units * each[table.accelerator])


def _cost(pools: Sequence[Pool], prices: Mapping[str, float]) -> float:
    """Return the cost of pools, in nodes by their cards [cents/h]."""
    return math.fsum(pool.cost_cents_per_h + prices.get(pool.type, 0.0) * pool.cards for pool in pools)


def _pool_use(server: RolePool, pools: Sequence[Pool], prices: Mapping[str, float]) -> RolePoolUse:
    return RolePoolUse(
        server=server.name,
        role=server.role,
        num_replicas=sum(pool.num_replicas for pool in pools),
        cost_cents_per_h=_cost(pools, prices),
    )


def _parts(
    servers: Sequence[RolePool], pools: Mapping[str, Sequence[Pool]], fixed_ms: float
) -> TtftParts | None:
    """Return the parts of the mean TTFT over the requests of both pools."""
    of_roles = [list(pools.get(one.name, ())) for one in servers]
    if not all(of_roles):
        return None
    prefill, decode = of_roles

    def mean(some: Sequence[Pool], name: str) -> float:
        rate = math.fsum(pool.arrival_rate_rpm for pool in some)
        return math.fsum(pool.arrival_rate_rpm * getattr(pool, name) for pool in some) / rate

    wait = mean(prefill, "wait_ms")
    return TtftParts(
        prefill_wait_ms=wait,
        prefill_and_transfer_ms=mean(prefill, "ttft_ms") - wait - fixed_ms,
        handover_ms=fixed_ms,
        first_step_ms=0.0 if is_seeded(servers[0]) else mean(decode, "ttft_ms"),
    )


# --- alternatives ----------------------------------------------------------------------------------------


def _cheapest(sized: Candidates, costs: FloatArray, server: int) -> int | None:
    """Return the cheapest candidate of a planned server; None if there is none."""
    rows = np.flatnonzero(sized.table.server == server)
    return int(rows[costs[rows].argmin()]) if len(rows) else None


def _way(sized: Candidates, costs: FloatArray, rows: Sequence[int]) -> SizedWay:
    table, names = sized.table, sized.arrays.accelerator_names
    replicas: dict[str, int] = {}
    for row in rows:
        name = names[table.accelerator[row]]
        replicas[name] = replicas.get(name, 0) + int(table.num_replicas[row])
    return SizedWay(
        replicas=replicas,
        by_role=tuple(table.num_replicas[list(rows)].tolist()),
        cost_cents_per_h=math.fsum(costs[list(rows)].tolist()),
    )


def _aggregated(sized: Candidates, costs: FloatArray, each: PossibleRoles) -> SizedWay | None:
    row = _cheapest(sized, costs, each.whole)
    return None if row is None else _way(sized, costs, [row])


def _disaggregated(sized: Candidates, costs: FloatArray, each: PossibleRoles) -> SizedWay | None:
    """Return the cheapest prefill and decode pools over all shares, on accelerators with a link."""
    table = sized.table
    best: tuple[float, list[int]] = (math.inf, [])
    for pair in each.pairs:
        first, second = (np.flatnonzero(table.server == server) for server in pair)
        linked = each.links[np.ix_(table.accelerator[first], table.accelerator[second])]
        if linked.any():
            cost = np.where(linked, costs[first, np.newaxis] + costs[second], np.inf)
            i, j = np.unravel_index(int(cost.argmin()), cost.shape)
            if cost[i, j] < best[0]:
                best = float(cost[i, j]), [int(first[i]), int(second[j])]
    return _way(sized, costs, best[1]) if best[1] else None


def _reason(
    binding: Reason,
    whole: Server,
    aggregated: SizedWay | None,
    disaggregated: SizedWay | None,
    uses: Collection[RolePoolUse],
    is_unserved: bool,  # noqa: FBT001  passed by position
) -> Reason:
    """Return why a plan has prefill and decode pools, or why it has none.

    `binding` is the target that limits replicas that do both.
    """
    one, two = (math.inf if way is None else way.cost_cents_per_h for way in (aggregated, disaggregated))
    is_cheaper = two < one * (1 - ROUNDING)
    reason: Reason = "limits"
    if is_unserved:
        reason = "unserved"
    elif uses and aggregated is None:
        reason = "needed"
    elif uses and is_cheaper:
        reason = binding
    elif uses and whole.disaggregation == "required":
        reason = "required"
    elif not uses and disaggregated is None:
        reason = "unattainable"
    elif not uses and not is_cheaper:
        reason = "cheaper"
    return reason


def _binding(sized: Candidates, costs: FloatArray, servers: Sequence[int]) -> dict[int, Reason]:
    """Return the metric whose target limits the cheapest replicas of each server, at their largest rate.

    Servers without candidates are absent.
    """
    found = [row for row in (_cheapest(sized, costs, server) for server in servers) if row is not None]
    if not found:
        return {}
    table = sized.table.take(np.array(found))
    result: dict[int, Reason] = {}
    for numbers, pairs in parts(sized.arrays, Pairs.of_rows(sized.arrays, table)):
        rows = ServerRows.of(sized.arrays, pairs)
        figures = rows.targets.figures(rows.analyze(table.max_rate_rps[numbers]))
        ratios = target_ratio(figures, rows.targets.limits)
        for i, server in enumerate(table.server[numbers].tolist()):
            metric = rows.targets.measures[int(ratios[:, i].argmax())].metric
            binds = ratios[:, i].max() >= BINDING
            result[server] = metric if binds and metric in {"itl", "ttft"} else "capacity"
    return result
