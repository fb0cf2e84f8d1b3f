"""Panel of the nodes of a plan: a row for nodes of the same contents, and a cell for each card."""

from collections.abc import Iterator

from optimizer.features.nodes.uses import NodeContents, NodeUse
from optimizer.studies.figures.figure_document import Cell, GridPanel

MAX_NODES = 40
"""Maximum number of rows."""
FREE = Cell(text="free")
SPARE = Cell(text="spare")


def node_panel(uses: tuple[NodeUse, ...]) -> GridPanel | None:
    """Return the panel of the cards of nodes, with their servers; None without nodes."""
    rows = [(use, item) for use in uses for item in (*use.contents, *_spare(use))]
    if not rows:
        return None
    omitted, rows = len(rows) - MAX_NODES, rows[:MAX_NODES]
    most = max(_cards(item) for _, item in rows)
    cells = ([*_row(use.type, item)] for use, item in rows)
    return GridPanel(
        title="Nodes" if omitted <= 0 else f"Nodes, without {omitted:,} other contents",
        columns=tuple(f"card {i + 1}" for i in range(most)),
        rows=tuple(f"{item.num_nodes:,} × {use.node}" for use, item in rows),
        cells=tuple((*row, *[Cell(text="")] * (most - len(row))) for row in cells),
        groups=tuple(sorted({use.type for use, _ in rows})),
    )


def _spare(use: NodeUse) -> Iterator[NodeContents]:
    """Yield the spare nodes of a type, if any."""
    if use.spare_nodes:
        each = use.cards // use.num_nodes
        yield NodeContents(num_nodes=use.spare_nodes, free_cards=each, replicas=())


def _cards(item: NodeContents) -> int:
    return item.free_cards + sum(one.cards * one.num_replicas for one in item.replicas)


def _row(kind: str, item: NodeContents) -> Iterator[Cell]:
    """Yield the cells of one node, the largest replicas first."""
    for one in sorted(item.replicas, key=lambda one: (-one.cards, one.server)):
        yield from [Cell(text=one.server, group=kind)] * (one.cards * one.num_replicas)
    yield from [FREE if item.replicas else SPARE] * item.free_cards
