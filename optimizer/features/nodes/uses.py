"""The section of a plan about whole nodes."""

from pydantic import Field

from optimizer.documents import Document


class NodeReplicas(Document):
    """Replicas of one pool in one node."""

    server: str
    """Name of the planned server, or of the group of shared cards."""
    accelerator: str
    """Accelerator of the replicas."""
    num_replicas: int = Field(alias="numReplicas")
    """Number of replicas in the node; 1 if the node holds a part of a replica."""
    cards: int
    """Number of cards that one replica has in the node."""
    cost_cents_per_h: float = Field(alias="costCentsPerH")
    """Share of these replicas, in all nodes with these contents, in the cost of the nodes of their card
    type [cents/h]. Shares are in proportion to cards, so replicas also pay for free cards.
    """


class NodeContents(Document):
    """Nodes of a type that hold the same replicas."""

    num_nodes: int = Field(alias="numNodes")
    """Number of these nodes."""
    free_cards: int = Field(alias="freeCards")
    """Number of cards that are free in each of them."""
    replicas: tuple[NodeReplicas, ...] = Field(strict=False)
    """Replicas in each of them."""


class NodeUse(Document):
    """Nodes of one type that a plan uses."""

    node: str
    """Name of the node type."""
    type: str
    """Accelerator type of the cards."""
    num_nodes: int = Field(alias="numNodes")
    """Number of nodes that the plan uses."""
    cards: int
    """Number of cards of all these nodes."""
    free_cards: int = Field(alias="freeCards")
    """Number of cards of these nodes that no replica uses."""
    cost_cents_per_h: float = Field(alias="costCentsPerH")
    """Cost of the nodes [cents/h]."""
    contents: tuple[NodeContents, ...] = Field(strict=False)
    """Which replicas lie in which nodes; the largest replicas are placed first, each where least is free."""
