"""Warns about accelerators that are probably whole nodes, of which each replica would take all cards."""

from collections.abc import Iterator

from optimizer.arrays import grouped
from optimizer.schema.names import Finding, Index

NODE_CARDS = 8
"""Number of cards from which an accelerator is probably a node, which several replicas could share."""


def whole_machines(index: Index) -> Iterator[Finding]:
    """Yield a warning for each accelerator with many cards that is the only one of its type."""
    by_type = grouped((entry.item.type, entry) for entry in index.accelerators.values())
    for kind, (first, *others) in by_type.items():
        part, at, item = first
        if others or kind in index.types_in_nodes or item.multiplicity < NODE_CARDS:
            continue
        text = (
            f"each replica takes all {item.multiplicity} cards of {item.name!r}; if replicas can share it, "
        )
        text += f"add smaller accelerators of type {kind!r}, and state its price in nodes"
        yield Finding(part, at, text)
