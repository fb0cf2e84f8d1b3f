"""The plan as a document: what it says of servers, units, changes and reasons, and how it is written."""

import json

import pytest
from builders import (
    GONE,
    Json,
    accelerator,
    profile,
    running,
    server,
    service_class,
    system,
)

from optimizer import IncompletePlanError, System, solve


def mixed_fortunes() -> System:
    """Return a system with one server kept, one moved, one new, one stopped, one unserved, one idle."""
    servers = [
        server("idle", 0),
        server("kept", 60, replicas=2, current=running("A", 2)),
        server("moved", 60, replicas=1, current=running("A", 1, 50), accelerators=["B"]),
        server("new", 60, replicas=1),
        server("stopped", 0, current=running("B", 2)),
        server("unserved", 1, replicas=7, current=running(GONE, 1, 3)),
    ]
    accelerators = [accelerator("A", cost=10), accelerator("B", "T", cost=12)]
    return system(servers, accelerators, {"A": 3, "T": 2})


# --- allocations, units, changes -----------------------------------------------------------------------


def test_a_pool_says_what_runs_where_at_what_load_and_cost() -> None:
    plan = solve(system([server("a", 120, replicas=3)], [accelerator("A", cost=2.5)], {"A": 5}))
    (pool,) = plan.allocations["a"]
    assert (pool.accelerator, pool.num_replicas, pool.max_batch) == ("A", 3, 8)
    assert pool.cost_cents_per_h == 7.5
    assert pool.arrival_rate_rpm == pytest.approx(120)
    assert pool.max_arrival_rate_rpm > 3 * 400
    assert 0 < pool.utilization < 1
    assert 0 <= pool.loss < 1e-6
    # a lone request takes 10 + 0.5 ms a token, and 5 + 0.01 × 16 ms before the first; 40/min hardly meet
    assert pool.itl_ms == pytest.approx(10.5, rel=0.05)
    assert pool.ttft_ms == pytest.approx(5.16, rel=0.05)


def test_changes_say_from_where_to_where_and_at_what_cost() -> None:
    changes = solve(mixed_fortunes()).model_dump(mode="json", by_alias=True)["changes"]
    assert changes == [
        {
            "server": "moved",
            "from": [{"accelerator": "A", "numReplicas": 1}],
            "to": [{"accelerator": "B", "numReplicas": 1}],
            "costChangeCentsPerH": -38.0,
        },
        {
            "server": "new",
            "from": [],
            "to": [{"accelerator": "A", "numReplicas": 1}],
            "costChangeCentsPerH": 10.0,
        },
        {
            "server": "stopped",
            "from": [{"accelerator": "B", "numReplicas": 2}],
            "to": [],
            "costChangeCentsPerH": -24.0,
        },
        {
            "server": "unserved",
            "from": [{"accelerator": GONE, "numReplicas": 1}],
            "to": [],
            "costChangeCentsPerH": -3.0,
        },
    ]


@pytest.mark.parametrize(
    "current", [{"cost": 5.0}, {"numReplicas": 3}, {"accelerator": "A"}, {"accelerator": "A", "cost": 5.0}]
)
def test_changes_are_counted_for_incomplete_current_allocations(current: Json) -> None:
    """Whatever half an allocation is taken for, the level and the list must agree."""
    servers = [server("a", 0, current=current), server("b", 60, current=current)]
    plan = solve(system(servers, [accelerator("A")], {"A": 5}))
    assert plan.levels[-1].value == len(plan.changes)


# --- reasons -------------------------------------------------------------------------------------------


BOTH = [accelerator("A"), accelerator("B")]
SLOW = profile("m", "B", alpha=20.0)
STRICT = [service_class("gold", itl=19)]


@pytest.mark.parametrize(
    ("source", "reason", "detail"),
    [
        (
            system([server("a", replicas=3)], [accelerator("A", multiplicity=2)], {"A": 5, "B": 2}),
            "capacity",
            "3 replicas on A take 6 cards of A; 5 of 5 are left",
        ),
        (
            system([server("a", 60, replicas=3), server("b", 30, replicas=3)], BOTH[:1], {"A": 5}),
            "capacity",
            "3 replicas on A take 3 cards of A; 2 of 5 are left",
        ),
        (
            system([server("a")], BOTH[:1], classes=[service_class("gold", models=["other"])]),
            "no_target",
            "class gold has no target for m",
        ),
        (  # a lone request takes 20 + 0.5 ms a token on B, and the miss on A is larger
            system([server("a")], BOTH, classes=STRICT, models=[profile("m", "A", alpha=30.0), SLOW]),
            "slo_unattainable",
            "B: best ITL at batch 1 is 20.5 ms, target 19 ms",
        ),
        (  # 2000 over about 540 requests/min
            system([server("a", 2000, maxNumReplicas=2)], BOTH[:1]),
            "replica_limit",
            "A: needs 4 replicas, the limit is 2",
        ),
        (
            system([server("a")], BOTH[:1], models=[{"name": "m", "acc": "A"}]),
            "no_profile",
            "no token times of m on A are known",
        ),
        (
            system([server("a", accelerators=[])], BOTH, models=[profile("m", "A")]),
            "not_allowed",
            "not in the server's list of accelerators",
        ),
        (
            system([server("a")], BOTH[:1], models=[profile("m", "A", kvCapacity=79)]),
            "does_not_fit",
            "A: one request has 80 tokens, kvCapacity is 79",
        ),
        (
            system([server("a")], BOTH, classes=STRICT, models=[profile("m", "A", kvCapacity=10), SLOW]),
            "no_candidate",
            "B: best ITL at batch 1 is 20.5 ms, target 19 ms (the nearest of 2 accelerators)",
        ),
    ],
)
def test_an_unserved_server_has_its_reason_in_numbers(source: System, reason: str, detail: str) -> None:
    (item,) = solve(source).unserved
    assert (item.served_fraction, item.reason) == (0, reason)
    assert item.detail.startswith(detail)


# --- status --------------------------------------------------------------------------------------------


def test_an_incomplete_plan_raises_the_names_of_the_unserved() -> None:
    solve(system([server("a")], [accelerator("A")])).raise_for_status()
    servers = [server(f"s{i}", replicas=2) for i in range(3)]
    plan = solve(system(servers, [accelerator("A")], {"A": 2}))
    names = [item.server for item in plan.unserved]
    with pytest.raises(IncompletePlanError, match=rf"2 .* cannot be served in full: {names[0]}, {names[1]}$"):
        plan.raise_for_status()
    servers = [server(f"s{i}", replicas=2) for i in range(8)]
    plan = solve(system(servers, [accelerator("A")], {"A": 1}))
    with pytest.raises(IncompletePlanError, match=r"8 .*: s0, s1, s2, s3, s4 and 3 more$"):
        plan.raise_for_status()


# --- writing -------------------------------------------------------------------------------------------


def test_json_has_the_keys_of_the_design_in_their_order() -> None:
    """Source: docs/reference.md, the plan."""
    wire = json.loads(solve(mixed_fortunes()).to_json())
    assert list(wire) == [
        "warnings",
        "inferplanVersion",
        "documentHash",
        "status",
        "solver",
        "complete",
        "totalCostCentsPerH",
        "costChangeWithPenaltyCentsPerH",
        "boundCentsPerH",
        "gap",
        "levels",
        "allocations",
        "unserved",
        "capacity",
        "changes",
    ]
    assert list(wire["levels"][0]) == ["name", "unit", "value", "bound", "gap"]
    assert list(wire["unserved"][0])[:5] == ["server", "class", "model", "priority", "reason"]
    assert list(wire["capacity"][0]) == ["type", "limit", "used"]
    assert list(wire["changes"][0]) == ["server", "from", "to", "costChangeCentsPerH"]
    assert list(wire["allocations"]["kept"][0])[:15] == [
        "class",
        "model",
        "priority",
        "type",
        "cards",
        "accelerator",
        "numReplicas",
        "maxBatch",
        "costCentsPerH",
        "arrivalRateRpm",
        "maxArrivalRateRpm",
        "itlMs",
        "ttftMs",
        "waitMs",
        "utilization",
    ]


def test_the_reference_answer_has_the_fields_of_the_reference() -> None:
    """Source: the reference's solution as JSON, recorded; the load is the one that was sent."""
    source = mixed_fortunes()
    plan = solve(source)
    answer = plan.reference_answer(source)["allocations"]
    assert answer.keys() == plan.allocations.keys()
    (pool,) = plan.allocations["kept"]
    assert answer["kept"] == {
        "accelerator": "A",
        "numReplicas": 2,
        "maxBatch": 8,
        "cost": 20.0,
        "itlAverage": pool.itl_ms,
        "ttftAverage": pool.ttft_ms,
        "load": {"arrivalRate": 60.0, "avgInTokens": 16.0, "avgOutTokens": 64.0},
    }
    assert answer["idle"] == {
        "accelerator": "",
        "numReplicas": 0,
        "maxBatch": 0,
        "cost": 0.0,
        "itlAverage": 0.0,
        "ttftAverage": 0.0,
        "load": {"arrivalRate": 0.0, "avgInTokens": 16.0, "avgOutTokens": 64.0},
    }


def test_the_reference_answer_survives_costs_beyond_any_real_one() -> None:
    source = system([server("a", replicas=3)], [accelerator("A", cost=5e14)])
    plan = solve(source)
    assert plan.reference_answer(source)["allocations"]["a"]["cost"] == 1.5e15
