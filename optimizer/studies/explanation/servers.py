"""Why each server runs where it does: binding constraints, alternatives, and what those would cost."""

from collections.abc import Mapping, Sequence

import numpy as np

from optimizer.candidates import Candidates, CandidateTable, Rejection
from optimizer.plan import Plan
from optimizer.solvers.deadline import Deadline
from optimizer.spec.stages import STAGE
from optimizer.studies.explanation.binding import binding_limits
from optimizer.studies.explanation.document import (
    Alternative,
    Binding,
    ChosenPool,
    ForcedPool,
    Option,
    RejectedPair,
    ServerExplanation,
)
from optimizer.studies.explanation.resolving import Before, Inquiry, effect, on_accelerators, plan_of
from optimizer.tabulation import SECONDS_PER_MINUTE, slowest_of


def explain_servers(
    candidates: Candidates, plan: Plan, servers: Sequence[int], inquiry: Inquiry, *, in_depth: bool
) -> tuple[ServerExplanation, ...]:
    """Explain some servers, in depth with the price of every candidate.

    Raises:
        SolverError: the solver failed.
    """
    table = CandidateTable.joined([candidates.table, candidates.over_limit])
    choose_batch = candidates.system.options.batch_sizing == "optimal"
    mine = np.flatnonzero(np.isin(table.server, servers))
    limits = binding_limits(candidates.arrays, table.take(mine), choose_batch=choose_batch)
    bindings = {
        row: _with_stages(candidates, table, row, found)
        for row, found in zip(mine.tolist(), limits, strict=True)
    }
    alternatives = _alternatives(candidates, plan, servers, inquiry, in_depth=in_depth)
    return tuple(_explained(candidates, plan, s, table, bindings, alternatives) for s in servers)


def _with_stages(
    candidates: Candidates, table: CandidateTable, row: int, limits: tuple[Binding, ...]
) -> tuple[Binding, ...]:
    """Name the stage where a candidate is not stable beyond its largest rate for one."""
    names = candidates.arrays.server_names, candidates.arrays.accelerator_names
    server, accelerator = names[0][table.server[row]], names[1][table.accelerator[row]]
    slowest = slowest_of(candidates.system, server, accelerator, int(table.max_batch[row]))
    if slowest is None or not slowest.startswith(STAGE):
        return limits
    stage = slowest.removeprefix(STAGE)
    return tuple(
        Binding(limit="stage", rate_gain=item.rate_gain, stage=stage) if item.limit == "stability" else item
        for item in limits
    )


_Question = tuple[int, str | None]
"""A server and the accelerator that it is kept to; none: any but those chosen for it."""
_Alternatives = dict[_Question, Alternative]


def _alternatives(
    candidates: Candidates, plan: Plan, servers: Sequence[int], inquiry: Inquiry, *, in_depth: bool
) -> _Alternatives:
    """Solve again with servers kept off what was chosen for them; in depth, with each kept to each."""
    arrays = candidates.arrays
    kept: dict[_Question, list[int]] = {}
    for s in servers:
        taken = {pool.accelerator for pool in plan.allocations.get(arrays.server_names[s], ())}
        if taken:
            kept[s, None] = [a for a, name in enumerate(arrays.accelerator_names) if name not in taken]
        if in_depth:
            for a in candidates.table.accelerator[candidates.table.server == s].tolist():
                kept[s, arrays.accelerator_names[a]] = [a]
    plans = _settled(candidates, plan, _solved(candidates, plan, kept, inquiry), inquiry)
    return {key: _alternative(candidates, plan, other, key[0]) for key, other in plans.items()}


def _solved(
    candidates: Candidates, plan: Plan, kept: Mapping[_Question, Sequence[int]], inquiry: Inquiry
) -> dict[_Question, Plan]:
    """Return the best plan for each server that is kept to some accelerators, as far as there is time."""
    names, before = candidates.arrays.server_names, Before(candidates, plan)

    def words(question: _Question) -> str:
        s, only = question
        return f"{names[s]} without its accelerators" if only is None else f"{names[s]} on {only} alone"

    def solved(question: tuple[int, Sequence[int]], deadline: Deadline) -> Plan:
        return plan_of(on_accelerators(candidates, *question), deadline, before, restricts=True)

    return inquiry.ask(solved, {key: (key[0], allowed) for key, allowed in kept.items()}, words)


def _settled(
    candidates: Candidates, plan: Plan, plans: Mapping[_Question, Plan], inquiry: Inquiry
) -> dict[_Question, Plan]:
    """Return the plans, with next-best alternatives solved again where needed, kept to the alternative.

    A policy gives out what the solver's choice leaves, and so tells choices apart that are equal to the
    solver: what is said of an alternative is what forcing it gives.
    """
    arrays = candidates.arrays
    kept: dict[_Question, list[int]] = {}
    if candidates.system.options.saturation_policy == "None":
        return dict(plans)
    for (s, only), other in plans.items():
        pools = {pool.accelerator for pool in other.allocations.get(arrays.server_names[s], ())}
        if only is None and pools and not other.complete:
            kept[s, only] = [a for a, name in enumerate(arrays.accelerator_names) if name in pools]
    again = _solved(candidates, plan, kept, inquiry)
    settled = {key: other for key, other in plans.items() if key not in kept or key in again}
    placed = {
        key: other for key, other in again.items() if other.allocations.get(arrays.server_names[key[0]])
    }
    return settled | placed


def _alternative(candidates: Candidates, plan: Plan, other: Plan, s: int) -> Alternative:
    pools = tuple(
        ForcedPool(
            accelerator=pool.accelerator,
            num_replicas=pool.num_replicas,
            cost_cents_per_h=pool.cost_cents_per_h,
        )
        for pool in other.allocations.get(candidates.arrays.server_names[s], ())
    )
    return Alternative(pools=pools, effect=effect(plan, other, candidates.system))


def _explained(
    candidates: Candidates,
    plan: Plan,
    s: int,
    table: CandidateTable,
    bindings: dict[int, tuple[Binding, ...]],
    alternatives: _Alternatives,
) -> ServerExplanation:
    arrays, name = candidates.arrays, candidates.arrays.server_names[s]
    server = candidates.system.servers[name]
    load_rpm = float(arrays.servers.load_rps[s] * SECONDS_PER_MINUTE)
    of_accelerator = {
        arrays.accelerator_names[table.accelerator[row]]: limits
        for row, limits in bindings.items()
        if table.server[row] == s
    }
    pools = plan.allocations.get(name, ())
    fraction = next((item.served_fraction for item in plan.unserved if item.server == name), 1.0)
    headroom = _headroom_rpm(plan, name, load_rpm)
    return ServerExplanation(
        server=name,
        service_class=server.service_class,
        model=server.model,
        priority=candidates.system.priority(server),
        load_rpm=load_rpm,
        served_fraction=fraction,
        pools=tuple(
            ChosenPool(
                accelerator=pool.accelerator,
                num_replicas=pool.num_replicas,
                max_batch=pool.max_batch,
                cost_cents_per_h=pool.cost_cents_per_h,
                binding=of_accelerator[pool.accelerator],
            )
            for pool in pools
        ),
        headroom_rpm=headroom,
        headroom_share=None if headroom is None else headroom / load_rpm,
        next_best=alternatives.get((s, None)),
        options=_options(candidates, s, of_accelerator, alternatives),
        rejections=tuple(sorted((_rejected(item) for item in candidates.rejections(s)), key=_miss)),
    )


def _headroom_rpm(plan: Plan, server: str, load_rpm: float) -> float | None:
    """Return the load that a server's replicas can take beyond the one they have to carry (eq. 59)."""
    if load_rpm == 0:
        return None
    return sum(pool.max_arrival_rate_rpm for pool in plan.allocations.get(server, ())) - load_rpm


def _options(
    candidates: Candidates,
    s: int,
    of_accelerator: dict[str, tuple[Binding, ...]],
    alternatives: _Alternatives,
) -> tuple[Option, ...]:
    arrays, table = candidates.arrays, candidates.table
    rows = np.flatnonzero(table.server == s)
    cost = table.cost_cents_per_h
    options = []
    for c in rows[np.argsort(cost[rows], kind="stable")]:
        accelerator = arrays.accelerator_names[table.accelerator[c]]
        options.append(
            Option(
                accelerator=accelerator,
                num_replicas=int(table.num_replicas[c]),
                max_batch=int(table.max_batch[c]),
                type=arrays.type_names[table.kind[c]],
                units=int(table.units[c]),
                cost_cents_per_h=float(cost[c]),
                max_arrival_rate_rpm=float(table.max_rate_rps[c] * SECONDS_PER_MINUTE),
                binding=of_accelerator[accelerator],
                forced=alternatives.get((s, accelerator)),
            )
        )
    return tuple(options)


def _rejected(item: Rejection) -> RejectedPair:
    return RejectedPair(
        accelerator=item.accelerator,
        reason=item.reason,
        detail=item.detail,
        value=item.value,
        limit=item.limit,
        factor=item.factor,
    )


def _miss(item: RejectedPair) -> tuple[bool, float, str]:
    """Return a key that puts the smallest miss first, and what was not measured last."""
    return item.factor is None, item.factor or 0.0, item.accelerator
