"""The part of a plan about whole nodes."""

from collections.abc import Iterable
from operator import not_

from pydantic import Field

from optimizer.arrays import grouped, totals
from optimizer.documents import OutputDocument, is_none


class NodeReplicas(OutputDocument):
    """Replicas of one pool in one node."""

    server: str
    """Name of the planned server, or of the group of shared cards."""
    accelerator: str
    """Accelerator of the replicas."""
    num_replicas: int
    """Number of replicas in the node; 1 if the node holds a part of a replica."""
    cards: int
    """Number of cards that one replica has in the node."""
    cost_cents_per_h: float
    """Share of these replicas, in all nodes with these contents, in the cost of the nodes of their card
    type [cents/h]. Shares are in proportion to cards, so replicas also pay for free cards.
    """


class NodeContents(OutputDocument):
    """Nodes of a type that hold the same replicas."""

    num_nodes: int
    """Number of these nodes."""
    free_cards: int
    """Number of cards that are free in each of them."""
    replicas: tuple[NodeReplicas, ...] = Field(strict=False)
    """Replicas in each of them."""
    machines: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Names of these nodes, such as `p5/3`; absent if `currentAlloc` states no nodes."""


class NodeUse(OutputDocument):
    """Nodes of one type that a plan uses."""

    node: str
    """Name of the node type."""
    type: str
    """Accelerator type of the cards."""
    num_nodes: int
    """Number of nodes that the plan uses, with spare ones."""
    spare_nodes: int = Field(0, exclude_if=not_)
    """Number of these nodes that stay empty, in case others fail; absent if there are none."""
    cards: int
    """Number of cards of all these nodes."""
    free_cards: int
    """Number of cards of these nodes that no replica uses, without those of spare nodes."""
    cost_cents_per_h: float
    """Cost of the nodes [cents/h]."""
    contents: tuple[NodeContents, ...] = Field(strict=False)
    """Which replicas lie in which nodes. Replicas stay on the nodes that `currentAlloc` states. Of the
    others, the largest are placed first, each where least is free.
    """
    added: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Nodes that are needed in addition to those of `currentAlloc`; absent if it states no nodes."""
    emptied: tuple[str, ...] = Field((), exclude_if=not_, strict=False)
    """Nodes that have replicas now and none in the plan; absent if there are none."""


class NodeMove(OutputDocument):
    """Replicas that move from one node to another, start or stop; only with nodes in `currentAlloc`."""

    server: str
    """Name of the planned server."""
    accelerator: str
    """Accelerator of the replicas."""
    num_replicas: int
    """Number of replicas."""
    before: str | None = Field(None, exclude_if=is_none)
    """Node on which they run now, such as `p5/3`; absent if they start, or if it is unknown."""
    after: str | None = Field(None, exclude_if=is_none)
    """Node on which they run in the plan; absent if they stop."""
    penalty_cents_per_h: float = 0.0
    """Transition penalty on the cost of the replicas on both nodes [cents/h], which is not in `objective`; 0
    if they start or stop.
    """


def machines_of(uses: Iterable[NodeUse]) -> dict[tuple[str, str], list[tuple[str, int]]]:
    """Return the named nodes of each pool with the numbers of replicas, by server and accelerator."""
    return grouped(
        ((one.server, one.accelerator), (machine, one.num_replicas))
        for use in uses
        for item in use.contents
        for machine in item.machines
        for one in item.replicas
    )


def node_types_of(uses: Iterable[NodeUse]) -> dict[tuple[str, str], tuple[tuple[str, int], ...]]:
    """Return the node types of each pool with the numbers of replicas, by server and accelerator."""
    numbers = totals(
        ((one.server, one.accelerator, use.node), one.num_replicas * item.num_nodes)
        for use in uses
        for item in use.contents
        for one in item.replicas
    )
    by_server = grouped(((server, on), (node, n)) for (server, on, node), n in numbers.items())
    return {key: tuple(sorted(types)) for key, types in by_server.items()}
