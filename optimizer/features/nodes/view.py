"""Nodes of a plan: their numbers and cost, and where each replica lies."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple

from optimizer.arrays import totals
from optimizer.features.nodes.packing import MOST_CARDS, NodePool
from optimizer.features.nodes.staying import Lot, Lots, machine_order, staying
from optimizer.features.nodes.uses import NodeContents, NodeMove, NodeReplicas, NodeUse
from optimizer.limits.limit import PlacedReplicas
from optimizer.spec.placed import PlacedUnits
from optimizer.spec.system import System


class NodePlacement(NamedTuple):
    """Nodes of a plan, and the replicas that move, start or stop."""

    uses: tuple[NodeUse, ...]
    moves: tuple[NodeMove, ...]


class Held(NamedTuple):
    """A node of a plan with its replicas."""

    node_type: int
    """Index of the node type in its pool."""
    machine: str
    """Name; empty if `currentAlloc` states no nodes."""
    lots: Lots


def node_placement(system: System, units: PlacedUnits, kept: PlacedUnits) -> NodePlacement:
    """Return the nodes of each type for placed replicas, and for those that keep their cards in addition."""
    uses, moves = list[NodeUse](), list[NodeMove]()
    for pool in system.node_pools:
        running = running_lots(system, pool)
        held = _held(pool, _of_type(pool, units.items), _of_type(pool, kept.items), running)
        if held is not None:
            uses += _uses(pool, *held, running)
            moves += node_moves(pool, held[0], running, system.options.transition_penalty)
    return NodePlacement(tuple(uses), tuple(moves))


def running_lots(system: System, pool: NodePool) -> dict[str, Lots]:
    """Return the replicas that run on each node of a pool, by its name, as current allocations state them."""
    running: defaultdict[str, Lots] = defaultdict(Counter)
    for name, server in system.servers.items():
        for one in server.current.pools:
            kind, cards = system.units_per_replica(name, one.accelerator)
            if one.node is not None and kind == pool.type and one.num_replicas:
                running[one.node][Lot(name, one.accelerator, cards)] += one.num_replicas
    return running


def _of_type(pool: NodePool, items: Iterable[PlacedReplicas]) -> list[PlacedReplicas]:
    return [item for item in items if item.type == pool.type and item.cards]


def need_of(pool: NodePool, items: Iterable[PlacedReplicas]) -> tuple[int, ...]:
    """Return the cards of a type that replicas need at each level."""
    return pool.need((item.cards, item.replicas) for item in items if item.type == pool.type)


def _held(
    pool: NodePool,
    placed: Sequence[PlacedReplicas],
    kept: Sequence[PlacedReplicas],
    running: Mapping[str, Lots],
) -> tuple[list[Held], list[float]] | None:
    """Return the nodes with their replicas, and the numbers of nodes that are paid for; None if not known."""
    every = [*placed, *kept]
    need = need_of(pool, every)
    counts, before = pool.cheapest(need), pool.cheapest(need_of(pool, kept))
    if counts is None or max(need) > MOST_CARDS:  # more cards than all nodes have, which the limit reports
        return None
    paid = [float(n - m) for n, m in zip(counts, before or [0] * len(counts), strict=True)]
    return on_nodes(pool, lots_of(pool, every), counts, running), paid


def on_nodes(pool: NodePool, lots: Lots, counts: Sequence[int], running: Mapping[str, Lots]) -> list[Held]:
    """Return the nodes with their replicas, by node type; as few as possible of the running replicas move."""
    stay = staying(pool, running, lots, counts) if running else {}
    held = []
    for t, (node, count) in enumerate(zip(pool.nodes, counts, strict=True)):
        of_type = sorted((one for one in stay if machine_order(one)[0] == node.name), key=machine_order)
        names = (f"{node.name}/{n + 1}" for n in range(count + len(running)))
        unused = (name if running else "" for name in names if name not in running)
        held += [Held(t, name, stay[name]) for name in of_type]
        held += [
            Held(t, name, Counter()) for name, _ in zip(unused, range(count - len(of_type)), strict=False)
        ]
    rest = lots - sum((one.lots for one in held), Counter())
    free = [pool.nodes[one.node_type].cards - cards_of(one.lots) for one in held]
    return [one._replace(lots=one.lots + more) for one, more in zip(held, packed(rest, free), strict=True)]


def cards_of(lots: Lots) -> int:
    """Return the number of cards of some replicas."""
    return sum(lot.cards * n for lot, n in lots.items())


def _uses(
    pool: NodePool, held: Sequence[Held], paid: Sequence[float], running: Mapping[str, Lots]
) -> Iterator[NodeUse]:
    used = sum(cards_of(one.lots) for one in held)
    each = (float(pool.cost @ paid) + pool.spare_cost) / used if used else 0.0
    there = {one.machine for one in held}
    for t, (node, new) in enumerate(zip(pool.nodes, paid, strict=True)):
        of_type = [one for one in held if one.node_type == t]
        contents = tuple(_contents(node.cards, [*same], each) for _, same in groupby(*_by_contents(of_type)))
        gone = (name for name in running.keys() - there if machine_order(name)[0] == node.name)
        yield NodeUse(
            node=node.name,
            type=node.type,
            num_nodes=len(of_type) + node.spare_nodes,
            spare_nodes=node.spare_nodes,
            cards=(len(of_type) + node.spare_nodes) * node.cards,
            free_cards=sum(each.free_cards * each.num_nodes for each in contents),
            cost_cents_per_h=new * float(node.cost_cents_per_h) + node.spare_cents_per_h,
            contents=contents,
            added=tuple(one.machine for one in of_type if running and one.machine not in running),
            emptied=tuple(sorted(gone, key=machine_order)),
        )


def lots_of(pool: NodePool, items: Iterable[PlacedReplicas]) -> Lots:
    """Return the replicas in nodes of a pool with their numbers; larger ones as parts of whole nodes."""
    lots: Lots = Counter()
    for item in items:
        cards = min(item.cards, pool.largest)
        lots[Lot(item.server or item.accelerator, item.accelerator, cards)] += item.replicas * (
            item.cards // cards
        )
    return lots


def packed(lots: Lots, nodes: Sequence[int]) -> list[Lots]:
    """Return the replicas in each node, given the free cards of each node.

    The largest replicas are placed first, each in the first node of those with the least free cards that
    suffice (eq. 269).
    """
    inside: list[Lots] = [Counter() for _ in nodes]
    with_free = defaultdict[int, list[int]](list)
    for node, cards in reversed([*enumerate(nodes)]):
        with_free[cards].append(node)
    for lot, count in sorted(lots.items(), key=lambda item: (-item[0].cards, item[0])):
        for _ in range(count):
            frees = sorted(free for free, some in with_free.items() if some)
            free = frees[bisect_left(frees, lot.cards)]
            node = with_free[free].pop()
            inside[node][lot] += 1
            with_free[free - lot.cards].append(node)
    return inside


def _by_contents(held: Iterable[Held]) -> tuple[list[Held], Callable[[Held], list[tuple[Lot, int]]]]:
    """Return nodes sorted by contents, and the function that compares them."""

    def contents(one: Held) -> list[tuple[Lot, int]]:
        return sorted(one.lots.items())

    return sorted(held, key=contents), contents


def _contents(cards: int, same: Sequence[Held], card_cost: float) -> NodeContents:
    replicas = tuple(
        NodeReplicas(
            server=lot.server,
            accelerator=lot.accelerator,
            num_replicas=n,
            cards=lot.cards,
            cost_cents_per_h=card_cost * lot.cards * n * len(same),
        )
        for lot, n in sorted(same[0].lots.items())
    )
    return NodeContents(
        num_nodes=len(same),
        free_cards=cards - cards_of(same[0].lots),
        replicas=replicas,
        machines=tuple(one.machine for one in same if one.machine),
    )


def node_moves(
    pool: NodePool, held: Iterable[Held], running: Mapping[str, Lots], penalty: float
) -> Iterator[NodeMove]:
    """Yield the replicas that move, start or stop on nodes whose replicas are known, by server.

    Args:
        pool: the node types.
        held: the nodes of the plan with their replicas.
        running: replicas that run on each node, by its name.
        penalty: transition penalty, as a share of the cost of replicas on both nodes (eq. 272).
    """
    planned = {one.machine: one.lots for one in held}
    machines = sorted(running.keys() | (planned.keys() if running else ()), key=machine_order)
    gone, come = defaultdict[Lot, list[str]](list), defaultdict[Lot, list[str]](list)
    for machine in machines:
        now, then = running.get(machine, Counter()), planned.get(machine, Counter())
        for some, changed in ((gone, now - then), (come, then - now)):
            for lot, n in changed.items():
                some[lot] += [machine] * n
    price = {node.name: float(node.cost_cents_per_h) / node.cards for node in pool.nodes}
    for lot in sorted(gone.keys() | come.keys()):
        for (before, after), n in Counter(zip_longest(gone[lot], come[lot])).items():
            costs = [price[machine_order(one)[0]] for one in (before, after) if one is not None]
            yield NodeMove(
                server=lot.server,
                accelerator=lot.accelerator,
                num_replicas=n,
                before=before,
                after=after,
                penalty_cents_per_h=penalty * lot.cards * n * sum(costs) if len(costs) > 1 else 0.0,
            )


def node_shares_cents_per_h(uses: Iterable[NodeUse]) -> dict[tuple[str, str], float]:
    """Return the share in the cost of nodes [cents/h] by server and accelerator."""
    inside = (one for use in uses for item in use.contents for one in item.replicas)
    return totals(((one.server, one.accelerator), one.cost_cents_per_h) for one in inside)
