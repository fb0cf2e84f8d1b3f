"""Contradictions of the nodes on which `currentAlloc` places replicas."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from optimizer.quantities import counted
from optimizer.schema import AllocationData, CurrentPool
from optimizer.schema.files import Part
from optimizer.schema.names import Entry, Finding
from optimizer.schema.positions import Location
from optimizer.spec.feature import Documents


class PlacedPool(NamedTuple):
    """A pool of a document whose node is stated."""

    part: Part
    at: Location
    pool: CurrentPool
    cards: int
    """Number of cards of one replica."""


def machine_faults(documents: Documents) -> Iterator[Finding]:
    """Yield the nodes of pools that have other cards, or too few."""
    nodes = documents.index.sections["nodes"]
    used: Counter[str] = Counter()
    for part, at, pool, cards in _placed_pools(documents):
        machine = str(pool.node)
        node = nodes[machine.rpartition("/")[0]].item
        kind = documents.index.accelerators[pool.accelerator].item.type
        before, used[machine] = used[machine], used[machine] + cards * pool.num_replicas
        if kind != node.type:
            text = f"{machine} has cards of {node.type}, but {pool.accelerator!r} has cards of {kind}"
            yield Finding(part, at, text)
        elif cards > node.cards:
            text = f"a replica has {cards} cards, but {machine} has {node.cards}"
            yield Finding(part, at, f"{text}; remove the node, because a larger replica takes whole nodes")
        elif before <= node.cards < used[machine]:
            text = f"{machine} has {counted(node.cards, 'card')}, but its replicas have {used[machine]}"
            yield Finding(part, at, f"{text}; correct numReplicas, or the node of some replicas")


def _placed_pools(documents: Documents) -> Iterator[PlacedPool]:
    """Yield the pools with a node; only those of the first member of a shared queue."""
    index = documents.index
    for (part, at, _), model, current in _allocations(documents):
        for i, pool in enumerate(current.pools):
            known = pool.node is not None and pool.node.rpartition("/")[0] in index.sections["nodes"]
            if known and pool.accelerator in index.accelerators:
                entry = index.profiles.get((model, pool.accelerator))
                each = index.accelerators[pool.accelerator].item.multiplicity
                cards = each * (entry.item.acc_count if entry else 1)
                yield PlacedPool(part, (*at, "currentAlloc", "pools", i, "node"), pool, cards)


def _allocations(documents: Documents) -> Iterator[tuple[Entry, str, AllocationData]]:
    """Yield each allocation with its location and model."""
    queues = set[str]()
    for entry in documents.index.servers.values():
        part, at, server = entry
        if server.shared_queue not in queues:
            yield entry, server.model, server.current
        if server.shared_queue is not None and server.current.pools:
            queues.add(server.shared_queue)
        for i, share in enumerate(server.split or ()):
            if share.current is not None:
                yield Entry(part, (*at, "split", i), share), share.model, share.current
