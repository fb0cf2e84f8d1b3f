"""Explains the placement of each server: binding constraints, alternatives, and their costs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from optimizer.candidates import Candidates, CandidateTable
from optimizer.candidates.arrays import ALL_MEMBERS
from optimizer.candidates.pairs import own_fields
from optimizer.features.reserves.offers import share_beside_reserve
from optimizer.kinds.batch_servers.stages import STAGE
from optimizer.kinds.table import KINDS
from optimizer.plan import Plan
from optimizer.studies.deciding import decider_text, deciding_limits_of
from optimizer.studies.explanation.answering import Answer, Question, effect_of
from optimizer.studies.explanation.base_plan import BasePlan
from optimizer.studies.explanation.binding import binding_limits
from optimizer.studies.explanation.explanation_document import (
    Alternative,
    Binding,
    ChosenPool,
    Option,
    RejectedAccelerator,
    ReservedSize,
    ServerExplanation,
)
from optimizer.studies.explanation.resolving import on_accelerators
from optimizer.units import SECONDS_PER_MINUTE

ServerQuestion = tuple[int, str | None]
"""A server's index, and the only accelerator it can use; None for any accelerator other than the chosen ones.
"""
_Alternatives = dict[ServerQuestion, Alternative]
_Bindings = dict[str, dict[str, Any]]
"""Fields about the limits of a server's candidates, by accelerator."""


def explain_servers(
    before: BasePlan, servers: Sequence[int], answers: Mapping[ServerQuestion, Answer]
) -> tuple[ServerExplanation, ...]:
    """Return the explanations of some servers, given the answers to their what-if questions."""
    candidates, names = before.candidates, before.candidates.arrays.accelerator_names
    table = CandidateTable.joined([candidates.table, candidates.over_limit])
    choose_batch = candidates.system.options.batch_sizing == "optimal"
    mine = np.flatnonzero(np.isin(table.server, servers))
    limits = binding_limits(candidates.arrays, table.take(mine), choose_batch=choose_batch)
    deciders = deciding_limits_of(candidates.arrays, table.take(mine))
    bindings: dict[int, _Bindings] = {s: {} for s in servers}
    for row, limit, decider in zip(mine.tolist(), limits, deciders, strict=True):
        of_server = bindings[int(table.server[row])]
        text = "" if decider is None else decider_text(decider, _headings(candidates, int(table.server[row])))
        stages = _with_stages(candidates, table, row, limit)
        of_server[names[table.accelerator[row]]] = {"binding": stages, "limited_by": text}
    alternatives = {key: _alternative(before, answer, key[0]) for key, answer in answers.items()}
    return tuple(_explained(before, s, bindings[s], alternatives) for s in servers)


def _headings(candidates: Candidates, s: int) -> dict[str, str]:
    """Return the display names of the metrics of a server's kind, by metric."""
    server = list(candidates.system.servers.values())[s]
    kind = candidates.system.model_kinds().get(server.model, KINDS[0])
    return {shown.metric: shown.heading for shown in kind.metrics}


def _with_stages(
    candidates: Candidates, table: CandidateTable, row: int, limits: tuple[Binding, ...]
) -> tuple[Binding, ...]:
    """Return the binding constraints of a candidate; if a stage limits the stable rate, name it."""
    slowest = own_fields(candidates.arrays, candidates.system, table, row).get("binding")
    if slowest is None or not slowest.startswith(STAGE):
        return limits
    stage = slowest.removeprefix(STAGE)
    return tuple(
        Binding(limit="stage", rate_gain=item.rate_gain, stage=stage) if item.limit == "stability" else item
        for item in limits
    )


def server_questions(
    before: BasePlan, servers: Sequence[int], *, in_depth: bool
) -> dict[ServerQuestion, Question]:
    """Return the what-if questions in which servers avoid their chosen accelerators.

    With `in_depth`, there is also a question for each other accelerator alone.
    """
    arrays, candidates = before.candidates.arrays, before.candidates
    kept: dict[ServerQuestion, list[int]] = {}
    for s in servers:
        taken = {pool.accelerator for pool in before.plan.allocations.get(arrays.server_names[s], ())}
        if taken:
            kept[s, None] = [a for a, name in enumerate(arrays.accelerator_names) if name not in taken]
            kept[s, None].append(len(arrays.accelerator_names))  # the server can still rent
        if in_depth:
            for a in candidates.table.accelerator[candidates.table.server == s].tolist():
                kept[s, arrays.accelerator_names[a]] = [a]
    return {
        (s, only): Question(partial(on_accelerators, candidates, s, allowed, shared=only is None), "worse")
        for (s, only), allowed in kept.items()
    }


def _alternative(before: BasePlan, answer: Answer, s: int) -> Alternative:
    name, outcome = before.candidates.arrays.server_names[s], answer.outcome
    return Alternative(
        pools=outcome.pools.get(name, ()), rents=name in outcome.rents, effect=effect_of(before, answer)
    )


def _explained(
    before: BasePlan, s: int, bindings: _Bindings, alternatives: _Alternatives
) -> ServerExplanation:
    candidates, plan = before.candidates, before.plan
    arrays, name = candidates.arrays, candidates.arrays.server_names[s]
    server = candidates.system.servers[name]
    load_rpm, carried_rpm, fraction = _loads(candidates, plan, s)
    pools = plan.allocations.get(name, ())
    has_reserve = name not in plan.lacks_reserve if name in plan.requires_reserve else None
    headroom = None
    if name not in before.outcome.rents:
        headroom = _headroom_rpm(candidates, plan, s, carried_rpm, with_reserve=bool(has_reserve))
    return ServerExplanation.taken_from(
        server,
        server=name,
        priority=candidates.system.priority(server),
        load_rpm=load_rpm,
        served_fraction=fraction,
        pools=tuple(
            ChosenPool.taken_from(pool, **({"binding": ()} if pool.role else bindings[pool.accelerator]))
            for pool in pools
        ),
        headroom_rpm=headroom,
        headroom_share=None if headroom is None else headroom / load_rpm,
        headroom_wanted=float(arrays.servers.reserve.headroom_share[s]),
        has_reserve=has_reserve,
        next_best=alternatives.get((s, None)),
        options=_options(candidates, s, bindings, alternatives),
        rejections=tuple(sorted(map(RejectedAccelerator.taken_from, candidates.rejections(s)), key=_miss)),
    )


def _loads(candidates: Candidates, plan: Plan, s: int) -> tuple[float, float, float]:
    """Return the load of a server, the load above which headroom counts, and the served share.

    Both loads are in requests/min.
    """
    arrays, name = candidates.arrays, candidates.arrays.server_names[s]
    load_rpm = float(arrays.servers.load_rps[s] * SECONDS_PER_MINUTE)
    fraction = next((item.served_fraction for item in plan.unserved if item.server == name), 1.0)
    carried_rpm = sum(plan.served_rpm.get(name, {name: load_rpm}).values())
    if arrays.servers.is_queue[s]:
        fraction = carried_rpm / load_rpm
        return load_rpm, load_rpm * fraction, fraction
    return carried_rpm, carried_rpm, fraction


def _headroom_rpm(
    candidates: Candidates, plan: Plan, s: int, load_rpm: float, *, with_reserve: bool
) -> float | None:
    """Return the additional load that a server's replicas can carry [requests/min] (eq. 59).

    With `with_reserve`, they also keep its reserve.
    """
    server = candidates.arrays.server_names[s]
    if load_rpm == 0:
        return None
    pools = plan.pools_of(server)
    most_rpm = sum(pool.max_arrival_rate_rpm for pool in pools)
    if with_reserve:
        replicas = sum(pool.num_replicas for pool in pools)
        accelerator = candidates.arrays.accelerator_names.index(pools[0].accelerator)
        most_rpm *= share_beside_reserve(candidates.arrays, s, accelerator, replicas)
    return most_rpm - load_rpm


def _options(
    candidates: Candidates, s: int, bindings: _Bindings, alternatives: _Alternatives
) -> tuple[Option, ...]:
    arrays, table = candidates.arrays, candidates.table
    rows = np.flatnonzero((table.server == s) & (table.members == ALL_MEMBERS))
    cost, reserved = table.cost_cents_per_h, _reserved_sizes(candidates, s)
    options = []
    for c in rows[np.argsort(cost[rows], kind="stable")]:
        accelerator = arrays.accelerator_names[table.accelerator[c]]
        options.append(
            Option(
                accelerator=accelerator,
                num_replicas=int(table.num_replicas[c]),
                max_batch=int(table.max_batch[c]),
                type=arrays.type_names[table.type[c]],
                units=int(table.units[c]),
                cost_cents_per_h=float(cost[c]),
                max_arrival_rate_rpm=float(table.max_rate_rps[c] * SECONDS_PER_MINUTE),
                **bindings[accelerator],
                with_reserve=reserved.get(accelerator),
                forced=alternatives.get((s, accelerator)),
            )
        )
    return tuple(options)


def _reserved_sizes(candidates: Candidates, s: int) -> dict[str, ReservedSize]:
    """Return the sizes with which a server has its required reserve, by accelerator.

    The result is empty if the server requires no reserve.
    """
    arrays = candidates.arrays
    if not arrays.servers.reserve.wanted[s]:
        return {}
    table = CandidateTable.joined([candidates.table, candidates.with_reserve])
    rows = np.flatnonzero((table.server == s) & (table.members == ALL_MEMBERS) & table.reserved)
    return {
        arrays.accelerator_names[table.accelerator[c]]: ReservedSize(
            num_replicas=int(table.num_replicas[c]),
            units=int(table.units[c]),
            cost_cents_per_h=float(table.cost_cents_per_h[c]),
        )
        for c in rows
    }


def _miss(item: RejectedAccelerator) -> tuple[bool, float, str]:
    """Return a sort key that puts the smallest miss first and unmeasured pairs last."""
    return item.factor is None, item.factor or 0.0, item.accelerator
