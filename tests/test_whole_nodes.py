"""Whole nodes: packing, numbers and costs by exhaustive search, and what plans and explanations say."""

import itertools
import json
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest
from builders import Json, accelerator, document, profile, refusal, server, service_class
from node_oracles import least_cost, node_brute_force, packs, random_node_document
from plan_faults import differences, plan_faults
from slow_cases import seeds

from optimizer import explain, find_candidates, load_system, solve, verify
from optimizer.features.nodes.fields import NodeType
from optimizer.features.nodes.packing import NodePool, indivisible_sizes
from optimizer.features.nodes.sections import node_value_sections
from optimizer.features.nodes.staying import Lot
from optimizer.features.nodes.view import packed
from optimizer.milp.pulp_solvers import PulpSession
from optimizer.plan import Plan
from optimizer.render.money import Money
from optimizer.solvers.compact import highs_session, solve_milp
from optimizer.solvers.problem import build_problem

CHAINS = [
    c for k in (1, 2, 3) for c in itertools.combinations((1, 2, 3, 4, 6, 8), k) if not [*indivisible_sizes(c)]
]


def example(nodes: list[Json] | None = None, **options: Any) -> Json:
    """Return two servers of one replica each, of one card and of four."""
    cards = [accelerator("1xH", "H", 0), accelerator("4xH", "H", 0, 4)]
    models = [profile("m", "1xH"), profile("n", "4xH")]
    classes = [service_class("gold", 1, ("m", "n"))]
    servers = [server("a", model="m"), server("b", model="n")]
    found = document(servers, cards, {}, models=models, classes=classes, **options)
    return found | {"nodes": nodes or [{"name": "p5", "type": "H", "cards": 8, "cost": "28 USD/h"}]}


@pytest.mark.few(1)
@pytest.mark.parametrize("chain", CHAINS)
def test_rows_of_levels_decide_what_packs(chain: tuple[int, ...]) -> None:
    """Nodes need not be multiples of the sizes; every multiset of up to two nodes is tried."""
    for cards in (c for m in (1, 2) for c in itertools.combinations_with_replacement(range(2, 9), m)):
        nodes = [
            NodeType(name=str(c), type="T", cards=c, cost_cents_per_h=1, max_nodes=cards.count(c))
            for c in {*cards}
        ]
        pool = NodePool("T", chain, tuple(nodes))
        if chain[-1] > pool.largest:  # documents have such replicas only as parts of whole nodes
            continue
        for counts in itertools.product(*(range(sum(cards) // size + 2) for size in chain)):
            pairs = [*zip(chain, counts, strict=True)]
            sizes = tuple(size for size, n in reversed(pairs) for _ in range(n))
            fit = packs(sizes, tuple(sorted(cards, reverse=True)))
            amounts = [pool.amounts[item] for item in pool.items]
            assert all(need <= most for need, most in zip(pool.need(pairs), amounts, strict=True)) == fit
            if fit:
                lots = Counter({Lot("s", "a", size): n for size, n in pairs if n})
                inside = packed(lots, cards)
                assert sum(inside, Counter()) == lots
                held = [sum(lot.cards * n for lot, n in each.items()) for each in inside]
                assert all(used <= most for used, most in zip(held, cards, strict=True))


def test_sums_do_not_decide_sizes_that_do_not_divide() -> None:
    assert not packs((3, 3, 2), (4, 4))


def test_cheapest_nodes_are_those_of_exhaustive_search() -> None:
    rng = random.Random(1)
    for _ in range(80):
        chain = rng.choice([each for each in CHAINS if each[-1] <= 4])
        nodes = tuple(
            node(
                f"n{i}",
                rng.randint(2, 8) if i else rng.randint(4, 8),
                rng.choice([0, 1, 2, 3.5, 5, 7]),
                rng.choice([None, 0, 1, 2]),
            )
            for i in range(rng.randint(1, 4))
        )
        sizes = tuple(sorted((rng.choice(chain) for _ in range(rng.randint(0, 5))), reverse=True))
        found = NodePool("T", chain, nodes).cheapest(NodePool("T", chain, nodes).need((n, 1) for n in sizes))
        best = least_cost(sizes, nodes)
        if best is None or found is None:
            assert found is None
            assert best is None
        else:
            assert sum(n * one.cost_cents_per_h for n, one in zip(found, nodes, strict=True)) == best


def node(name: str, cards: int, cost: float, most: int | None) -> NodeType:
    return NodeType(
        name=name, type="T", cards=cards, cost_cents_per_h=cost, max_nodes=most if cost else most or 1
    )


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", seeds(1, 149))
def test_plans_are_those_of_exhaustive_search(seed: int, mixed: bool) -> None:  # noqa: FBT001
    system = load_system(random_node_document(seed, mixed=mixed))
    best = node_brute_force(system)
    assert plan_faults(system, best) == []
    problem = build_problem(find_candidates(system))
    for session in (highs_session, partial(PulpSession, solver="CBC")):
        assert differences("compact", solve_milp(problem, session).levels, best) == []


def test_larger_replicas_take_whole_nodes() -> None:
    cards = [accelerator("16xH", "H", 0, 16), accelerator("1xH", "H", 0)]
    models = [profile("m", "16xH"), profile("n", "1xH")]
    classes = [service_class("gold", 1, ("m", "n"))]
    found = document(
        [server("a", model="m"), server("b", model="n")], cards, {}, models=models, classes=classes
    )
    system = load_system(found | {"nodes": [{"name": "p5", "type": "H", "cards": 8, "cost": 28}]})
    plan = solve(system)
    (use,) = plan.nodes
    assert (use.num_nodes, use.free_cards) == (3, 7)
    assert sorted((each.num_nodes, each.free_cards) for each in use.contents) == [(1, 7), (2, 0)]
    assert verify(plan, system) == []


def test_two_models_share_a_node() -> None:
    plan = solve(load_system(example()))
    assert plan.total_cost_cents_per_h == 2800
    (use,) = plan.nodes
    assert (use.num_nodes, use.cards, use.free_cards) == (1, 8, 3)
    (inside,) = use.contents
    assert [(one.server, one.cards) for one in inside.replicas] == [("a", 1), ("b", 4)]


@pytest.mark.parametrize("field", ["node", "numNodes", "freeCards", "costCentsPerH", "cards"])
def test_false_values_are_found(field: str) -> None:
    system = load_system(example())
    false = json.loads(solve(system).to_json())
    false["nodes"][0][field] = "half" if field == "node" else 5
    assert verify(Plan.model_validate(false), system)


def test_a_node_fewer_and_free_cards_are_explained() -> None:
    nodes = [
        {"name": "owned", "type": "H", "cards": 4, "cost": 0, "maxNodes": 1},
        {"name": "p5", "type": "H", "cards": 8, "cost": "28 USD/h"},
    ]
    owned, p5 = explain(load_system(example(nodes))).nodes
    assert (owned.num_nodes, p5.num_nodes) == (0, 1)
    assert p5.one_fewer is not None
    assert p5.one_fewer.serves == "less"
    assert [(one.server, one.num_replicas) for one in p5.free_cards] == [("a", 3)]


def test_an_unlimited_plan_has_no_value_of_a_node_fewer() -> None:
    """Without limits any number of nodes can be bought, so one fewer would cost nothing."""
    found = explain(load_system(example() | {"optimizer": {"gap": 0, "unlimited": True}}))
    assert found.nodes[0].one_fewer is None
    titles = [section.title for section in node_value_sections(found, Money.of(found.plan))]
    assert "What a node is worth" not in titles


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"count": [{"type": "H", "count": 8}]}, "give maxNodes there"),
        ({"nodes": [{"name": "p5", "type": "H", "cards": 8}]}, "give cost, or maxNodes"),
        (
            {"nodes": [{"name": "p5", "type": "H", "cards": 3, "cost": 1}]},
            "a larger replica takes whole nodes",
        ),
        ({"nodes": [{"name": "p5", "type": "T", "cards": 2, "cost": 1}]}, "no accelerator has the type 'T'"),
    ],
)
def test_contradictions_are_refused(change: Json, text: str) -> None:
    assert text in refusal(lambda: load_system(example() | change))


def test_spare_nodes_are_paid_for_and_stay_empty() -> None:
    nodes = [{"name": "p5", "type": "H", "cards": 8, "cost": "28 USD/h", "maxNodes": 2, "spareNodes": 1}]
    system = load_system(example(nodes))
    plan = solve(system)
    assert plan.total_cost_cents_per_h == 5600
    (use,) = plan.nodes
    assert (use.num_nodes, use.spare_nodes, use.cards, use.free_cards) == (2, 1, 16, 3)
    assert verify(plan, system) == []
    (explained,) = explain(system).nodes
    assert explained.without_spare is not None
    assert explained.without_spare.cost_change_cents_per_h == -2800
    text = refusal(lambda: load_system(example(nodes, budget=2700)))
    assert "is below the cost of the spare nodes" in text


def test_spare_nodes_of_no_other_node_are_paid_for() -> None:
    nodes = [
        {"name": "owned", "type": "H", "cards": 8, "cost": 0, "maxNodes": 1},
        {"name": "p5", "type": "H", "cards": 8, "cost": "28 USD/h", "spareNodes": 1},
    ]
    plan = solve(load_system(example(nodes)))
    assert [(use.num_nodes, use.spare_nodes) for use in plan.nodes] == [(1, 0), (1, 1)]
    assert plan.total_cost_cents_per_h == 2800
