"""What each level of the choice decides, on systems small enough to work out by hand.

A server of the builders takes as many replicas as its minimum says, each on one unit unless told.
"""

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


def placed(plan: Plan) -> dict[str, tuple[str, int]]:
    """Return accelerator and replicas of every server that has any."""
    return {
        name: (pool.accelerator, pool.num_replicas)
        for name, pools in plan.allocations.items()
        for pool in pools
    }


def levels(plan: Plan) -> dict[str, float]:
    return {level.name: level.value for level in plan.levels}


GOLD_AND_FREE = [service_class("gold", 1), service_class("free", 9)]


# --- service -------------------------------------------------------------------------------------------


def test_higher_priorities_are_served_before_lower_ones() -> None:
    servers = [
        server("small", 1, replicas=3),
        server("big", 400, replicas=3, service="free"),
        server("bigger", 500, replicas=2, service="free"),
    ]
    plan = solve(system(servers, [accelerator("A")], {"A": 4}, classes=GOLD_AND_FREE))
    assert placed(plan) == {"small": ("A", 3)}  # big and bigger would carry 900 requests/min on 5 units
    assert levels(plan) == {
        "priority 1: unserved rate": 0,
        "priority 1: unserved servers": 0,
        "priority 9: unserved rate": 900,
        "priority 9: unserved servers": 2,
        "value": pytest.approx(33),  # 3 replicas × 10 cents, and 0.1 of that for starting
        "changes": 1,
    }


def test_within_a_priority_rate_precedes_the_number_of_servers() -> None:
    servers = [server("a", 40, replicas=2), server("b", 40, replicas=2), server("c", 100, replicas=4)]
    plan = solve(system(servers, [accelerator("A")], {"A": 4}))
    assert placed(plan) == {"c": ("A", 4)}


def test_at_equal_rate_more_servers_are_served_at_any_cost() -> None:
    servers = [server("a", 50, replicas=2), server("b", 50, replicas=2), server("c", 100, replicas=3)]
    plan = solve(system(servers, [accelerator("A")], {"A": 4}))
    assert placed(plan) == {"a": ("A", 2), "b": ("A", 2)}
    assert levels(plan)["priority 1: unserved servers"] == 1


def test_a_thousandth_of_a_request_a_minute_decides() -> None:
    servers = [server("a", 400.001, replicas=3), server("b", 400, replicas=2)]
    plan = solve(system(servers, [accelerator("A")], {"A": 4}))
    assert placed(plan) == {"a": ("A", 3)}
    assert levels(plan)["priority 1: unserved rate"] == pytest.approx(400)


def test_service_counts_before_value() -> None:
    dear = accelerator("A", cost=1e6)
    servers = [server("a", 0.001, replicas=1, current=running("A", 5))]
    plan = solve(system(servers, [dear], {"A": 5}))
    assert placed(plan) == {"a": ("A", 1)}  # though giving it up would save 5e6 cents/h


def test_a_throughput_target_replaces_the_rate_as_the_load() -> None:
    targets = service_class("fast", 1, tps=64)  # 64 tokens/s in answers of 64 tokens: 60 requests/min
    servers = [server("a", 500, replicas=1, service="fast"), server("b", 61, replicas=1)]
    plan = solve(system(servers, [accelerator("A")], {"A": 1}, classes=[service_class("gold"), targets]))
    assert placed(plan) == {"b": ("A", 1)}
    assert levels(plan)["priority 1: unserved rate"] == pytest.approx(60)


def test_an_idle_server_with_a_minimum_has_no_load() -> None:
    servers = [server("idle", 0, replicas=2), server("busy", 1, replicas=2)]
    plan = solve(system(servers, [accelerator("A")], {"A": 3}))
    assert placed(plan) == {"busy": ("A", 2)}
    assert levels(plan)["priority 1: unserved rate"] == 0
    assert levels(plan)["priority 1: unserved servers"] == 1
    assert not plan.complete


def test_an_idle_server_without_a_minimum_gives_up_its_replicas() -> None:
    servers = [server("idle", 0, current=running("A", 3, 30))]
    plan = solve(system(servers, [accelerator("A")], {"A": 3}))
    assert plan.allocations == {"idle": ()}
    assert plan.complete
    assert levels(plan)["value"] == pytest.approx(-27)  # 30 cents saved, 0.1 of it for stopping
    assert levels(plan)["changes"] == 1


# --- units ---------------------------------------------------------------------------------------------


def test_units_are_shared_by_all_accelerators_of_a_type() -> None:
    accelerators = [accelerator("1xA", "A", 10), accelerator("4xA", "A", 30, multiplicity=4)]
    fast = [profile("m", "1xA", count=3), profile("m", "4xA", count=2)]
    servers = [server("a", replicas=1), server("b", replicas=1)]
    plan = solve(system(servers, accelerators, {"A": 11}, models=fast))
    assert sorted(placed(plan).values()) == [("1xA", 1), ("1xA", 1)]  # 4xA takes 8 units: 8 + 3 would fit
    assert [(item.type, item.used, item.limit) for item in plan.capacity] == [("A", 6, 11)]
    plan = solve(system([server("a", replicas=3)], accelerators, {"A": 8}, models=fast))
    assert plan.unserved[0].server == "a"  # 9 units on 1xA, 24 on 4xA


def test_scarce_units_go_where_they_save_most() -> None:
    """On A both cost 10; on B the first costs 11 and the second 33: taken by name they would pay 43."""
    models = [profile("m", "A"), profile("m", "B"), profile("n", "A"), profile("n", "B", count=3)]
    servers = [server("a", replicas=1), server("b", replicas=1, model="n")]
    plan = solve(
        system(
            servers,
            [accelerator("A", cost=10), accelerator("B", cost=11)],
            {"A": 1, "B": 3},
            models=models,
            classes=[service_class("gold", models=("m", "n"))],
        )
    )
    assert placed(plan) == {"a": ("B", 1), "b": ("A", 1)}
    assert plan.total_cost_cents_per_h == pytest.approx(21)


def test_a_dearer_column_with_fewer_units_is_not_thrown_away() -> None:
    accelerators = [accelerator("A", "T", cost=1), accelerator("B", "T", cost=20)]
    servers = [server("a", replicas=1), server("b", replicas=1)]
    models = [profile("m", "A", count=4), profile("m", "B", count=1)]
    plan = solve(system(servers, accelerators, {"T": 5}, models=models))
    assert sorted(placed(plan).values()) == [("A", 1), ("B", 1)]


def test_a_huge_column_does_not_hide_one_with_fewer_units() -> None:
    """Whole numbers above 2^53 must not swallow the difference between one unit and two."""
    accelerators = [
        accelerator("cheap", "T", cost=1, multiplicity=2),
        accelerator("dear", "T", cost=2),
        accelerator("vast", "U", multiplicity=10_000),
    ]
    models = [profile("m", "cheap"), profile("m", "dear"), profile("n", "vast", count=10_000)]
    servers = [server("a", replicas=10**9, model="n"), server("b", replicas=1)]
    plan = solve(
        system(
            servers,
            accelerators,
            {"T": 1, "U": 1},
            models=models,
            classes=[service_class("gold", models=("m", "n"))],
        )
    )
    assert placed(plan) == {"b": ("dear", 1)}


@pytest.mark.parametrize("units", [{}, {"A": 0}, {"B": 100}])
def test_a_type_that_is_not_listed_has_no_units(units: dict[str, int]) -> None:
    source = document([server("a")], [accelerator("A")], units, unlimited=False)
    plan = solve(load_system(source))
    assert not plan.allocations
    assert plan.unserved[0].reason == "capacity"


def test_millions_of_units_are_counted_to_the_last_one() -> None:
    """The solver's tolerance of 1e-6 times three million units is more than one unit."""
    servers = [server("a", 2, replicas=1_500_001), server("b", 1, replicas=1_500_002)]
    accelerators = [accelerator("A", cost=0.01)]
    assert solve(system(servers, accelerators, {"A": 3_000_003})).complete
    short = solve(system(servers, accelerators, {"A": 3_000_002}))
    assert placed(short) == {"a": ("A", 1_500_001)}


# --- value ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "cost", "chosen"),
    [
        (0.1, 9, "A"),  # moving to B: 9 - 10 + 0.1 × (10 + 9) = 0.9 > 0
        (0.1, 8, "B"),  # 8 - 10 + 0.1 × 18 = -0.2 < 0
        (0.0, 9.75, "B"),
        (1.0, 0.5, "A"),  # 0.5 - 10 + 10.5 = 1
    ],
)
def test_a_server_moves_only_if_it_saves_more_than_the_penalty(
    penalty: float, cost: float, chosen: str
) -> None:
    accelerators = [accelerator("A", cost=10), accelerator("B", cost=cost)]
    servers = [server("a", replicas=1, current=running("A", 1, 10))]
    plan = solve(system(servers, accelerators, {"A": 9, "B": 9}, transitionPenalty=penalty))
    assert placed(plan) == {"a": (chosen, 1)}


def test_changing_only_replicas_costs_no_penalty() -> None:
    servers = [server("a", replicas=3, current=running("A", 1, 10))]
    plan = solve(system(servers, [accelerator("A")], {"A": 9}))
    assert levels(plan) | {"value": 20, "changes": 1} == levels(plan)


def test_a_current_cost_that_is_missing_is_recomputed() -> None:
    """With the cost of 0 that was sent, keeping A would have value 0 and the cheaper B one of 8 × 1.1."""
    accelerators = [accelerator("A", cost=10), accelerator("B", cost=2)]
    models = [profile("m", "A", count=2), profile("m", "B", count=2)]
    servers = [server("a", replicas=2, current=running("A", 2))]
    plan = solve(system(servers, accelerators, {"A": 9, "B": 9}, models=models))
    assert placed(plan) == {"a": ("B", 2)}
    assert plan.objective == pytest.approx(8 - 40 + 0.1 * 48)


def test_a_stated_current_cost_is_believed() -> None:
    servers = [server("a", replicas=2, current=running("A", 1, 7))]
    plan = solve(system(servers, [accelerator("A")], {"A": 9}))
    assert plan.objective == pytest.approx(20 - 7)


def test_an_accelerator_that_is_no_longer_sold_can_only_be_left() -> None:
    servers = [server("a", replicas=1, current=running(GONE, 3, 5))]
    plan = solve(system(servers, [accelerator("A")], {"A": 9}))
    assert placed(plan) == {"a": ("A", 1)}
    assert plan.objective == pytest.approx(10 - 5 + 0.1 * 15)


def test_unserving_a_running_server_costs_stopping_it() -> None:
    servers = [server("a", replicas=2, current=running("A", 4, 40))]
    plan = solve(system(servers, [accelerator("A")], {"A": 1}))
    assert plan.objective == pytest.approx(-40 + 0.1 * 40)
    assert plan.total_cost_cents_per_h == 0


# --- changes -------------------------------------------------------------------------------------------


def test_at_equal_value_fewer_servers_change() -> None:
    """Both need two of the three units of B; one of them runs there, and A costs the same."""
    accelerators = [accelerator("A"), accelerator("B")]
    servers = [
        server("a", replicas=2),
        server("b", replicas=2, current=running("B", 2)),
        server("c", replicas=1, current=running("B", 1)),
    ]
    plan = solve(system(servers, accelerators, {"A": 9, "B": 3}, transitionPenalty=0))
    assert placed(plan) == {"a": ("A", 2), "b": ("B", 2), "c": ("B", 1)}
    assert levels(plan)["changes"] == 1


def test_a_move_of_equal_value_is_not_made() -> None:
    accelerators = [accelerator("A"), accelerator("B")]
    for here in ("A", "B"):
        source = [server("a", replicas=1, current=running(here, 1))]
        plan = solve(system(source, accelerators, {"A": 1, "B": 1}, transitionPenalty=0))
        assert placed(plan) == {"a": (here, 1)}
        assert plan.changes == ()


@pytest.mark.parametrize(("new", "old"), [("a", "b"), ("b", "a")])
def test_at_equal_value_a_running_server_precedes_a_new_one(new: str, old: str) -> None:
    """Serving either costs 10 more than now; to stop the one and start the other is two changes."""
    servers = [server(new, replicas=2), server(old, replicas=2, current=running("A", 1))]
    plan = solve(system(servers, [accelerator("A")], {"A": 2}, transitionPenalty=0))
    assert placed(plan) == {old: ("A", 2)}
    assert levels(plan)["changes"] == 1


def test_value_counts_before_changes() -> None:
    accelerators = [accelerator("A", cost=10), accelerator("B", cost=9.99)]
    servers = [server("a", replicas=1, current=running("A", 1))]
    plan = solve(system(servers, accelerators, {"A": 1, "B": 1}, transitionPenalty=0))
    assert placed(plan) == {"a": ("B", 1)}


# --- what a server may use -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit",
    [{"keepAccelerator": True, "current": running("B", 5)}, {"accelerators": ["B"]}],
    ids=["keepAccelerator", "accelerators"],
)
def test_a_server_is_unserved_rather_than_misplaced(limit: Json) -> None:
    accelerators = [accelerator("A", cost=1), accelerator("B", cost=50)]
    there = solve(system([server("a", replicas=2, **limit)], accelerators, {"A": 9, "B": 2}))
    assert placed(there) == {"a": ("B", 2)}
    nowhere = solve(system([server("a", replicas=2, **limit)], accelerators, {"A": 9, "B": 1}))
    assert not nowhere.allocations
    assert nowhere.unserved[0].reason == "capacity"


def test_keeping_the_accelerator_needs_a_current_one() -> None:
    accelerators = [accelerator("A", cost=1), accelerator("B", cost=50)]
    plan = solve(system([server("a", keepAccelerator=True)], accelerators, {"A": 9, "B": 9}))
    assert placed(plan) == {"a": ("A", 1)}


def test_the_most_replicas_exclude_a_slow_accelerator() -> None:
    models = [profile("m", "A", alpha=100.0), profile("m", "B")]
    accelerators = [accelerator("A", cost=0.25), accelerator("B", cost=50)]
    servers = [server("a", 400, maxNumReplicas=1)]
    plan = solve(system(servers, accelerators, {"A": 99, "B": 9}, models=models))
    assert placed(plan) == {"a": ("B", 1)}
