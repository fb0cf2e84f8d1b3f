"""Tables of nodes in plans, reports and explanations."""

from collections.abc import Iterator

from optimizer.features.nodes.uses import NodeContents
from optimizer.features.nodes.view import node_shares_cents_per_h
from optimizer.plan import Plan
from optimizer.quantities import counted, quantity
from optimizer.render.explanation_text import effect_value
from optimizer.render.money import Money
from optimizer.section import Column, FormattedValue, Section, name, table
from optimizer.studies.explanation.explanation_document import Effect, Explanation, FreeNodeCards


def node_sections(plan: Plan) -> Iterator[Section]:
    """Yield the tables of the nodes that a plan uses, and of the replicas in them."""
    if not plan.nodes:
        return
    columns = (
        name("node type", "node"),
        name("cards of", "type"),
        Column("nodes", "num_nodes", form=",d"),
        Column("cards", "cards", form=",d"),
        Column("free", "free_cards", form=",d"),
        Money.of(plan).column("cost", lambda item: item.cost_cents_per_h),
    )
    yield table("Nodes", columns, plan.nodes, "nodes")
    inside = [(use.node, item) for use in plan.nodes for item in use.contents]
    contents = (
        name("node type", lambda row: row[0]),
        Column("nodes", lambda row: row[1].num_nodes, form=",d"),
        Column("free cards", lambda row: row[1].free_cards, form=",d"),
        name("replicas in each", lambda row: _replicas(row[1])),
    )
    section = table("Replicas in nodes", contents, inside, "node contents")
    if section.rows:
        yield section

    shares = [(*spot, cost) for spot, cost in sorted(node_shares_cents_per_h(plan.nodes).items())]
    if shares:
        yield table(
            "Cost of nodes by pool",
            (
                name("server", lambda row: row[0]),
                name("accelerator", lambda row: row[1]),
                Money.of(plan).column("cost", lambda row: row[2]),
            ),
            shares,
            "node costs",
        )


def node_value_section(explanation: Explanation, money: Money) -> Section:
    """Return the table of the values of nodes."""

    def value(effect: Effect | None) -> FormattedValue | None:
        return None if effect is None else effect_value(effect, money, explanation.plan)

    columns = (
        name("node type", "node"),
        Column("nodes", "num_nodes", form=",d"),
        Column("one more", lambda item: value(item.one_more), money.unit),
        Column("one fewer", lambda item: value(item.one_fewer), money.unit),
        name("free cards could hold", lambda item: " or ".join(map(_free, item.free_cards))),
    )
    return table("What a node is worth", columns, explanation.nodes, "node values")


def _free(item: FreeNodeCards) -> str:
    rate = f"{quantity(item.rate_rpm)} req/min"
    return f"{item.num_replicas} more {item.server} ({item.accelerator}), {rate}, for nothing"


def _replicas(item: NodeContents) -> str:
    return " + ".join(
        f"{one.num_replicas} {one.server} ({one.accelerator}, {counted(one.cards, 'card')})"
        for one in item.replicas
    )
