"""Replicas on known nodes: the fewest moves by exhaustive search, and what plans say about them."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import pytest
from builders import Json
from slow_cases import seeds
from test_whole_nodes import example

from optimizer import load_system, solve, verify
from optimizer.features.nodes.fields import NodeType
from optimizer.features.nodes.packing import NodePool
from optimizer.features.nodes.staying import Lot, Lots, machine_order
from optimizer.features.nodes.view import cards_of, on_nodes

CHAINS = ((1, 2, 4), (1, 4), (1, 2), (2, 4), (1, 3), (1, 2, 4, 8), (1, 3, 6))


class Case(NamedTuple):
    pool: NodePool
    running: dict[str, Lots]
    planned: Lots


def random_case(rng: random.Random) -> Case:
    """Return replicas on up to four nodes, and numbers of replicas that differ from them."""
    chain = rng.choice(CHAINS)
    lots = [Lot(f"s{i}", "a", rng.choice(chain)) for i in range(rng.randint(1, 4))]
    largest = max(lot.cards for lot in lots)
    nodes = [
        NodeType(
            name=f"n{i}",
            type="T",
            cards=rng.choice([cards for cards in (4, 5, 6, 7, 8) if cards >= largest]),
            cost_cents_per_h=rng.choice([5, 7, 9]),
            max_nodes=rng.choice([None, 3]),
        )
        for i in range(rng.choice([1, 1, 2]))
    ]
    running: dict[str, Lots] = {}
    for node in nodes:
        for number in rng.sample(range(1, 9), rng.randint(0, 3 if len(nodes) == 1 else 2)):
            held: Lots = Counter()
            for lot in rng.choices(lots, k=rng.randint(1, 4)):
                held[lot] += cards_of(held) + lot.cards <= node.cards
            running[f"{node.name}/{number}"] = +held
    now = sum(running.values(), Counter())
    planned = +Counter({lot: now[lot] + rng.choice([-2, -1, 0, 0, 1, 2]) for lot in lots})
    return Case(NodePool("T", tuple(sorted({lot.cards for lot in lots})), tuple(nodes)), running, planned)


def most_staying(case: Case, counts: Sequence[int]) -> int:
    """Return the largest number of replicas that can stay, over all nodes that are kept and all packings."""
    kept = []
    for node, count in zip(case.pool.nodes, counts, strict=True):
        mine = [one for one in case.running if machine_order(one)[0] == node.name]
        some = (n for n in range(min(len(mine), count) + 1))
        kept.append(
            [
                [(node.cards, case.running[one]) for one in chosen] + [(node.cards, Counter())] * (count - n)
                for n in some
                for chosen in itertools.combinations(mine, n)
            ]
        )
    ways = (staying_on([*itertools.chain(*way)], case.planned) for way in itertools.product(*kept))
    return max(way for way in ways if way is not None)


def staying_on(nodes: Sequence[tuple[int, Lots]], planned: Lots) -> int | None:
    order = sorted(planned, key=lambda lot: -lot.cards)

    @cache
    def best(place: int, free: tuple[int, ...]) -> int | None:
        if place == len(order):
            return 0
        lot, found = order[place], []
        for parts in divisions(planned[lot], [cards // lot.cards for cards in free]):
            left = (cards - n * lot.cards for cards, n in zip(free, parts, strict=True))
            rest = best(place + 1, tuple(left))
            if rest is not None:
                stay = (min(n, held[lot]) for n, (_, held) in zip(parts, nodes, strict=True))
                found.append(rest + sum(stay))
        return max(found, default=None)

    return best(0, tuple(cards for cards, _ in nodes))


def divisions(number: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not most:
        yield from [()] if not number else []
        return
    for n in range(min(number, most[0]) + 1):
        yield from ((n, *rest) for rest in divisions(number - n, most[1:]))


@pytest.mark.parametrize("seed", seeds(2, 58))
def test_fewest_replicas_move(seed: int) -> None:
    rng, tried, moved = random.Random(seed), 0, 0
    while tried < 10:
        case = random_case(rng)
        counts = case.pool.cheapest(case.pool.need((lot.cards, n) for lot, n in case.planned.items()))
        if counts is None or not case.running or sum(counts) > 4:
            continue
        tried += 1
        held = on_nodes(case.pool, case.planned, counts, case.running)
        assert sum((one.lots for one in held), Counter()) == case.planned
        assert [sum(one.node_type == t for one in held) for t in range(len(counts))] == [*counts]
        assert len({one.machine for one in held}) == len(held)
        assert all(cards_of(one.lots) <= case.pool.nodes[one.node_type].cards for one in held)
        stay = sum((one.lots & case.running.get(one.machine, Counter())).total() for one in held)
        assert stay == most_staying(case, counts)
        moved += stay < (case.planned & sum(case.running.values(), Counter())).total()
    assert moved


def fragmented() -> Json:
    """Return a replica of four cards that lacks a place, because those of one card are on both nodes."""
    nodes = [{"name": "p5", "type": "H", "cards": 4, "cost": "14 USD/h", "maxNodes": 2}]
    found = example(nodes)
    found["servers"][0]["currentAlloc"]["load"]["arrivalRate"] = 1000
    pools = [{"accelerator": "1xH", "numReplicas": 1, "node": f"p5/{n}"} for n in (2, 7)]
    found["servers"][0]["currentAlloc"]["pools"] = pools
    return found


def test_replicas_that_block_a_larger_one_move() -> None:
    system = load_system(fragmented())
    plan = solve(system)
    assert [(move.server, move.before, move.after) for move in plan.node_moves] == [
        ("a", "p5/7", "p5/2"),
        ("b", None, "p5/7"),
    ]
    # The share of one card is 350 cents/h on both nodes, and the transition penalty is 0.1.
    assert [move.penalty_cents_per_h for move in plan.node_moves] == [pytest.approx(70), 0]
    assert verify(plan, system) == []
    without = fragmented()
    del without["servers"][0]["currentAlloc"]["pools"]
    without["servers"][0]["currentAlloc"] |= {"accelerator": "1xH", "numReplicas": 2}
    unplaced = solve(load_system(without))
    assert (unplaced.levels, unplaced.allocations) == (plan.levels, plan.allocations)
    assert unplaced.node_moves == ()


def test_a_plan_that_is_applied_moves_nothing() -> None:
    system = load_system(fragmented())
    plan = solve(system)
    for server in system.servers.values():
        system = system.with_items(server.model_copy(update={"current": plan.allocation_of(server)}))
    again = solve(system)
    assert (again.changes, again.node_moves) == ((), ())
    assert again.nodes[0].contents == plan.nodes[0].contents
    assert (again.nodes[0].added, again.nodes[0].emptied) == ((), ())


def test_nodes_to_add_and_to_remove_are_named() -> None:
    nodes = [{"name": f"p{n}", "type": "H", "cards": n, "cost": n, "maxNodes": 2} for n in (4, 8)]
    found = example(nodes)
    found["servers"][1]["currentAlloc"]["pools"] = [
        {"accelerator": "4xH", "numReplicas": 1, "node": "p4/1"},
        {"accelerator": "4xH", "numReplicas": 1, "node": "p4/2"},
        {"accelerator": "4xH", "numReplicas": 2, "node": "p8/1"},
    ]
    four, eight = solve(load_system(found)).nodes
    assert (four.num_nodes, eight.num_nodes) == (2, 0)
    assert (four.added, four.emptied, eight.emptied) == ((), (), ("p8/1",))
    assert [contents.machines for contents in four.contents] == [("p4/2",), ("p4/1",)]
