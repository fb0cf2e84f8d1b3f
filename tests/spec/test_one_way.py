"""A changed system equals the system of a file whose text was edited by hand, whatever the change."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from feature_fleets import random_with_routes
from slow_cases import mostly_slow

from optimizer import SpecError, System, load_system
from optimizer.spec.changes import SystemChange
from optimizer.spec.load_traces import LoadStep, with_step
from optimizer.spec.loads import with_changed_load
from optimizer.spec.system import compiled

Json = dict[str, Any]
Edit = Callable[[Json], None]
Change = Callable[[System], System]


def named(document: Json, section: str, name: str) -> Json:
    found: Json = next(item for item in document[section] if item["name"] == name)
    return found


def own_loads(document: Json) -> list[Json]:
    """Return the servers of a document that state a load."""
    routed = {route[side] for route in document.get("routes", ()) for side in ("small", "large")}
    return [item for item in document["servers"] if item["name"] not in routed]


def loads(document: Json, rng: Random) -> Iterator[tuple[Change, Edit]]:
    """Yield a new rate for every server, by name."""
    for item in own_loads(document):
        name, rate = item["name"], round(rng.uniform(1, 900), 3)
        if "deadline" in item:
            continue

        def edit(changed: Json, name: str = name, rate: float = rate) -> None:
            named(changed, "servers", name).setdefault("currentAlloc", {}).setdefault("load", {})[
                "arrivalRate"
            ] = rate

        yield lambda system, name=name, rate=rate: system.with_load(name, arrival_rate_rpm=rate), edit


def options(_: Json, rng: Random) -> Iterator[tuple[Change, Edit]]:
    """Yield new options, some of which a feature refuses."""
    for name, python, value in (
        ("heterogeneous", "heterogeneous", True),
        ("transitionPenalty", "transition_penalty", rng.uniform(0, 1)),
        ("headroomShare", "headroom_share", 0.2),
    ):

        def edit(changed: Json, name: str = name, value: object = value) -> None:
            changed.setdefault("optimizer", {})[name] = value

        yield lambda system, python=python, value=value: system.with_options(**{python: value}), edit


def targets(document: Json, _: Random) -> Iterator[tuple[Change, Edit]]:
    """Yield a new target of a model in each class."""
    for i, group in enumerate(document["serviceClasses"]):
        target = group["modelTargets"][0]

        def edit(changed: Json, i: int = i) -> None:
            changed["serviceClasses"][i]["modelTargets"][0]["slo-ttft"] = 777

        yield (
            lambda system, names=(group["name"], target["model"]): system.with_target(*names, ttft_ms=777.0),
            edit,
        )


def cards(document: Json, rng: Random) -> Iterator[tuple[Change, Edit]]:
    """Yield a new number of cards of each type."""
    for i, item in enumerate(document.get("count", ())):
        number = rng.randrange(20)

        def edit(changed: Json, i: int = i, number: int = number) -> None:
            changed["count"][i]["count"] = number

        yield lambda system, kind=item["type"], number=number: system.with_capacity({kind: number}), edit


def fields(document: Json, rng: Random) -> Iterator[tuple[Change, Edit]]:
    """Yield new fields of servers and of accelerators, some of which a feature refuses."""
    for section, name, value in (
        ("servers", "maxNumReplicas", 9),
        ("servers", "cacheHitRate", 0.25),
        ("servers", "spareReplicas", 1),
        ("servers", "keepAccelerator", True),
        ("accelerators", "cost", 123.0),
    ):
        item = rng.choice(document[section])["name"]

        def edit(
            changed: Json, section: str = section, item: str = item, name: str = name, value: object = value
        ) -> None:
            named(changed, section, item)[name] = value

        change = SystemChange(name, item, value)
        yield change.applied_to, edit


def hours(document: Json, rng: Random) -> Iterator[tuple[Change, Edit]]:
    """Yield an hour of a trace, with the loads of some servers."""
    mine = [item["name"] for item in own_loads(document) if "deadline" not in item]
    rates = {name: round(rng.uniform(1, 900), 3) for name in mine if rng.random() < 0.7}

    def edit(changed: Json) -> None:
        for name, rate in rates.items():
            named(changed, "servers", name)["currentAlloc"]["load"]["arrivalRate"] = rate

    def change(system: System) -> System:
        known = system.documented
        reported = [with_changed_load(known[n], {"arrival_rate_rpm": rate}) for n, rate in rates.items()]
        return with_step(system, LoadStep.of(system, 0.0, reported))

    yield change, edit


def outcome(made: Callable[[], System]) -> System | str:
    """Return the system, or that it is refused."""
    try:
        return made()
    except SpecError:
        return "refused"


@pytest.mark.parametrize("seed", mostly_slow(range(300), 30))
def test_a_change_equals_an_edit_of_the_text(seed: int, tmp_path: Path) -> None:
    document = random_with_routes(seed)
    system, rng = load_system(document), Random(seed)
    assert compiled(system.spec) == system
    for kind in (loads, options, targets, cards, fields, hours):
        for change, edit in kind(document, rng):
            edited = deepcopy(document)
            edit(edited)
            path = tmp_path / "edited.json"
            path.write_text(json.dumps(edited))
            changed = outcome(lambda change=change: change(system))  # type: ignore[misc]
            assert changed == outcome(lambda path=path: load_system(path)), kind.__name__  # type: ignore[misc]
