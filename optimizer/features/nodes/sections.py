"""Tables of nodes in plans, reports and explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.quantities import counted, quantity
from optimizer.render.explanation_text import effect_value
from optimizer.render.money import Money
from optimizer.section import (
    RPM,
    Column,
    FormattedValue,
    Section,
    group_name,
    group_rows,
    name,
    sentence,
    table,
)
from optimizer.text import some_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optimizer.plan import Plan
    from optimizer.studies.explanation.explanation_document import Effect, Explanation


def node_sections(plan: Plan) -> Iterator[Section]:
    """Yield the tables of the nodes that a plan uses, and of the replicas in them."""
    if not plan.nodes:
        return
    columns = (
        name("node type", "node"),
        name("cards of", "type"),
        Column("nodes", "num_nodes", form=",d"),
        *((Column("spare", "spare_nodes", form=",d"),) if any(use.spare_nodes for use in plan.nodes) else ()),
        Column("cards", "cards", form=",d"),
        Column("free", "free_cards", form=",d"),
        Money.of(plan).column("cost", lambda item: item.cost_cents_per_h),
    )
    yield table("Nodes", columns, plan.nodes, "nodes")
    inside = group_rows(
        (
            f"{item.num_nodes} × {use.node}, {counted(item.free_cards, 'card')} free",
            ((_machines(use.node, item.machines), one) for one in item.replicas),
        )
        for use in plan.nodes
        for item in use.contents
    )
    contents = (
        group_name("nodes"),
        name("numbers", lambda row: row.item[0] if row.is_first else ""),
        name("server", lambda row: row.item[1].server),
        Column("replicas in each", lambda row: row.item[1].num_replicas, form=",d"),
        Column("cards of a replica", lambda row: row.item[1].cards, form=",d"),
    )
    section = table("Replicas in nodes", contents, inside, "node contents")
    if section.rows:
        yield section
    yield from _changes(plan)


def _changes(plan: Plan) -> Iterator[Section]:
    """Yield the table of replicas that move, start or stop, and the nodes to add and to remove."""
    for what, nodes in (
        ("add", [one for use in plan.nodes for one in use.added]),
        ("remove, when they are empty", [one for use in plan.nodes for one in use.emptied]),
    ):
        if nodes:
            yield sentence(f"Nodes to {what}: {some_names(nodes)}.")
    columns = (
        name("server", "server"),
        name("accelerator", "accelerator"),
        Column("replicas", "num_replicas", form=",d"),
        name("from", lambda move: move.before or ""),
        name("to", lambda move: move.after or ""),
        Money.of(plan).column("penalty", lambda move: move.penalty_cents_per_h or None),
    )
    if plan.node_moves:
        yield table("Replicas that move, start or stop", columns, plan.node_moves, "node moves")


def _machines(node: str, machines: Sequence[str]) -> str:
    return some_names([one.removeprefix(f"{node}/") for one in machines])


def node_value_sections(explanation: Explanation, money: Money) -> Iterator[Section]:
    """Yield the tables of the values of nodes, and of what their free cards could hold."""

    def value(effect: Effect | None) -> FormattedValue | None:
        return None if effect is None else effect_value(effect, money, explanation.plan)

    has_spare = any(item.without_spare for item in explanation.nodes)
    columns = (
        name("node type", "node"),
        Column("nodes", "num_nodes", form=",d"),
        Column("one more", lambda item: value(item.one_more), money.unit),
        Column("one fewer", lambda item: value(item.one_fewer), money.unit),
        *((Column("no spare", lambda item: value(item.without_spare), money.unit),) if has_spare else ()),
    )
    worth = [item for item in explanation.nodes if item.one_more or item.one_fewer or item.without_spare]
    if worth:
        yield table("What a node is worth", columns, worth, "node values")
    columns = (
        name("node type", lambda row: row[0]),
        name("server", lambda row: row[1].server),
        name("accelerator", lambda row: row[1].accelerator),
        Column("more replicas", lambda row: row[1].num_replicas, form=",d"),
        Column("load", lambda row: row[1].rate_rpm, RPM, quantity),
    )
    free = [(item.node, each) for item in explanation.nodes for each in item.free_cards]
    yield table("What free cards could hold, for nothing (one row or another)", columns, free, "free cards")
