"""Cluster table, a file that users edit: Kubernetes nodes of accelerators, and containers of models."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from optimizer.documents import Document, Name, PositiveCount, is_none
from optimizer.schema.files import plain_value, read_text
from optimizer.schema.messages import did_you_mean, validated
from optimizer.spec.system import System

_LABEL = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
LabelKey = Annotated[str, Field(pattern=_LABEL, max_length=317)]
LabelValue = Annotated[str, Field(pattern=_VALUE)]
ResourceName = LabelKey

OWN_LABEL = "inferplan.dev/accelerator-type"
"""Node label used for accelerator types without a well-known label; its value is the accelerator type."""
NVIDIA = "nvidia.com/gpu"
"""Kubernetes resource by which pods request entire cards from NVIDIA's device plugin."""


class NodeEntry(Document):
    """Kubernetes nodes that have an accelerator."""

    accelerator: Name
    """Accelerator type, name of one accelerator (such as a MIG slice) with other nodes or resources, or
    name of a node type of the system, for workloads whose replicas the plan places on its nodes only.
    """
    labels: dict[LabelKey, LabelValue] | None = Field(None, exclude_if=is_none)
    """Labels that select the nodes; default: `nvidia.com/gpu.product` for common NVIDIA cards, and
    `inferplan.dev/accelerator-type` for all others.
    """
    resource: ResourceName = NVIDIA
    """Kubernetes resource by which a pod requests a card or a slice of one."""
    shared_resource: ResourceName | None = Field(None, alias="sharedResource", exclude_if=is_none)
    """Kubernetes resource by which a container requests its part of a card shared by MPS or time-slicing."""
    cards: PositiveCount | None = Field(None, exclude_if=is_none)
    """Cards per node; a replica with more cards becomes a LeaderWorkerSet. Default: every replica fits on a
    node.
    """


class ModelContainer(Document):
    """Container in which a model is served."""

    model: Name
    """Name of the model in the system."""
    image: str = Field("", exclude_if=lambda text: not text)
    """Image of the serving engine; default: the usual image for this kind of server."""
    source: str = Field("", exclude_if=lambda text: not text)
    """Repository or path of the weights; default: the catalogue's repository, else the model's name."""
    args: tuple[str, ...] = Field((), exclude_if=lambda args: not args, strict=False)
    """Additional command-line arguments of the serving engine."""


class ClusterTable(Document):
    """Kubernetes cluster for which manifests are written: nodes by accelerator, and containers by model."""

    nodes: tuple[NodeEntry, ...] = Field((), strict=False)
    """Nodes of accelerators; those of other accelerators have the label `inferplan.dev/accelerator-type`."""
    models: tuple[ModelContainer, ...] = Field((), strict=False)
    """Containers of models; other models have the default container."""

    def node_of(self, accelerator: str, type_name: str, node_types: Sequence[str] = ()) -> NodeEntry:
        """Return the entry of the only node type, of the accelerator, of its type, or else the default."""
        entries = {entry.accelerator: entry for entry in self.nodes}
        usual = default_nodes(type_name)
        only = entries.get(node_types[0]) if len(node_types) == 1 else None
        entry = only or entries.get(accelerator) or entries.get(type_name) or usual
        return entry if entry.labels is not None else entry.model_copy(update={"labels": usual.labels})

    def with_nodes_of(self, system: System) -> "ClusterTable":
        """Return the table with the cards of a system's largest nodes, where it does not state any."""
        largest = {pool.type: pool.largest for pool in system.node_pools}
        types = {one.name: one.type for one in system.accelerators.values()}
        stated = {entry.accelerator for entry in self.nodes}
        entries = (*self.nodes, *(default_nodes(kind) for kind in largest if kind not in stated))
        cards = [
            entry.cards or largest.get(types.get(entry.accelerator, entry.accelerator)) for entry in entries
        ]
        nodes = (entry.model_copy(update={"cards": n}) for entry, n in zip(entries, cards, strict=True))
        return self.model_copy(update={"nodes": tuple(nodes)}) if largest else self

    def unknown_names(self, system: System) -> Iterator[str]:
        """Yield a message for each entry whose accelerator or model does not exist in a system."""
        accelerators = {*system.accelerators, *(item.type for item in system.accelerators.values())}
        accelerators |= system.nodes.keys()
        models = {model for model, _ in system.profiles}
        for i, entry in enumerate(self.nodes):
            if entry.accelerator not in accelerators:
                hint = did_you_mean(entry.accelerator, accelerators)
                yield f"nodes[{i}].accelerator: {entry.accelerator!r} does not exist in the system{hint}"
            known = next((pool for pool in system.node_pools if pool.type == entry.accelerator), None)
            if known and entry.cards not in {None, known.largest}:
                text = f"the largest node of {known.type} in the system has {known.largest}"
                yield f"nodes[{i}].cards: {entry.cards}, but {text}"
        for i, item in enumerate(self.models):
            if item.model not in models:
                hint = did_you_mean(item.model, models)
                yield f"models[{i}].model: {item.model!r} does not exist in the system{hint}"

    def model_of(self, name: str) -> ModelContainer:
        """Return the entry of a model, or an entry with defaults if the table has none."""
        return next((entry for entry in self.models if entry.model == name), ModelContainer(model=name))

    def nodes_of(self, accelerator: str, type_name: str, cards: int) -> int:
        """Return the number of nodes of a replica if its cards are spread evenly over nodes."""
        most = self.node_of(accelerator, type_name).cards
        if most is None:
            return 1
        return next(nodes for nodes in range(1, cards + 2) if nodes * most >= cards and cards % nodes == 0)


PRODUCTS = {
    "A10G": "NVIDIA-A10G", "A100": "NVIDIA-A100-SXM4-80GB", "B200": "NVIDIA-B200",
    "H100": "NVIDIA-H100-80GB-HBM3", "H200": "NVIDIA-H200", "L4": "NVIDIA-L4", "L40S": "NVIDIA-L40S",
    "T4": "Tesla-T4",
}  # fmt: skip
"""Value of the node label `nvidia.com/gpu.product`, set by NVIDIA's GPU feature discovery, by accelerator
type.
"""


def default_nodes(type_name: str) -> NodeEntry:
    """Return the default entry for an accelerator type that the cluster table lacks."""
    product = PRODUCTS.get(type_name.upper())
    labels = {OWN_LABEL: label_value(type_name)} if product is None else {"nvidia.com/gpu.product": product}
    return NodeEntry(accelerator=type_name, labels=labels)


EMPTY_TABLE = ClusterTable()


def label_value(text: str) -> str:
    """Convert text to a Kubernetes label value: at most 63 letters, digits, dots, hyphens and underscores."""
    allowed = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_.") else "-" for sign in text)
    return allowed[:63].strip("-_.")


def read_cluster_table(path: Path | None) -> ClusterTable:
    """Read the cluster table from a file; None gives an empty table.

    Raises:
        SpecError: the file cannot be read, or a value is invalid.
    """
    if path is None:
        return EMPTY_TABLE
    return validated(ClusterTable, plain_value(read_text(path), str(path)), f"{path}: ")
