"""Lies that hide: every value of whole plans changed a little, and lies that agree with themselves."""

import json
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, random_document, server, service_class
from falsified import SCENARIOS, Place, falsified, found_in, plan_of, system_of, to, wire
from feature_fleets import random_with_routes
from mixed_oracles import random_mixed_document
from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python
from slow_cases import mostly_slow, seeds

from optimizer import Plan, System, find_candidates, load_system, solve, verify
from optimizer.features.shared_cards.turns import measure_turns

VALUE = -2
"""Place of the level of value."""
COUNTS = ("maxBatch", "numReplicas", "numCards", "perCard")
SAMPLES = sorted(path.name for path in (Path(__file__).parents[2] / "specs").iterdir())
LARGE_SAMPLES = ("batching-platform", "large", "queue-servers", "serving-fleet")
EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


# --- every value of whole plans ----------------------------------------------------------------------------


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Remember results by the bytes of the arguments: most lies leave what is measured as it is."""
    known: dict[bytes, Any] = {}

    def remembered(*arguments: Any) -> Any:
        key = pickle.dumps(arguments)
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return remembered


@pytest.fixture
def measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.features.shared_cards.view.measure_turns", once(measure_turns))


def values_in(value: Any, path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every value and every list of a document with its place; an absent one is its default."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if name == "warnings":  # they are about the document, not about the plan
                continue
            yield from values_in(getattr(value, name), (*path, field.alias or name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from values_in(item, (*path, key))
    else:
        yield path, value
        for key, item in enumerate(value) if isinstance(value, tuple) else ():
            yield from values_in(item, (*path, key))


def neighbours(value: Any) -> list[Any]:
    """Return values close to one; a proved bound of nothing and no bound are apart, too."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value - 1, value + 1]
        case float():
            return [value * 0.999 - 0.001, value * 1.001 + 0.001]
        case str():
            return [value + "x", "A", ""]
        case tuple():
            return [value[::-1], value[1:], value[:-1], value * 2] if value else [("A",)]
        case _:
            return [0, 1, "A", "upper"]


def believed(plan: Plan, system: System, *, every: bool, most: int = 10**9) -> list[str]:
    """Return the values of a plan that can be changed without being found out.

    Each value is changed to one neighbour, the next value to the next, or to every one. If there are more
    values than `most`, drawn ones are changed.
    """
    candidates, missed = find_candidates(system), []
    # The version and the hash state the origin of the plan, which does not follow from the system.
    places = [place for place in values_in(plan) if place[0][0] not in {"inferplanVersion", "documentHash"}]
    drawn = random.Random(len(places)).sample(places, min(most, len(places)))
    for number, (path, value) in enumerate(drawn):
        lies = [*false_plans(plan, path, value)]
        for other, lie in lies if every else lies[number % len(lies) :][:1] if lies else ():
            if not verify(lie, system, candidates):
                missed.append(f"{path}: {other!r} in place of {value!r}")
    return missed


def false_plans(plan: Plan, path: Place, value: Any) -> Iterator[tuple[Any, Plan]]:
    """Yield plans with a neighbour of one value, as far as they can be read."""
    for other in neighbours(value):
        if other != value:
            plain = to_jsonable_python(other, by_alias=True)
            with suppress(ValidationError):
                lie = falsified(wire(plan), path, to(plain))
                yield other, Plan.model_validate_json(json.dumps(lie))


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.usefixtures("measured_once")
def test_no_value_of_a_plan_can_be_changed(scenario: str, *, every: bool) -> None:
    most = 10**9 if every else 12
    assert believed(plan_of(scenario), system_of(scenario), every=every, most=most) == []


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.usefixtures("measured_once")
def test_no_value_of_a_samples_plan_can_be_changed(specs: Path, sample: str, *, every: bool) -> None:
    if sample in LARGE_SAMPLES and not every:
        pytest.skip("it takes long to size")
    system = load_system(specs / sample).with_options(time_limit_s=60.0)
    assert believed(solve(system), system, every=False, most=10**9 if every else 4) == []


@pytest.mark.parametrize("seed", seeds(0, 20))
@pytest.mark.usefixtures("measured_once")
def test_no_value_of_a_plan_of_features_can_be_changed(seed: int) -> None:
    system = load_system(random_with_routes(seed))
    assert believed(solve(system), system, every=False) == []


@pytest.mark.parametrize("seed", seeds(0, 12))
def test_no_value_of_a_random_plan_can_be_changed(seed: int) -> None:
    rng = random.Random(seed)
    source = random_document(rng) if seed % 2 else random_mixed_document(seed)
    system = load_system(source).with_options(
        saturation_policy=rng.choice(["None", "PriorityExhaustive", "RoundRobin"])
    )
    assert believed(solve(system), system, every=True) == []


@pytest.mark.parametrize("scenario", mostly_slow(SCENARIOS, 2))
def test_false_counts_and_batches_are_not_measured(scenario: str) -> None:
    """A batch limit of 10¹⁵ would take all memory."""
    truth, system = wire(plan_of(scenario)), system_of(scenario)
    counts = [path for path, _ in values_in(plan_of(scenario)) if path[-1] in COUNTS]
    for path in counts:
        assert found_in(falsified(truth, path, to(10**15)), system), path


# --- lies that agree with themselves -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "options", "expected"),
    [
        ("mixed", {"heterogeneous": False}, "a: 2 pools, but the options allow one accelerator per server"),
        ("mixed", {"milp_solver": False}, "a: 2 pools, but the options allow one accelerator per server"),
        ("partial", {"saturation_policy": "None"}, "last: partially served, which the options do not allow"),
        ("chosen batch", {"batch_sizing": "profile"}, "the limit is 8"),
    ],
)
def test_what_the_options_do_not_allow_is_found(
    scenario: str, options: dict[str, Any], expected: str
) -> None:
    found = verify(plan_of(scenario), system_of(scenario).with_options(**options))
    assert any(expected in line for line in found), found


def test_a_batch_that_is_not_chosen_is_found() -> None:
    chosen = system_of("chosen batch")
    found = verify(solve(chosen.with_options(batch_sizing="profile")), chosen)
    assert any("the best is" in line for line in found)


def test_unserved_servers_are_listed_in_order() -> None:
    plan = wire(plan_of("fleet"))
    assert found_in(plan | {"unserved": plan["unserved"][::-1]}, system_of("fleet"))


def test_load_cannot_be_moved_between_pools() -> None:
    """The sum stays, and both pools stay below their largest rates."""
    plan = wire(plan_of("mixed"))
    one, two = plan["allocations"]["a"]
    one["arrivalRateRpm"] -= 1
    two["arrivalRateRpm"] += 1
    assert [line for line in found_in(plan, system_of("mixed")) if "its share is" in line]


def test_an_unproved_plan_is_not_optimal() -> None:
    plan = wire(plan_of("fleet"))
    level = plan["levels"][VALUE]
    level["bound"] = level["value"] - 0.5
    level["gap"] = 0.5 / abs(level["value"])
    plan |= {"boundCentsPerH": level["bound"], "gap": level["gap"]}
    (line,) = found_in(plan, system_of("fleet"))
    assert line == "level 'value': 0.5 are not proved, so the plan is not optimal"
    assert found_in(plan | {"status": "feasible"}, system_of("fleet")) == []
    wide = system_of("fleet").with_options(gap=0.5)
    assert found_in(plan, wide) == []


def test_a_server_cannot_be_left_out_where_units_are_left_for_it() -> None:
    """All figures are those of the smaller plan, and its reason is true: but then it is not optimal."""
    source = document([server("a", replicas=2)], [accelerator("A")], {"A": 2})
    none = deepcopy(source)
    none["count"][0]["count"] = 1
    plan = wire(solve(load_system(none)))
    plan["capacity"][0]["limit"] = 2
    plan["unserved"][0] |= {
        "reason": "solver_stopped",
        "detail": "2 replicas on A take 2 cards of A; 2 are left, but the solver stopped before it used them",
    }
    (line,) = found_in(plan, load_system(source))
    assert line == "a: there are enough cards to serve it, so the plan is not optimal"
    assert found_in(plan | {"status": "feasible"}, load_system(source)) == []


def test_a_server_that_is_served_in_full_is_not_listed() -> None:
    plan = wire(plan_of("mixed")) | {"complete": False}
    plan["unserved"] = [
        {
            "server": "a",
            "class": "gold",
            "model": "m",
            "priority": 1,
            "reason": "capacity",
            "detail": "-",
            "servedFraction": 1.0,
        }
    ]
    assert "a: fully served, but listed as unserved" in found_in(plan, system_of("mixed"))


@pytest.mark.parametrize("factor", [0.999, 1.001, 1.1])
def test_a_binding_maximum_rate_is_verified_from_both_sides(factor: float) -> None:
    """Below the largest stable rate only the target tells the true rate from a false one."""
    system = load_system(document([server("a")], [accelerator("A")], classes=[service_class("gold", itl=12)]))
    plan = wire(solve(system))
    plan["allocations"]["a"][0]["maxArrivalRateRpm"] *= factor
    (line,) = found_in(plan, system)
    assert line.startswith("allocations.a.0.maxArrivalRateRpm is ")


def test_throughput_targets_cap_verified_maximum_rates() -> None:
    """64 tokens/s over 64 tokens are 60 requests/min, too, but only 0.9 of the stable rate may be used."""
    free, capped = (
        load_system(
            document([server("a")], [accelerator("A")], classes=[service_class("gold", ttft=3000, tps=tps)])
        )
        for tps in (0.0, 64.0)
    )
    lines = verify(solve(free), capped)
    assert [line for line in lines if line.startswith("allocations.a.0.maxArrivalRateRpm is ")], lines
