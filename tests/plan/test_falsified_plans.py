"""The scenarios whose values are falsified use the whole document, and `verify` names what is false."""

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from falsified import SCENARIOS, falsified, found_in, path_of, plan_of, plus, system_of, times, to, wire
from pydantic import BaseModel

from optimizer import Plan

TEXTS: list[tuple[str, str, Any, str]] = [
    # scenario, place in the plan, a false value or what is made of the true one, what verify must say
    ("greedy", "status", "optimal", "a plan of the solver 'greedy' is not 'optimal'"),
    ("fleet", "costChangeWithPenaltyCentsPerH", plus(1), "objective is .* at the level of value"),
    ("fleet", "levels.-2.bound", plus(1), "level 'value': the bound .* is above"),
    ("fleet", "allocations", lambda x: x | {"nobody": []}, "nobody: not in the system"),
    ("fleet", "allocations.kept.0.accelerator", "A", "kept: must keep B, not A"),
    ("fleet", "allocations.free.0.ttftMs", times(0.9), "allocations.free.0.ttftMs is .*, the plan"),
    (
        "fleet",
        "allocations.free.0.estimated",
        "upper",
        "allocations.free.0.estimated is absent",
    ),
    ("fleet", "unserved.1.reason", "no_target", "unserved.1.reason is 'capacity', the plan says"),
    ("running", "kept.0.numReplicas", plus(2), "5 cards of A are used, with those kept; 4 are available"),
    ("queued", "sharedQueues.q.members.b.ttftMs", times(0.9), "sharedQueues.q.members.b.ttftMs is"),
    ("shared", "sharedCards.0.mode", "whole", "shared-v: 2 replicas on a full card"),
    ("shared", "sharedCards.0.servers.0.maxArrivalRateRpm", times(0.999), "shared-v: a card carries "),
    ("robust", "reserves.0.hasReserve", False, "fails: keeps its reserve, the plan says that it does not"),
    ("robust", "limits.0.used", 1.0, "limits.0.used is 57.2, the plan says 1"),
    ("robust", "rented.0.costCentsPerH", 1.0, "rented.0.costCentsPerH is 7.2, the plan says 1"),
    ("split", "versions.chat.rollBack", False, "versions.chat.rollBack is true, the plan says false"),
    ("available", "replicaCounts", {}, "replicaCounts.a is given, the plan says absent"),
    (
        "routed",
        "routes.chat.allLargeCentsPerH",
        None,
        "routes.chat.allLargeCentsPerH is 12,600, the plan says absent",
    ),
    (
        "lengths",
        "lengthPools.a.pools.0.belowTokens",
        5,
        "lengthPools.a.pools.0.belowTokens is 1,000, the plan",
    ),
    ("lengths", "lengthPools.a.pools.0.shapes", ["docs"], "a: its pools by length must serve chat, docs"),
    ("roles", "disaggregation.a.reason", "itl", "disaggregation.a.reason is 'required', the plan says 'itl'"),
    ("cached", "caches", [], "caches is a list of 1, the plan says a list of 0"),
]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the documents in a type, and those in their fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for argument in get_args(annotation):
        yield from models_in(argument)


def used_models(here: Any) -> Iterator[type[BaseModel]]:
    """Yield the documents in a value."""
    if isinstance(here, BaseModel):
        yield type(here)
        for name in type(here).model_fields:
            yield from used_models(getattr(here, name))
    elif isinstance(here, dict | tuple):
        for value in here.values() if isinstance(here, dict) else here:
            yield from used_models(value)


@pytest.mark.slow
def test_the_scenarios_use_every_document_of_a_plan() -> None:
    """Then every field is falsified; a document that is added later needs a scenario."""
    used = {model for scenario in SCENARIOS for model in used_models(plan_of(scenario))}
    assert {*models_in(Plan)} <= used


@pytest.mark.few(1)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_true_plans_hold(scenario: str) -> None:
    assert found_in(wire(plan_of(scenario)), system_of(scenario)) == []


def test_the_scenarios_are_what_their_names_say() -> None:
    (item,) = plan_of("partial").unserved
    assert 0 < item.served_fraction < 1
    assert [item.server for item in plan_of("fleet").unserved] == ["unknown", "waiting"]
    assert [item.server for item in plan_of("fleet").changes] == ["free", "moved", "standby", "stopped"]
    assert len(plan_of("mixed").allocations["a"]) == 2
    assert plan_of("chosen batch").allocations["a"][0].max_batch < 8


@pytest.mark.parametrize(("scenario", "place", "lie", "expected"), TEXTS)
def test_a_false_value_is_named(scenario: str, place: str, lie: Any, expected: str) -> None:
    truth = wire(plan_of(scenario))
    false = falsified(truth, path_of(place), lie if callable(lie) else to(lie))
    assert false != truth
    found = found_in(false, system_of(scenario))
    assert any(re.match(expected, line) for line in found), found
