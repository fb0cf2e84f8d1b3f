"""Document fields for nodes: servers of several cards that are bought or rented whole."""

from collections.abc import Mapping
from operator import not_
from typing import ClassVar, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from optimizer.documents import Cost, Count, Document, Name, PositiveCount, is_none


class NodeType(Document):
    """A node type: a machine with several cards of one type, which is bought or rented whole."""

    refused_keys: ClassVar[Mapping[str, str]] = {
        "count": "the plan decides how many nodes it uses; limit them with maxNodes",
    }

    name: Name
    """Unique name of the node type."""
    type: Name
    """Accelerator type of its cards; accelerators of this type cost nothing themselves."""
    cards: PositiveCount
    """Number of cards of one node. A replica lies in one node; a larger replica takes several whole nodes."""
    cost_cents_per_h: Cost = Field(0.0, alias="cost")
    """Price of one node [cents/h], whether its cards are used or not; 0 if it is paid for anyway."""
    max_nodes: Count | None = Field(None, alias="maxNodes", exclude_if=is_none)
    """Maximum number of nodes of a plan, with spare ones. Absent: any number; required if `cost` is 0. Plans
    that are `unlimited` use any number of nodes that cost something.
    """
    spare_nodes: Count = Field(0, alias="spareNodes", exclude_if=not_)
    """Number of nodes that stay empty, in case others fail; they are always paid for. With 1, the replicas of
    any node of this type fit on another one.
    """

    @model_validator(mode="after")
    def _free_nodes_are_counted(self) -> Self:
        if not self.cost_cents_per_h and self.max_nodes is None:
            text = "cost: absent or 0, so any number of nodes would be free; give cost, or maxNodes"
            raise PydanticCustomError("free_nodes", text)
        if self.max_nodes is not None and self.spare_nodes > self.max_nodes:
            text = "spareNodes: {spare} exceeds maxNodes, {most}, which includes spare nodes; lower it"
            numbers = {"spare": self.spare_nodes, "most": self.max_nodes}
            raise PydanticCustomError("spare_nodes", text, numbers)
        return self

    @property
    def spare_cents_per_h(self) -> float:
        """Cost of the spare nodes [cents/h]."""
        return float(self.cost_cents_per_h) * self.spare_nodes


class NodesField(Document):
    """The node types of a system."""

    nodes: tuple[NodeType, ...] = Field((), strict=False, fail_fast=True, exclude_if=not_)
    """Node types; cards of their types exist only in nodes, and the plan decides how many nodes of each."""
