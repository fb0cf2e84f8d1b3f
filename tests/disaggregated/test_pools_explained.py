"""Explanations of prefill and decode pools: each figure against plans of systems with other values."""

from functools import cache
from typing import Any

import pytest
from builders import Json
from role_oracles import document, random_role_document

from optimizer import Plan, explain, load_system, solve
from optimizer.render.explanation_sections import explanation_sections
from optimizer.studies.explanation.explanation_document import Explanation


def linked(gbps: float, rate: str = "20/s", **server: Any) -> Json:
    """Return the document of one server with another bandwidth and arrival rate."""
    source = document(itl_ms=14, **server)
    source["accelerators"][0]["linkBandwidth"] = gbps
    source["servers"][0]["currentAlloc"]["load"]["arrivalRate"] = rate
    return source


def replicas(source: Json) -> tuple[int, ...]:
    """Return the decode and prefill replicas of a plan, or those that do both."""
    return of_plan(solve(load_system(source)))


def of_plan(plan: Plan) -> tuple[int, ...]:
    return tuple(pool.num_replicas for (pool,) in plan.allocations.values())


@cache
def explained(gbps: float, sender: str = "decode") -> Explanation:
    return explain(load_system(linked(gbps, firstToken=sender)))


@pytest.mark.parametrize("sender", ["decode", pytest.param("prefill", marks=pytest.mark.slow)])
def test_below_the_least_link_the_plan_is_another(sender: str) -> None:
    (pools,) = explained(50, sender).disaggregation
    assert pools.link_gbps == 50
    assert 1 < pools.least_link_gbps < 20
    below, above = (
        replicas(linked(pools.least_link_gbps * factor, firstToken=sender)) for factor in (0.999, 1.001)
    )
    assert below != above == of_plan(explained(50, sender).plan)


@pytest.mark.slow
def test_pools_carry_no_more_than_the_stated_load() -> None:
    (pools,) = explained(50).disaggregation
    before = of_plan(explained(50).plan)
    carried = pools.max_arrival_rate_rpm
    assert pools.limited_by == "decode"
    assert pools.one_more_rpm["prefill"] == pytest.approx(carried)
    assert replicas(linked(50, f"{0.999 * carried}/min")) == before
    assert replicas(linked(50, f"{1.001 * carried}/min")) != before


def test_one_more_replica_of_the_limiting_pool_carries_more() -> None:
    (pools,) = explained(50).disaggregation
    decode, prefill = of_plan(explained(50).plan)
    more = pools.one_more_rpm["decode"]
    assert more > pools.max_arrival_rate_rpm
    assert replicas(linked(50, f"{0.999 * more}/min")) == (decode + 1, prefill)
    assert replicas(linked(50, f"{1.001 * more}/min")) != (decode + 1, prefill)


def test_one_server_has_both_of_its_pools() -> None:
    alone = explain(load_system(linked(50)), server="s")
    assert alone.disaggregation == explained(50).disaggregation
    sections = explanation_sections(alone)
    lines = [paragraph.text for section in sections for paragraph in section.text]
    assert all(any(line.startswith(f"s ({role}):") for line in lines) for role in ("prefill", "decode"))
    assert "What replicas and links are worth" in [section.title for section in sections]


@pytest.mark.slow
def test_faster_handovers_are_priced_by_other_plans() -> None:
    (pools,) = explained(50).disaggregation
    slow = 0.9 * pools.least_link_gbps
    found = {(item.field, item.factor): item.effect for item in explained(slow).handovers}
    costs = [solve(load_system(linked(gbps))).total_cost_cents_per_h for gbps in (slow, 2 * slow)]
    assert found["linkBandwidth", 2].cost_change_cents_per_h == costs[1] - costs[0] < 0
    assert found["fixedMs", 0.5].cost_change_cents_per_h <= 0


@pytest.mark.slow
def test_a_faster_link_can_serve_a_server() -> None:
    source = linked(0.25)
    source["servers"][0]["disaggregation"] = "required"
    source["count"][0]["count"] = 200
    (effect,) = (item.effect for item in explain(load_system(source)).handovers if item.factor > 1)
    (change,) = effect.service
    assert (change.server, change.load_change_rpm, change.in_full_after) == ("s", 1200, True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 12, 24])
def test_unserved_load_with_possible_pools_is_explained(seed: int) -> None:
    """Options that could serve more choose pools anew; with a pool without its partner, this was an error."""
    system = load_system(random_role_document(seed))
    explanation, mixed = explain(system), solve(system, heterogeneous=True)
    assert not explanation.plan.complete
    assert mixed.unserved == explanation.plan.unserved
    options = () if explanation.overload is None else explanation.overload.options
    assert all(option.changes == {"saturation_policy": "PriorityExhaustive"} for option in options)


@pytest.mark.slow
def test_no_card_serves_pools_that_cannot_be_linked() -> None:
    """A server that requires pools is not served by replicas that do both in what-if plans."""
    source = document("required")
    source["accelerators"][0]["linkBandwidth"] = 0
    explanation = explain(load_system(source))
    assert not explanation.plan.complete
    assert all(item.one_more is not None and not item.one_more.service for item in explanation.types)
    assert all(not item.effect.service for item in explanation.targets)
