"""Table of a cluster that its user edits: the nodes of each accelerator, and the container of each model."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Name, PositiveCount, is_none
from optimizer.schema.files import plain_value, read_text
from optimizer.schema.messages import validated

_LABEL = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
LabelKey = Annotated[str, Field(pattern=_LABEL, max_length=317)]
LabelValue = Annotated[str, Field(pattern=_VALUE)]
ResourceName = LabelKey

OWN_LABEL = "inferplan.dev/accelerator-type"
"""Label of nodes whose accelerator has no well-known one; its value is the accelerator type."""
NVIDIA = "nvidia.com/gpu"
"""Resource of whole cards of NVIDIA's device plugin."""


class NodeEntry(Document):
    """Nodes that have an accelerator."""

    accelerator: Name
    """Accelerator type, or the name of an accelerator, such as a slice, that has other nodes or resources."""
    labels: dict[LabelKey, LabelValue]
    """Labels that select the nodes."""
    resource: ResourceName = NVIDIA
    """Resource by which a pod asks for a card, or for a slice."""
    shared_resource: ResourceName | None = Field(None, alias="sharedResource", exclude_if=is_none)
    """Resource by which a container asks for its part of a shared card, in shares or in turns."""
    cards: PositiveCount | None = Field(None, exclude_if=is_none)
    """Cards of a node; a replica with more is a LeaderWorkerSet. Absent: every replica fits on a node."""


class ModelContainer(Document):
    """Container of a model."""

    model: Name
    """Name of the model in the system."""
    image: str = Field("", exclude_if=lambda text: not text)
    """Image of the engine; default: that of the kind of its servers."""
    source: str = Field("", exclude_if=lambda text: not text)
    """Repository or path of the weights; default: the catalogue's repository, or else the model's name."""
    args: tuple[str, ...] = Field((), exclude_if=lambda args: not args, strict=False)
    """Further arguments of the engine."""


class ClusterTable(Document):
    """The cluster: nodes by accelerator, and containers by model."""

    nodes: tuple[NodeEntry, ...] = Field((), strict=False)
    """Nodes by accelerator; the others have the label `inferplan.dev/accelerator-type`."""
    models: tuple[ModelContainer, ...] = Field((), strict=False)
    """Containers by model; the others have defaults."""

    def node_of(self, accelerator: str, type_name: str) -> NodeEntry:
        """Return the nodes of an accelerator: its own entry, that of its type, or the default."""
        entries = {entry.accelerator: entry for entry in self.nodes}
        return entries.get(accelerator) or entries.get(type_name) or default_nodes(type_name)

    def model_of(self, name: str) -> ModelContainer:
        """Return the container of a model; by default it is empty."""
        return next((entry for entry in self.models if entry.model == name), ModelContainer(model=name))

    def nodes_of(self, accelerator: str, type_name: str, cards: int) -> int:
        """Return the number of nodes of a replica on a number of cards, the same number on each node."""
        most = self.node_of(accelerator, type_name).cards
        if most is None:
            return 1
        return next(nodes for nodes in range(1, cards + 2) if nodes * most >= cards and cards % nodes == 0)


PRODUCTS = {
    "A10G": "NVIDIA-A10G", "A100": "NVIDIA-A100-SXM4-80GB", "B200": "NVIDIA-B200",
    "H100": "NVIDIA-H100-80GB-HBM3", "H200": "NVIDIA-H200", "L4": "NVIDIA-L4", "L40S": "NVIDIA-L40S",
    "T4": "Tesla-T4",
}  # fmt: skip
"""Label `nvidia.com/gpu.product` of NVIDIA's GPU feature discovery by accelerator type."""


def default_nodes(type_name: str) -> NodeEntry:
    """Return the nodes of an accelerator type that is not in the table."""
    product = PRODUCTS.get(type_name.upper())
    labels = {OWN_LABEL: label_value(type_name)} if product is None else {"nvidia.com/gpu.product": product}
    return NodeEntry(accelerator=type_name, labels=labels)


EMPTY_TABLE = ClusterTable()


def label_value(text: str) -> str:
    """Return text as the value of a label: at most 63 letters, digits, dots, hyphens and underscores."""
    allowed = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_.") else "-" for sign in text)
    return allowed[:63].strip("-_.")


def read_cluster_table(path: Path | None) -> ClusterTable:
    """Return the table in a file; an empty one without a file.

    Raises:
        SpecError: the file cannot be read, or a value is invalid.
    """
    if path is None:
        return EMPTY_TABLE
    return validated(ClusterTable, plain_value(read_text(path), str(path)), f"{path}: ")
