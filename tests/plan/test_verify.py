"""`verify` and the second checker name lies that agree with themselves, on the plan of one small fleet."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from builders import Json
from falsified import SCENARIOS, found_in, plan_of, system_of, wire
from oracles import check_plan

from optimizer import load_system, solve, verify

Lie = Callable[[Json], None]


def told(lie: Lie) -> Json:
    """Return the plan of the fleet with a lie."""
    plan = deepcopy(wire(plan_of("fleet")))
    lie(plan)
    return plan


def moved(name: str, to: str, replicas: int) -> Lie:
    """Return a lie about a pool that keeps costs and units right."""
    costs, cards = {"A": 10.0, "B": 12.0}, {"A": 1, "B": 2}

    def lie(plan: Json) -> None:
        pool = plan["allocations"][name][0]
        used = {item["type"]: item for item in plan["capacity"]}
        used[pool["accelerator"]]["used"] -= pool["numReplicas"] * cards[pool["accelerator"]]
        used[to]["used"] += replicas * cards[to]
        plan["totalCostCentsPerH"] += replicas * costs[to] - pool["costCentsPerH"]
        pool |= {"accelerator": to, "numReplicas": replicas, "costCentsPerH": replicas * costs[to]}
        pool |= {"type": to, "cards": replicas * cards[to]}

    return lie


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (moved("free", "A", 1), "free: 1 replica, at least 2 are required"),
        (moved("standby", "A", 3), "standby: 3 replicas, at most 2 are allowed"),
        (moved("free", "A", 4), "5 cards of A are used; 4 are available"),
        (moved("standby", "B", 1), "standby: B is not in its list of accelerators"),
        (moved("kept", "A", 1), "kept: must keep B, not A"),
    ],
)
def test_consistent_lies_are_found(lie: Lie, expected: str) -> None:
    found = found_in(told(lie), system_of("fleet"))
    assert any(re.match(expected, line) for line in found), found


def test_every_spoilt_figure_is_also_seen_by_the_second_checker() -> None:
    """The checker of the oracles is no weaker, or a mistake of both would go unnoticed."""
    system = system_of("fleet")
    assert check_plan(wire(plan_of("fleet")), system) == []
    for name, value in (
        ("costCentsPerH", 1.0),
        ("arrivalRateRpm", 1.0),
        ("maxArrivalRateRpm", 1.0),
        ("maxBatch", 999),
    ):

        def lie(plan: Json, change: Json = {name: value}) -> None:  # noqa: B006  read only
            plan["allocations"]["free"][0] |= change

        assert check_plan(told(lie), system), name


def fleet(**changes: Any) -> Json:
    """Return the document of the fleet with other sections."""
    source = SCENARIOS["fleet"]
    assert isinstance(source, dict)
    return deepcopy(source) | changes


@pytest.mark.parametrize(("key", "text"), [("slo-itl", "ITL"), ("slo-ttft", "TTFT")])
def test_a_latency_over_its_target_is_named(key: str, text: str) -> None:
    """The plan is the same, but the users have become less patient."""
    source = fleet()
    source["serviceClasses"][0]["modelTargets"][0][key] = 1.0
    found = verify(plan_of("fleet"), load_system(source))
    assert any(line.startswith(f"free: {text} on ") and line.endswith("target 1 ms") for line in found), found


def test_units_are_unlimited_only_if_the_system_says_so() -> None:
    short = load_system(fleet(count=[]))
    unlimited = short.with_options(unlimited=True)
    none = [line.endswith(" 0 are available") for line in verify(plan_of("fleet"), short)]
    assert any(none)
    assert not any(line.endswith(" 0 are available") for line in verify(plan_of("fleet"), unlimited))
    assert verify(solve(unlimited), unlimited) == []
