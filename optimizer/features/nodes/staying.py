"""Which replicas stay on their nodes, so that all replicas of a plan fit with the fewest moves.

The numbers of replicas and nodes are given. If some replicas stay, the others fit into the remaining cards of
the nodes if and only if the rows of eq. 269 hold for these cards. So a small mixed-integer model is exact:
nodes with equal contents are a class, and a variable is the number of nodes of a class in which the same
replicas stay (eq. 271).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from optimizer.features.nodes.packing import NodePool
from optimizer.milp.model import MilpModel, ModelRows

EXACT_REPLICAS = 2_000
"""Number of replicas up to which the moves are proved to be the fewest; beyond it, within `GAP`."""
GAP = 1e-3
"""Relative gap of the number of replicas that stay, with more replicas."""
MOST_SELECTIONS = 1_000
"""Number of selections of replicas that stay on a node; with more, only the smallest replicas leave first."""
TIME_LIMIT_S = 60.0


class Lot(NamedTuple):
    """Replicas of a server on an accelerator, or parts of larger replicas that take whole nodes."""

    server: str
    accelerator: str
    cards: int
    """Number of cards in one node."""


Lots = Counter[Lot]
"""Numbers of replicas by lot."""


class LotKind(NamedTuple):
    """Replicas that need not be told apart: of one size, or of one lot if not all of them can stay."""

    cards: int
    lot: Lot | None


class NodeClass(NamedTuple):
    """Nodes of one type with equal contents."""

    node_type: int
    """Index of the node type in its pool."""
    contents: tuple[tuple[LotKind, int], ...]
    """Number of replicas of each kind, the smallest first."""

    def selections(self) -> Iterator[tuple[int, ...]]:
        """Yield numbers of replicas of each kind that can stay."""
        numbers = [n for _, n in self.contents]
        if prod(n + 1 for n in numbers) <= MOST_SELECTIONS:
            yield from product(*(range(n + 1) for n in numbers))
            return
        left = numbers
        yield tuple(left)
        for i, n in enumerate(numbers):
            for stay in reversed(range(n)):
                left = [*left[:i], stay, *left[i + 1 :]]
                yield tuple(left)


class Selection(NamedTuple):
    """Nodes of a class in which the same replicas stay."""

    of: NodeClass
    stay: tuple[int, ...]
    """Number of replicas of each kind that stay."""

    def cards(self, least: int = 0) -> int:
        """Return the cards in one node of the replicas that stay and have at least some size."""
        return sum(
            kind.cards * n
            for (kind, _), n in zip(self.of.contents, self.stay, strict=True)
            if kind.cards >= least
        )


def machine_order(machine: str) -> tuple[str, int]:
    """Return the sort key of a node's name, such as ``p5/3``: its type and its number."""
    kind, _, number = machine.rpartition("/")
    return kind, int(number)


def staying(
    pool: NodePool, running: Mapping[str, Lots], lots: Lots, counts: Sequence[int]
) -> dict[str, Lots]:
    """Return the nodes that a plan keeps, by name, with the replicas that stay on them.

    Args:
        pool: the node types.
        running: replicas that run on each node, by its name.
        lots: planned replicas, which fit into the nodes.
        counts: number of planned nodes of each type.
    """
    kind_of, names = _kinds(running, lots), [node.name for node in pool.nodes]
    classes: dict[NodeClass, list[str]] = {}
    for machine in sorted(running, key=machine_order):
        held: Counter[LotKind] = Counter()
        for lot, n in running[machine].items():
            held[kind_of[lot]] += n if lots[lot] else 0
        key = NodeClass(
            names.index(machine_order(machine)[0]), tuple(sorted((+held).items(), key=_kind_order))
        )
        classes.setdefault(key, []).append(machine)
    selections = [Selection(each, stay) for each in classes for stay in each.selections()]
    numbers = _numbers(pool, classes, selections, running, lots, counts)
    kept: dict[str, Lots] = {}
    left = {key: iter(machines) for key, machines in classes.items()}
    for selection, number in zip(selections, numbers, strict=True):
        for _ in range(number):
            machine = next(left[selection.of])
            kept[machine] = _chosen(running[machine], selection, kind_of, lots)
    for machine in sorted(running.keys() - kept.keys(), key=machine_order):  # empty nodes need no new ones
        of = names.index(machine_order(machine)[0])
        if sum(machine_order(one)[0] == names[of] for one in kept) < counts[of]:
            kept[machine] = Counter()
    return kept


def _kind_order(item: tuple[LotKind, int]) -> tuple[int, tuple[object, ...]]:
    return item[0].cards, item[0].lot or ()


def _kinds(running: Mapping[str, Lots], lots: Lots) -> dict[Lot, LotKind]:
    """Return the kind of each lot that runs."""
    total: Lots = Counter()
    for held in running.values():
        total.update(held)
    return {lot: LotKind(lot.cards, lot if 0 < lots[lot] < n else None) for lot, n in total.items()}


def _chosen(held: Lots, selection: Selection, kind_of: Mapping[Lot, LotKind], lots: Lots) -> Lots:
    """Return replicas of a node in the numbers of a selection."""
    left = {kind: n for (kind, _), n in zip(selection.of.contents, selection.stay, strict=True)}
    stay: Lots = Counter()
    for lot in sorted(lot for lot in held if lots[lot]):
        stay[lot] = min(held[lot], left.get(kind_of[lot], 0))
        left[kind_of[lot]] = left.get(kind_of[lot], 0) - stay[lot]
    return +stay


def _numbers(
    pool: NodePool,
    classes: Mapping[NodeClass, Sequence[str]],
    selections: Sequence[Selection],
    running: Mapping[str, Lots],
    lots: Lots,
    counts: Sequence[int],
) -> list[int]:
    """Return the number of nodes of each selection, so that most replicas stay, then most cards."""
    model = _model(pool, classes, selections, lots, counts)
    total = 1 + sum(lot.cards * n for lot, n in lots.items())
    from optimizer.milp.highs import HighsSession

    value = [sum(each.stay) + each.cards() / total for each in selections]
    objective = -np.array([0.0] * len(counts) + value)
    is_small = sum(map(Counter.total, running.values())) <= EXACT_REPLICAS
    run = HighsSession(model).minimise(objective, None, 0.0 if is_small else GAP, TIME_LIMIT_S)
    return [0] * len(selections) if run.x is None else run.x[len(counts) :].astype(int).tolist()


def _model(
    pool: NodePool,
    classes: Mapping[NodeClass, Sequence[str]],
    selections: Sequence[Selection],
    lots: Lots,
    counts: Sequence[int],
) -> MilpModel:
    """Return the model whose variables are the empty nodes of each type, and the nodes of each selection."""
    entries: defaultdict[object, list[tuple[int, int]]] = defaultdict(list)
    bounds: dict[object, tuple[float, float]] = {}
    for size in pool.sizes:
        bounds[size] = float(sum(lot.cards * n for lot, n in lots.items() if lot.cards >= size)), np.inf
    for t, (node, count) in enumerate(zip(pool.nodes, counts, strict=True)):
        bounds["nodes", t] = count, count
        entries["nodes", t].append((t, 1))
        for size in pool.sizes:
            entries[size].append((t, node.cards // size * size))
    for j, each in enumerate(selections, len(counts)):
        free = pool.nodes[each.of.node_type].cards - each.cards()
        entries["nodes", each.of.node_type].append((j, 1))
        entries[each.of].append((j, 1))
        bounds[each.of] = -np.inf, len(classes[each.of])
        for size in pool.sizes:
            entries[size].append((j, each.cards(size) + free // size * size))
        for (kind, _), n in zip(each.of.contents, each.stay, strict=True):
            if kind.lot and n:
                entries[kind.lot].append((j, n))
                bounds[kind.lot] = -np.inf, lots[kind.lot]
    rows = ModelRows()
    for key, of_row in entries.items():
        variables, values = zip(*of_row, strict=True)
        rows.add_one(*bounds[key], (variables, values))
    upper = np.array([*counts, *(len(classes[each.of]) for each in selections)], np.float64)
    return rows.model(upper, np.ones(len(upper), np.bool_))
