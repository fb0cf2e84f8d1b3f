"""A changed system equals the system of a file whose text was edited by hand, whatever the change."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from feature_fleets import random_with_routes
from slow_cases import seeds

from optimizer import SpecError, System, load_system
from optimizer.spec.changes import SystemChange
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.system import COMPILED, compiled, with_changed_load

Json = dict[str, Any]
Change = Callable[[System], System]
Edit = tuple[Any, ...]
"""Keys, names and indices that lead to a value, and the new value."""
LOAD = ("currentAlloc", "load", "arrivalRate")


def written(document: Json, edits: list[Edit]) -> Json:
    """Return the document with new values at some places."""
    found = deepcopy(document)
    for *path, key, value in edits:
        place: Any = found
        for step in path:
            if isinstance(place, list) and isinstance(step, str):
                place = next(item for item in place if item["name"] == step)
            else:
                place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        place[key] = value
    return found


def own_loads(document: Json) -> list[str]:
    """Return the servers of a document that state an arrival rate."""
    routed = {route[side] for route in document.get("routes", ()) for side in ("small", "large")}
    return [
        item["name"] for item in document["servers"] if item["name"] not in routed and "deadline" not in item
    ]


def changes(document: Json, rng: Random) -> Iterator[tuple[Change, list[Edit]]]:
    """Yield changes of loads, options, targets, cards, fields and an hour, each with its edits."""
    for name in own_loads(document):
        rate = round(rng.uniform(1, 900), 3)
        load = partial(System.with_load, server_name=name, arrival_rate_rpm=rate)
        yield load, [("servers", name, *LOAD, rate)]
    penalty = rng.uniform(0, 1)
    yield partial(System.with_options, heterogeneous=True), [("optimizer", "heterogeneous", True)]
    yield (
        partial(System.with_options, transition_penalty=penalty),
        [("optimizer", "transitionPenalty", penalty)],
    )
    # Some features refuse it.
    yield partial(System.with_options, headroom_share=0.2), [("optimizer", "headroomShare", 0.2)]
    for i, group in enumerate(document["serviceClasses"]):
        place, model = ("serviceClasses", i, "modelTargets", 0, "slo-ttft"), group["modelTargets"][0]["model"]
        target = partial(System.with_target, service_class=group["name"], model=model, ttft_ms=777.0)
        yield target, [(*place, 777)]
    for i, item in enumerate(document.get("count", ())):
        number = rng.randrange(20)
        yield partial(System.with_capacity, units={item["type"]: number}), [("count", i, "count", number)]
    for section, field, value in (
        ("servers", "maxNumReplicas", 9),
        ("servers", "cacheHitRate", 0.25),
        ("servers", "spareReplicas", 1),
        ("servers", "keepAccelerator", True),
        ("accelerators", "cost", 123.0),
    ):
        name = rng.choice(document[section])["name"]
        yield SystemChange(field, name, value).applied_to, [(section, name, field, value)]
    rates = {name: round(rng.uniform(1, 900), 3) for name in own_loads(document) if rng.random() < 0.7}
    yield partial(at_hour, rates=rates), [("servers", name, *LOAD, rate) for name, rate in rates.items()]


def at_hour(system: System, rates: dict[str, float]) -> System:
    """Return the system at an hour of a trace that reports the rates of some servers."""
    known = system.documented
    reported = [with_changed_load(known[name], {"arrival_rate_rpm": rate}) for name, rate in rates.items()]
    return with_step(system, LoadStep.of(system, 0.0, reported))


def outcome(made: Callable[[], System]) -> System | str:
    """Return the system, or that it is refused."""
    try:
        return made()
    except SpecError:
        return "refused"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, 290))
def test_a_change_equals_an_edit_of_the_text(seed: int, tmp_path: Path) -> None:
    document, path = random_with_routes(seed), tmp_path / "edited.json"
    system = load_system(document)
    assert compiled(system.spec) == system
    for change, edits in changes(document, Random(seed)):
        path.write_text(json.dumps(written(document, edits)))
        assert outcome(partial(change, system)) == outcome(partial(load_system, path)), edits


@pytest.mark.parametrize("field", COMPILED)
def test_a_replaced_field_is_not_lost_in_silence(field: str) -> None:
    """A field that follows from the documents cannot be replaced and then follow from other documents."""
    system = load_system(random_with_routes(3))
    other: Json = {field: None}
    asked = replace(system, **other)
    with pytest.raises(ValueError, match=f"{field} of this system were replaced to answer a question"):
        asked.with_items(*system.spec.accelerators)
