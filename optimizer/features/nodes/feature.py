"""Whole nodes as a feature: what they do not support, and the checks of documents."""

from collections.abc import Collection, Iterator

from optimizer.features.nodes.faults import machine_faults
from optimizer.features.nodes.packing import indivisible_sizes, node_pools
from optimizer.schema.names import Finding
from optimizer.spec.feature import Documents, Feature


def _faults(documents: Documents) -> Iterator[Finding]:
    index = documents.index
    nodes = {name: entry.item for name, entry in index.sections["nodes"].items()}
    types = index.types_in_nodes
    for part, at, item in index.capacity.values():
        if item.type in types:
            text = f"cards of {item.type} exist only in nodes; remove the count, and give maxNodes there"
            yield Finding(part, (*at, "type"), text)
    yield from _accelerator_faults(documents, types)
    known = {entry.item.type for entry in index.accelerators.values()}
    for part, at, node in index.sections["nodes"].values():
        if node.type not in known:
            text = f"no accelerator has the type {node.type!r}; correct it, or add one"
            yield Finding(part, (*at, "type"), text)
    accelerators = {name: entry.item for name, entry in index.accelerators.items()}
    profiles = {key: entry.item for key, entry in index.profiles.items()}
    yield from machine_faults(documents)
    for pool in node_pools(nodes.values(), accelerators, profiles, unlimited=False):
        part, at, _ = index.sections["nodes"][pool.nodes[0].name]
        for small, large in indivisible_sizes(pool.sizes):
            text = f"replicas of {small} and of {large} cards of {pool.type} can share a node, but {small} "
            text += f"does not divide {large}; give one of them another type of cards"
            yield Finding(part, (*at, "type"), text)


def _accelerator_faults(documents: Documents, types: Collection[str]) -> Iterator[Finding]:
    """Yield the accelerators and profiles that contradict the nodes of their type."""
    index = documents.index
    nodes = [entry.item for entry in index.sections["nodes"].values()]
    largest = {kind: max(node.cards for node in nodes if node.type == kind) for kind in types}
    for part, at, item in index.accelerators.values():
        if item.type in types and item.cost_cents_per_h:
            text = f"cards of {item.type} are paid for by the node; remove the cost"
            yield Finding(part, (*at, "cost"), text)
        if item.type in types and (item.tiers or item.slice is not None):
            key = "tiers" if item.tiers else "slice"
            text = f"not planned for cards in nodes; remove it, or the nodes of {item.type}"
            yield Finding(part, (*at, key), text)
    for (_, name), (part, at, profile) in index.profiles.items():
        entry = index.accelerators.get(name)
        size = entry.item.multiplicity * profile.acc_count if entry else 0
        most = largest.get(entry.item.type, size) if entry else size
        if entry and size > most and size % most:
            text = (
                f"a replica has {size} cards, which are no whole nodes of {most} cards of {entry.item.type}"
            )
            yield Finding(part, (*at, "acc"), f"{text}; a larger replica takes whole nodes")


NODES = Feature(
    "nodes",
    section="nodes",
    refused_options={"rollout": "cards for roll-outs in nodes are not planned"},
    faults=_faults,
)
