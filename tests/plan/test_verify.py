"""`verify` names whatever does not hold: a good plan, spoilt in one place at a time."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from builders import Json, accelerator, document, running, server
from oracles import check_plan

from optimizer import Plan, System, load_system, solve, verify

Spoil = Callable[[Json], None]


def good_system() -> System:
    """Return a system whose plan has three servers placed, one idle, and one unserved."""
    accelerators = [accelerator("A", cost=10), accelerator("B", cost=12, multiplicity=2)]
    servers = [
        server("free", 60, replicas=2),
        server("idle", 0),
        server("kept", 60, replicas=1, keepAccelerator=True, current=running("B", 1)),
        server("listed", 60, replicas=2, maxNumReplicas=3, accelerators=["A"]),
        server("waiting", 1, replicas=9),
    ]
    source = document(servers, accelerators, {"A": 4, "B": 6})
    source["serviceClasses"][0]["modelTargets"][0] |= {"slo-itl": 40, "slo-ttft": 500}
    return load_system(source)


@pytest.fixture(scope="module")
def system() -> System:
    return good_system()


@pytest.fixture(scope="module")
def good(system: System) -> Json:
    plan = solve(system)
    assert {name: len(pools) for name, pools in plan.allocations.items()} == {
        "free": 1,
        "idle": 0,
        "kept": 1,
        "listed": 1,
    }
    assert [item.server for item in plan.unserved] == ["waiting"]
    document: Json = plan.model_dump(mode="json", by_alias=True)
    return document


def spoilt(good: Json, spoil: Spoil) -> Json:
    """Return a copy of a plan with one thing changed."""
    copy: Json = deepcopy(good)
    spoil(copy)
    return copy


def as_plan(value: Any) -> Plan:
    """Return a document as a plan; reading plans from JSON is tested elsewhere."""

    def with_tuples(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: with_tuples(inner) for key, inner in item.items()}
        return tuple(map(with_tuples, item)) if isinstance(item, list) else item

    return Plan.model_validate(with_tuples(value))


def problems(good: Json, spoil: Spoil, system: System) -> list[str]:
    return verify(as_plan(spoilt(good, spoil)), system)


def change(plan: Json, name: str, **figures: Any) -> None:
    """Change figures of a server's pool."""
    plan["allocations"][name][0] |= figures


def move_listed_to_b(plan: Json) -> None:
    change(plan, "listed", accelerator="B", cost=24.0)
    plan["totalCost"] += 4.0
    for item in plan["capacity"]:
        item["used"] += {"A": -2, "B": 4}[item["type"]]


def move_kept_to_a(plan: Json) -> None:
    change(plan, "kept", accelerator="A", cost=10.0)
    plan["totalCost"] -= 2.0
    for item in plan["capacity"]:
        item["used"] += {"A": 1, "B": -2}[item["type"]]


def listed_with(replicas: int) -> Spoil:
    """Return a change of the replicas of 'listed' that keeps cost, units and latencies right."""

    def spoil(plan: Json) -> None:
        pool = plan["allocations"]["listed"][0]
        difference = replicas - pool["numReplicas"]
        change(plan, "listed", numReplicas=replicas, cost=10.0 * replicas)
        plan["totalCost"] += 10.0 * difference
        plan["capacity"][0]["used"] += difference

    return spoil


def larger_batch(plan: Json) -> None:
    """Let the profile's limit of 8 requests be 64; at this load the latencies stay as they are."""
    change(plan, "free", maxBatch=64)


def test_a_good_plan_holds(good: Json, system: System) -> None:
    assert problems(good, lambda _: None, system) == []
    assert check_plan(good, system) == []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (listed_with(1), "listed: 1 replica, at least 2 are required"),
        (listed_with(4), "listed: 4 replicas, at most 3 are allowed"),
        (listed_with(3), "A: 5 cards are used, 4 exist|listed: ITL"),
        (move_listed_to_b, "listed: B is not in its list of accelerators"),
        (move_kept_to_a, "kept: must keep B, not A"),
        (larger_batch, "free: .*batch"),
    ],
)
def test_consistent_lies_are_found(good: Json, system: System, spoil: Spoil, expected: str) -> None:
    found = problems(good, spoil, system)
    assert any(re.match(expected, line) for line in found), found


def test_every_spoilt_figure_is_also_seen_by_the_second_checker(good: Json, system: System) -> None:
    """The checker of the oracles is no weaker, or a mistake of both would go unnoticed."""
    for name, value in (("cost", 1.0), ("arrivalRate", 1.0), ("maxArrivalRate", 1.0), ("maxBatch", 999)):
        assert check_plan(spoilt(good, lambda p, n=name, v=value: change(p, "free", **{n: v})), system)  # type: ignore[misc]


@pytest.mark.parametrize(("key", "text"), [("slo-itl", "ITL"), ("slo-ttft", "TTFT")])
def test_a_latency_over_its_target_is_named(good: Json, key: str, text: str) -> None:
    """The plan is the same, but the users have become less patient."""
    source = good_system().to_spec().model_dump(mode="json", by_alias=True)
    source["serviceClasses"][0]["modelTargets"][0][key] = 1.0
    found = verify(as_plan(good), load_system(source))
    assert any(line.startswith(f"free: {text} on ") and line.endswith("target 1 ms") for line in found), found


def test_units_are_unlimited_only_if_the_system_says_so(good: Json, system: System) -> None:
    source = system.to_spec().model_dump(mode="json", by_alias=True)
    source["count"] = []
    short = load_system(source)
    assert [line for line in verify(as_plan(good), short) if "0 exist" in line]
    unlimited = short.with_options(unlimited=True)
    assert not [line for line in verify(as_plan(good), unlimited) if line.endswith(" 0 exist")]
    assert verify(solve(unlimited), unlimited) == []
