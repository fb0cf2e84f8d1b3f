"""Explains prefill and decode pools: the load that they carry, the link that they need, faster handovers."""

from collections.abc import Sequence

import numpy as np

from optimizer.arrays import FloatArray, IntArray
from optimizer.candidates import Candidates, SizingMemo
from optimizer.candidates.arrays import SystemArrays
from optimizer.candidates.class_rows import ServerRows
from optimizer.candidates.measuring import largest_rates_of, parts
from optimizer.candidates.pairs import Pairs
from optimizer.features.disaggregation.fields import LinkTable
from optimizer.features.disaggregation.streams import ROLES, handover_of, own_gbps, wholes_with_roles
from optimizer.features.disaggregation.topology import PossibleRoles, RolePoolTopology
from optimizer.pipeline import solve_in_full
from optimizer.plan import Plan
from optimizer.queueing.disaggregated.roles import PrefillQueues
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import HandoverEffect, HandoverField, PoolsExplanation
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect
from optimizer.tolerances import ROUNDING
from optimizer.topologies.possible_pools import candidates_of_all_pools
from optimizer.units import SECONDS_PER_MINUTE

FASTER, SHORTER = 2.0, 0.5
"""Factors on the bandwidth of all links, and on the fixed time of a handover, in what-if plans."""
HALVINGS, STEPS = 40, 45
"""Halvings of the stated bandwidth between which the least one is searched, and steps of the search."""


def price_handovers(
    system: System, before: PlanOutcome, budget: QuestionBudget, memo: SizingMemo
) -> tuple[HandoverEffect, ...]:
    """Plan with faster links and with a shorter handover, as time permits; return the effects.

    Pools are chosen anew.

    Raises:
        SolverError: the solver failed.
    """
    asked: dict[tuple[HandoverField, float], System] = {}
    if wholes_with_roles(system.servers):
        asked["linkBandwidth", FASTER] = _with_faster_links(system)
        handover = handover_of(system.options)
        if handover.fixed_ms:
            shorter = handover.model_copy(update={"fixed_ms": SHORTER * handover.fixed_ms})
            asked["fixedMs", SHORTER] = system.with_options(handover=shorter)
    effects = budget.ask(
        lambda other, due: PlanOutcome.of_plan(solve_in_full(other, deadline=due, memo=memo).plan),
        asked,
        lambda key: f"the effect of {key[1]:g} times {key[0]}",
    )
    return tuple(
        HandoverEffect(field=field, factor=factor, effect=effect(before, after, system))
        for (field, factor), after in effects.items()
    )


def _with_faster_links(system: System) -> System:
    items = [
        item.model_copy(
            update={
                "link_gbps": None if (own := own_gbps(item)) is None else FASTER * own,
                "links": LinkTable({name: FASTER * gbps for name, gbps in item.links.items()}),
            }
        )
        for item in system.accelerators.values()
    ]
    return system.with_items(*items)


def explain_pools(plan: Plan, candidates: Candidates) -> tuple[PoolsExplanation, ...]:
    """Return the load that the pools of each server carry, and the least bandwidth that they need.

    Both are the best over all shares of the TTFT target.
    """
    wholes = wholes_with_roles(candidates.system.servers)
    used = {name for name, use in plan.disaggregation.items() if use.pools}
    if not used:
        return ()
    sized = candidates_of_all_pools(candidates.system, wholes, candidates)
    topology = RolePoolTopology.of(sized, np.zeros(0, np.bool_), len(sized.system.servers))
    assert isinstance(topology, RolePoolTopology)
    choices = sorted((each for each in topology.choices if each.name in used), key=lambda each: each.name)
    arrays, count = sized.arrays, _replicas(plan, choices)
    of_roles = [_pairs(sized, plan, choices, role) for role in range(len(ROLES))]
    rates = [np.nan_to_num(largest_rates_of(arrays, pairs)) for pairs in of_roles]
    load = arrays.servers.load_rps[of_roles[0].server]
    holds = rates[1] * count[1] * (1 + ROUNDING) >= load
    stated, least = _least_gbps(arrays, of_roles[0], load / count[0])
    assert arrays.roles is not None
    result, first = [], 0
    for each in choices:
        mine = slice(first, first := first + len(each.pairs))
        carried = [np.array(rates)[:, mine] * (count[:, mine] + more) for more in _MORE]
        both, *with_more = (float(some.min(axis=0).max()) * SECONDS_PER_MINUTE for some in carried)
        share = carried[0].min(axis=0).argmax()
        result.append(
            PoolsExplanation(
                server=each.name,
                max_arrival_rate_rpm=both,
                limited_by=ROLES[int(carried[0][:, share].argmin())],
                one_more_rpm=dict(zip(ROLES, with_more, strict=True)),
                link_gbps=float(stated[mine][0]),
                least_link_gbps=float(np.where(holds[mine], least[mine], stated[mine]).min()),
            )
        )
    return tuple(result)


_MORE = np.array([[0, 0], [1, 0], [0, 1]])[..., np.newaxis]
"""Replicas that are added to each role: none, one prefill replica, or one decode replica."""


def _replicas(plan: Plan, choices: Sequence[PossibleRoles]) -> IntArray:
    """Return the replicas of each role for all shares of servers, shape (2, R)."""
    uses = [plan.disaggregation[each.name] for each in choices for _ in each.pairs]
    return np.array([[use.pools[role].num_replicas for use in uses] for role in range(len(ROLES))])


def _pairs(sized: Candidates, plan: Plan, choices: Sequence[PossibleRoles], role: int) -> Pairs:
    """Return the pools of a role for all shares of servers, on their accelerators of the plan, shape (R,)."""
    rows = []
    for each in choices:
        (pool,) = plan.allocations[plan.disaggregation[each.name].pools[role].server]
        accelerator = sized.arrays.accelerator_names.index(pool.accelerator)
        rows += [(pair[role], accelerator, pool.max_batch) for pair in each.pairs]
    return Pairs.of(sized.arrays, *np.array(rows, np.int64).T)


def _least_gbps(arrays: SystemArrays, pairs: Pairs, rate_rps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the stated bandwidth of prefill replicas, and the least one that suffices [GB/s], shapes (R,).

    Latencies fall with the bandwidth, so it is found by bisection.

    Args:
        arrays: the system.
        pairs: prefill pools.
        rate_rps: rate of each replica [requests/s].
    """
    stated, least = np.zeros((2, len(rate_rps)))
    for numbers, some in parts(arrays, pairs):
        rows = ServerRows.of(arrays, some)
        assert isinstance(rows.queues, PrefillQueues)
        high = rows.queues.handover.bandwidth
        stated[numbers], low = high, high / 2.0**HALVINGS
        for _ in range(STEPS):
            middle = np.sqrt(low * high)
            queues = rows.queues.with_bandwidth(middle)
            rate = rate_rps[numbers]
            met = (rate <= queues.stable_rate_rps) & rows.targets.met(queues.analyze(rate))
            low, high = np.where(met, low, middle), np.where(met, middle, high)
        least[numbers] = high
    return stated, least
