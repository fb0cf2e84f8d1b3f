"""What each level of the choice decides, on systems small enough to work out by hand.

A server of the builders takes as many replicas as its minimum says, each on one unit unless told.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from builders import (
    GONE,
    Json,
    accelerator,
    document,
    profile,
    running,
    server,
    service_class,
    system,
)

from optimizer import Plan, load_system, solve

Places = dict[str, tuple[str, int]]
"""Accelerator and replicas of every server that has any."""


def placed(plan: Plan) -> Places:
    return {
        name: (pool.accelerator, pool.num_replicas)
        for name, pools in plan.allocations.items()
        for pool in pools
    }


def levels(plan: Plan) -> dict[str, float]:
    return {level.name: level.value for level in plan.levels}


RATE, SERVERS, VALUE, CHANGES = (
    "priority 1: unserved rate",
    "priority 1: unserved servers",
    "value",
    "changes",
)
GOLD_AND_FREE = [service_class("gold", 1), service_class("free", 9)]
TWO_MODELS = [service_class("gold", models=("m", "n"))]
A = [accelerator("A")]
AT_ONE_PRICE = [accelerator("A"), accelerator("B")]
CHEAP_AND_DEAR = [accelerator("A", cost=1), accelerator("B", cost=50)]
FREE_MOVES = {"transitionPenalty": 0}


class Case(NamedTuple):
    """A system, and the plan that is its best."""

    servers: list[Json]
    accelerators: list[Json]
    units: dict[str, int]
    placed: Places
    levels: dict[str, float]
    options: Mapping[str, Any] = MappingProxyType({})


CASES = {
    # Service: rate, then servers, both before cost.
    "rate before servers": Case(
        [server("a", 40, replicas=2), server("b", 40, replicas=2), server("c", 100, replicas=4)],
        A, {"A": 4}, {"c": ("A", 4)}, {RATE: 80},
    ),
    "at equal rate more servers, at any cost": Case(
        [server("a", 50, replicas=2), server("b", 50, replicas=2), server("c", 100, replicas=3)],
        A, {"A": 4}, {"a": ("A", 2), "b": ("A", 2)}, {SERVERS: 1},
    ),
    "priorities before rate and servers": Case(  # b and c would carry 900 requests/min on 5 units
        [
            server("a", 1, replicas=3), server("b", 400, replicas=3, service="free"),
            server("c", 500, replicas=2, service="free"),
        ],
        A, {"A": 4}, {"a": ("A", 3)},
        {
            RATE: 0, SERVERS: 0, "priority 9: unserved rate": 900, "priority 9: unserved servers": 2,
            VALUE: 33, CHANGES: 1,
        },
        {"classes": GOLD_AND_FREE},
    ),
    "a thousandth of a request a minute": Case(
        [server("a", 400.001, replicas=3), server("b", 400, replicas=2)],
        A, {"A": 4}, {"a": ("A", 3)}, {RATE: 400},
    ),
    "service before value": Case(  # though giving it up would save 5e6 cents/h
        [server("a", 0.001, replicas=1, current=running("A", 5))],
        [accelerator("A", cost=1e6)], {"A": 5}, {"a": ("A", 1)}, {},
    ),
    "a throughput target is the load": Case(  # 64 tokens/s in answers of 64 tokens: 60 requests/min
        [server("a", 500, replicas=1, service="fast"), server("b", 61, replicas=1)],
        A, {"A": 1}, {"b": ("A", 1)}, {RATE: 60},
        {"classes": [service_class("gold"), service_class("fast", 1, tps=64)]},
    ),
    "an idle server with a minimum has no load": Case(
        [server("idle", 0, replicas=2), server("busy", 1, replicas=2)],
        A, {"A": 3}, {"busy": ("A", 2)}, {RATE: 0, SERVERS: 1},
    ),
    "an idle server without one gives up its replicas": Case(  # 30 cents saved, 0.1 of it for stopping
        [server("idle", 0, current=running("A", 3, 30))],
        A, {"A": 3}, {}, {SERVERS: 0, VALUE: -27, CHANGES: 1},
    ),
    # Units.
    "scarce units go where they save most": Case(
        # On A both cost 10; on B the first costs 11 and the second 33: taken by name they would pay 43.
        [server("a", replicas=1), server("b", replicas=1, model="n")],
        [accelerator("A", cost=10), accelerator("B", cost=11)],
        {"A": 1, "B": 3}, {"a": ("B", 1), "b": ("A", 1)}, {VALUE: 1.1 * 21},
        {
            "models": [profile("m", "A"), profile("m", "B"), profile("n", "A"), profile("n", "B", count=3)],
            "classes": TWO_MODELS,
        },
    ),
    "whole numbers above 2^53 keep one unit from two": Case(
        [server("a", replicas=10**9, model="n"), server("b", replicas=1)],
        [
            accelerator("cheap", "T", cost=1, multiplicity=2),
            accelerator("dear", "T", cost=2),
            accelerator("vast", "U", multiplicity=10_000),
        ],
        {"T": 1, "U": 1}, {"b": ("dear", 1)}, {},
        {
            "models": [profile("m", "cheap"), profile("m", "dear"), profile("n", "vast", count=10_000)],
            "classes": TWO_MODELS,
        },
    ),
    "all accelerators of a type share its units": Case(  # 4xA takes 8 units: 8 + 3 would fit
        [server("a", replicas=1), server("b", replicas=1)],
        [accelerator("1xA", "A", 10), accelerator("4xA", "A", 30, multiplicity=4)],
        {"A": 11}, {"a": ("1xA", 1), "b": ("1xA", 1)}, {},
        {"models": [profile("m", "1xA", count=3), profile("m", "4xA", count=2)]},
    ),
    "a dearer column with fewer units is of use": Case(
        [server("a", replicas=1), server("b", replicas=1, accelerators=["A"])],
        [accelerator("A", "T", cost=1), accelerator("B", "T", cost=20)],
        {"T": 5}, {"a": ("B", 1), "b": ("A", 1)}, {},
        {"models": [profile("m", "A", count=4), profile("m", "B", count=1)]},
    ),
    # Value: the cost, less that of what runs, and the penalty of moves.
    "moving costs the penalty on both": Case(  # to B: 9 - 10 + 0.1 × (10 + 9) = 0.9 > 0
        [server("a", replicas=1, current=running("A", 1, 10))],
        [accelerator("A", cost=10), accelerator("B", cost=9)],
        {"A": 9, "B": 9}, {"a": ("A", 1)}, {VALUE: 0},
    ),
    "changing only replicas costs no penalty": Case(
        [server("a", replicas=3, current=running("A", 1, 10))],
        A, {"A": 9}, {"a": ("A", 3)}, {VALUE: 20, CHANGES: 1},
    ),
    "a missing current cost is recomputed": Case(  # with 0, keeping A would have value 0, and B 8 × 1.1
        [server("a", replicas=2, current=running("A", 2))],
        [accelerator("A", cost=10), accelerator("B", cost=2)],
        {"A": 9, "B": 9}, {"a": ("B", 2)}, {VALUE: 8 - 40 + 0.1 * 48},
        {"models": [profile("m", "A", count=2), profile("m", "B", count=2)]},
    ),
    "a stated current cost is believed": Case(
        [server("a", replicas=2, current=running("A", 1, 7))], A, {"A": 9}, {"a": ("A", 2)}, {VALUE: 20 - 7},
    ),
    "what is no longer sold can only be left": Case(
        [server("a", replicas=1, current=running(GONE, 3, 5))],
        A, {"A": 9}, {"a": ("A", 1)}, {VALUE: 10 - 5 + 0.1 * 15},
    ),
    "unserving a running server costs stopping it": Case(
        [server("a", replicas=2, current=running("A", 4, 40))], A, {"A": 1}, {}, {VALUE: -40 + 0.1 * 40},
    ),
    # Changes.
    "at equal value fewer servers change": Case(
        # Both need two of the three units of B; one of them runs there, and A costs the same.
        [
            server("a", replicas=2),
            server("b", replicas=2, current=running("B", 2)),
            server("c", replicas=1, current=running("B", 1)),
        ],
        AT_ONE_PRICE, {"A": 9, "B": 3}, {"a": ("A", 2), "b": ("B", 2), "c": ("B", 1)}, {CHANGES: 1},
        FREE_MOVES,
    ),
    "at equal value a running server precedes a new one": Case(
        [server("a", replicas=2), server("b", replicas=2, current=running("A", 1))],
        A, {"A": 2}, {"b": ("A", 2)}, {CHANGES: 1}, FREE_MOVES,
    ),
    "value before changes": Case(
        [server("a", replicas=1, current=running("A", 1))],
        [accelerator("A", cost=10), accelerator("B", cost=9.99)],
        {"A": 1, "B": 1}, {"a": ("B", 1)}, {CHANGES: 1}, FREE_MOVES,
    ),
    # What a server may use.
    "keeping the accelerator needs a current one": Case(
        [server("a", keepAccelerator=True)], CHEAP_AND_DEAR, {"A": 9, "B": 9}, {"a": ("A", 1)}, {},
    ),
    "the most replicas exclude a slow accelerator": Case(
        [server("a", 400, maxNumReplicas=1)],
        [accelerator("A", cost=0.25), accelerator("B", cost=50)],
        {"A": 99, "B": 9}, {"a": ("B", 1)}, {},
        {"models": [profile("m", "A", alpha=100.0), profile("m", "B")]},
    ),
}  # fmt: skip


@pytest.mark.few(8)
@pytest.mark.parametrize("name", CASES)
def test_plans_are_those_worked_out_by_hand(name: str) -> None:
    case = CASES[name]
    plan = solve(system(case.servers, case.accelerators, case.units, **case.options))
    assert placed(plan) == case.placed
    found = levels(plan)
    assert {level: found[level] for level in case.levels} == pytest.approx(case.levels)


@pytest.mark.parametrize("units", [{}, {"A": 0}, {"B": 100}])
def test_a_type_that_is_not_listed_has_no_units(units: dict[str, int]) -> None:
    plan = solve(load_system(document([server("a")], A, units, unlimited=False)))
    assert not plan.allocations
    assert plan.unserved[0].reason == "capacity"


def test_millions_of_units_are_counted_to_the_last_one() -> None:
    """The solver's tolerance of 1e-6 times three million units is more than one unit."""
    servers = [server("a", 2, replicas=1_500_001), server("b", 1, replicas=1_500_002)]
    accelerators = [accelerator("A", cost=0.01)]
    assert solve(system(servers, accelerators, {"A": 3_000_003})).complete
    short = solve(system(servers, accelerators, {"A": 3_000_002}))
    assert placed(short) == {"a": ("A", 1_500_001)}


@pytest.mark.parametrize(
    "limit",
    [{"keepAccelerator": True, "current": running("B", 5)}, {"accelerators": ["B"]}],
    ids=["keepAccelerator", "accelerators"],
)
def test_a_server_is_unserved_rather_than_misplaced(limit: Json) -> None:
    there = solve(system([server("a", replicas=2, **limit)], CHEAP_AND_DEAR, {"A": 9, "B": 2}))
    assert placed(there) == {"a": ("B", 2)}
    nowhere = solve(system([server("a", replicas=2, **limit)], CHEAP_AND_DEAR, {"A": 9, "B": 1}))
    assert not nowhere.allocations
    assert nowhere.unserved[0].reason == "capacity"
