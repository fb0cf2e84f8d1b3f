"""What is always true of a plan (docs/design.md), on systems that hypothesis makes up.

Levels are compared up to 1e-6: on these systems two sums of money differ by at least 0.0125 or not at all.
"""

import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
from builders import Json, running, server, shuffled
from hypothesis import given
from hypothesis import strategies as st
from strategies import documents

from optimizer import Plan, load_system, solve

TOLERANCE = 1e-6


def plan_of(source: Mapping[str, Any], **options: Any) -> Plan:
    return solve(load_system(source), **options)


def service(plan: Plan) -> list[float]:
    """Return the levels of service in whole thousandths, to be compared in their order."""
    return [round(level.value * 1000) for level in plan.levels if level.name.startswith("priority")]


def edited(source: Json, edit: Callable[[Json], object]) -> Json:
    copy = deepcopy(source)
    edit(copy)
    return copy


def assert_no_worse(better: Plan, worse: Plan) -> None:
    """Compare two plans level by level: the first that differs decides."""
    assert service(better) <= service(worse)
    if service(better) == service(worse):
        assert better.objective <= worse.objective + TOLERANCE
        if better.objective > worse.objective - TOLERANCE:
            assert better.levels[-1].value <= worse.levels[-1].value


@pytest.mark.slow
@given(documents, st.integers(1, 8), st.integers(0, 2))
def test_more_capacity_never_makes_a_plan_worse(source: Json, more: int, place: int) -> None:
    def grow(copy: Json) -> None:
        if copy["count"]:
            copy["count"][place % len(copy["count"])]["count"] += more
        else:
            copy["count"].append({"type": "T0", "count": more})

    assert_no_worse(plan_of(edited(source, grow)), plan_of(source))


@pytest.mark.slow
@given(documents)
def test_an_unlimited_plan_is_no_worse_than_a_limited_one(source: Json) -> None:
    assert_no_worse(plan_of(source, unlimited=True), plan_of(source))


@pytest.mark.slow
@given(documents)
def test_a_type_that_is_removed_is_a_type_without_units(source: Json) -> None:
    without = edited(source, lambda copy: copy["count"].clear())
    nothing = edited(source, lambda copy: [item.update(count=0) for item in copy["count"]])
    sold = {item["type"] for item in source["accelerators"]}
    kept, removed = plan_of(nothing), plan_of(without)
    assert [item for item in kept.capacity if item.type in sold] == list(removed.capacity)
    told_apart = {"capacity": (), "unserved": (), "warnings": (), "document_hash": ""}
    assert kept.model_copy(update=told_apart) == removed.model_copy(update=told_apart)
    for there, gone in zip(kept.unserved, removed.unserved, strict=True):
        assert there.model_copy(update={"detail": ""}) == gone.model_copy(update={"detail": ""})
        if gone.reason == "capacity":
            assert "is not listed in count" in gone.detail
    assert not any(removed.allocations.values())
    assert_no_worse(plan_of(source), removed)


@pytest.mark.slow
@given(documents, st.sampled_from([0.5, 2.0, 3.0, 10.0, 1000.0]))
def test_scaling_all_costs_scales_the_objective(source: Json, factor: float) -> None:
    def scale(copy: Json) -> None:
        for item in copy["accelerators"]:
            item["cost"] *= factor
        for item in copy["servers"]:
            if "cost" in item["currentAlloc"]:
                item["currentAlloc"]["cost"] *= factor

    plan, scaled = plan_of(source), plan_of(edited(source, scale))
    assert service(scaled) == service(plan)
    assert scaled.objective == pytest.approx(factor * plan.objective, abs=TOLERANCE * factor)
    assert scaled.levels[-1].value == plan.levels[-1].value


@pytest.mark.slow
@given(documents, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(source: Json, rng: random.Random) -> None:
    assert plan_of(shuffled(source, rng)).to_json() == plan_of(source).to_json()


@pytest.mark.slow
@given(documents)
def test_only_the_order_of_the_priorities_matters(source: Json) -> None:
    def spread(copy: Json) -> None:
        for item in copy["serviceClasses"]:
            item["priority"] = {1: 5, 2: 50, 100: 99}[item["priority"]]

    def allocated(plan: Plan) -> dict[str, list[Any]]:
        return {
            name: [pool.model_copy(update={"priority": 0}) for pool in pools]
            for name, pools in plan.allocations.items()
        }

    assert allocated(plan_of(edited(source, spread))) == allocated(plan_of(source))


@pytest.mark.slow
@given(documents, st.sampled_from(["", "A0", "Z9"]))
def test_idle_servers_do_not_change_other_allocations(source: Json, here: str) -> None:
    def add(copy: Json) -> None:
        current = running(here, 2, 7.0) if here else {}
        copy["servers"].append(
            server("idle", 0, current=current, service=source["serviceClasses"][0]["name"])
        )

    plan, more = plan_of(source), plan_of(edited(source, add))
    assert more.allocations == plan.allocations | {"idle": ()}
    assert (more.complete, more.unserved) == (plan.complete, plan.unserved)
    assert more.total_cost_cents_per_h == plan.total_cost_cents_per_h


@pytest.mark.slow
@given(documents)
def test_a_plan_that_is_carried_out_is_not_changed_again(source: Json) -> None:
    """From a standing start; later a smaller current cost can make a further move worth its penalty."""

    def stop_all(copy: Json) -> None:
        for item in copy["servers"]:
            item["currentAlloc"] = {"load": item["currentAlloc"]["load"]}

    stopped = edited(source, stop_all)
    first = plan_of(stopped)

    def carry_out(copy: Json) -> None:
        for item in copy["servers"]:
            for pool in first.allocations.get(item["name"], ()):
                item["currentAlloc"] |= running(pool.accelerator, pool.num_replicas, pool.cost_cents_per_h)

    second = plan_of(edited(stopped, carry_out))
    assert second.changes == ()
    assert second.allocations == first.allocations
    assert second.objective == 0


@given(documents)
def test_a_plan_survives_being_written_and_read(source: Json) -> None:
    plan = plan_of(source)
    assert Plan.model_validate_json(plan.to_json()) == plan
