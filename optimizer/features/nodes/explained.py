"""Explains nodes: plans with one node more or fewer of a type, and what their free cards could hold."""

from collections.abc import Iterator

from optimizer.candidates import SizingMemo, find_candidates
from optimizer.features.nodes.uses import NodeUse
from optimizer.plan import Plan
from optimizer.spec.changes import SystemChange
from optimizer.spec.system import System
from optimizer.studies.explanation.explanation_document import FreeNodeCards, NodeExplanation
from optimizer.studies.explanation.outcome import PlanOutcome
from optimizer.studies.explanation.resolving import QuestionBudget, effect, solved

_QUESTIONS = {-1: "one node fewer", 0: "no spare node", 1: "one node more"}
"""Questions about a node type, by key."""


def explain_nodes(
    plan: Plan, system: System, before: PlanOutcome, budget: QuestionBudget, memo: SizingMemo
) -> tuple[NodeExplanation, ...]:
    """Return the effects of one node more, one fewer and no spare one of each type, and what free cards hold.

    One node more is asked only where `maxNodes` binds; otherwise the plan could already have it. An unlimited
    plan can have any number, so one fewer is no limit.

    Raises:
        SolverError: the solver failed.
    """
    asked = {}
    for use in plan.nodes:
        most = None if system.options.unlimited else system.nodes[use.node].max_nodes
        if use.num_nodes > use.spare_nodes and not system.options.unlimited:
            asked[use.node, -1] = SystemChange("maxNodes", use.node, use.num_nodes - 1).applied_to(system)
        if most is not None and use.num_nodes == most:
            asked[use.node, 1] = SystemChange("maxNodes", use.node, most + 1).applied_to(system)
        if use.spare_nodes:
            asked[use.node, 0] = SystemChange("spareNodes", use.node, 0).applied_to(system)
    nodes = budget.ask(
        lambda other, due: solved(find_candidates(other, memo), due),
        asked,
        lambda key: f"{_QUESTIONS[key[1]]} of {key[0]}",
    )
    effects = {key: effect(before, after, system) for key, after in nodes.items()}
    return tuple(
        NodeExplanation(
            node=use.node,
            num_nodes=use.num_nodes,
            one_more=effects.get((use.node, 1)),
            one_fewer=effects.get((use.node, -1)),
            without_spare=effects.get((use.node, 0)),
            free_cards=tuple(_free_cards(plan, system, use)),
        )
        for use in plan.nodes
    )


def _free_cards(plan: Plan, system: System, use: NodeUse) -> Iterator[FreeNodeCards]:
    """Yield how many more replicas of each pool fit into the free cards of nodes of a type."""
    for server in sorted(plan.allocations):
        for pool in plan.serving_pools_of(server):
            type_name, cards = system.units_per_replica(server, pool.accelerator)
            if type_name != use.type:
                continue
            fit = sum(item.free_cards // cards * item.num_nodes for item in use.contents)
            if fit:
                rate = fit * pool.max_arrival_rate_rpm / pool.num_replicas
                yield FreeNodeCards(
                    server=server, accelerator=pool.accelerator, num_replicas=fit, rate_rpm=rate
                )
