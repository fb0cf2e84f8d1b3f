"""Changes of single values: each gives the system of a document that states the value."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, server, service_class
from builders import system as made

from optimizer import SpecError, System, load_system
from optimizer.money import CENTS
from optimizer.schema import Accelerator, OptimizerOptions, Route, Server, ServiceClass
from optimizer.spec.changes import CHANGES, QUANTITIES, SystemChange

SAMPLES = (
    "small", "gpus.yaml", "robust.yaml", "routes.yaml", "shared-cards.yaml", "shared-queue.yaml",
    "versions.yaml", "multi-model-service", "batching-platform",
)  # fmt: skip
SECTIONS = {
    "servers": Server, "serviceClasses": ServiceClass, "accelerators": Accelerator, "routes": Route,
}  # fmt: skip
WRITTEN = {"load", "count", "card", "ttft", "itl", "e2e", "targets", "percentile"}


def document_of(system: System) -> dict[str, Any]:
    found: dict[str, Any] = system.to_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    return found


def has_field(model: Any, name: str) -> bool:
    return any(name == (field.alias or python) for python, field in model.model_fields.items())


def edited(system: System, name: str, item: str, value: object) -> dict[str, Any]:
    """Return the document of a system in which a value is written by hand."""
    document = document_of(system)
    if CHANGES[name].unit == CENTS and system.currency is not None:
        value = f"{Decimal(str(value)) / 100} {system.currency}/h"
    if not item and has_field(OptimizerOptions, name):
        document["optimizer"][name] = value
        return document
    for section, model in SECTIONS.items():
        found = [each for each in document.get(section, ()) if item in {"", each["name"]}]
        if has_field(model, name) and found:
            for each in found:
                each[name] = value
            break
    return document


def read(document: dict[str, Any]) -> System | str:
    """Return the system of a document, or why there is none."""
    try:
        return load_system(document)
    except SpecError:
        return "refused"


def changed(system: System, change: SystemChange) -> System | str:
    try:
        return change.applied_to(system)
    except SpecError:
        return "refused"


def derived_changes(system: System) -> Iterator[SystemChange]:
    for name in (name for name in QUANTITIES if name not in WRITTEN):
        known = CHANGES[name]
        items = [*known.items(system)[:2], *([] if known.needs_item else [""])]
        for item in items:
            for value in (1, 2, 700) if known.whole else (0.25, 0.9, 150.0):
                yield SystemChange(name, item, value)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_derived_change_gives_the_system_of_a_document(sample: str, specs: Path) -> None:
    system = load_system(specs / sample)
    accepted = 0
    for change in derived_changes(system):
        expected = read(edited(system, *change))
        assert changed(system, change) == expected, change
        accepted += expected != "refused"
    assert accepted > 40


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_removed_field_is_that_of_a_document_without_it(sample: str, specs: Path) -> None:
    system = load_system(specs / sample)
    for name in (name for name in CHANGES if name not in WRITTEN):
        if CHANGES[name].needs_item or name in {"currentAlloc", "class"}:
            continue
        document = document_of(system)
        document.get("optimizer", {}).pop(name, None)
        for section, model in SECTIONS.items():
            for each in document.get(section, ()):
                if has_field(model, name):
                    each.pop(name, None)
        assert changed(system, SystemChange(name)) == read(document), name


@pytest.mark.few(3)
@pytest.mark.parametrize("sample", [*SAMPLES, "everything"])
def test_a_load_factor_multiplies_every_stated_load(sample: str, specs: Path) -> None:
    system = load_system(specs / sample)
    document = document_of(system)
    for each in document["servers"]:
        load = each.get("currentAlloc", {}).get("load", {})
        if "deadline" in each:
            each["deadline"]["requests"] *= 1.5
            load.pop("arrivalRate", None)
        elif load.get("arrivalRate"):
            load["arrivalRate"] *= 1.5
    for each in document.get("routes", ()):
        each["arrivalRate"] *= 1.5
    scaled = SystemChange("load", value=1.5).applied_to(system)
    assert json.loads(scaled.to_spec().to_json()) == json.loads(load_system(document).to_spec().to_json())


def with_written_values(system: System, kind: str, place: str) -> dict[str, Any]:
    """Return a document with 7 cards of a type at 120 cents each, and with other targets."""
    document = document_of(system)
    rows = {item["type"]: item for item in document["count"]}
    rows.setdefault(kind, {"type": kind})["count"] = 7
    document["count"] = [*rows.values()]
    for item in (item for item in document["accelerators"] if item["type"] == kind):
        cents = 120.0 * item.get("multiplicity", 1)
        item["cost"] = cents if system.currency is None else f"{cents / 100:.2f} {system.currency}/h"
    for group in document["serviceClasses"]:
        for target in group.get("modelTargets", ()):
            if f"{group['name']}/{target['model']}" == place:
                target["slo-itl"] = 33.0
            halved = target.keys() & {"slo-ttft", "slo-itl", "slo-e2e"}
            target.update({latency: 0.5 * target[latency] for latency in halved}, percentile=95.0)
            target.pop("goodputShare", None)
    return document


@pytest.mark.few(2)
@pytest.mark.parametrize("sample", SAMPLES)
def test_targets_counts_and_card_prices_are_those_of_documents(sample: str, specs: Path) -> None:
    system = load_system(specs / sample)
    kind = min(item.type for item in system.accelerators.values())
    place = CHANGES["ttft"].items(system)[0]
    changes = [
        SystemChange("count", kind, 7), SystemChange("card", kind, 120.0), SystemChange("itl", place, 33.0),
        SystemChange("targets", value=0.5), SystemChange("percentile", value=95.0),
    ]  # fmt: skip
    expected, found = read(with_written_values(system, kind, place)), system
    try:
        for change in changes:
            found = change.applied_to(found)
    except SpecError:
        assert expected == "refused"
    else:
        assert found == expected


def test_state_outside_documents_is_kept(specs: Path) -> None:
    system = load_system(specs / "small").with_rate_factors({("Free-llama_13b", "G2"): 0.5})
    system = system.with_kept({("Free-llama_13b", "G2"): 2})
    found = SystemChange("spareReplicas", value=1).applied_to(system)
    assert (found.rate_factors, found.kept) == (system.rate_factors, system.kept)
    assert SystemChange("spareReplicas").applied_to(system) is system


def test_a_budget_in_a_currency_is_changed_and_removed() -> None:
    cards = [accelerator("A") | {"cost": "0.40 USD/h"}]
    system = made([server("a")], cards, budget="0.50 USD/h")
    found = SystemChange("budget", value="0.60 USD/h").applied_to(system)
    assert str(found.options.budget_cents_per_h) == "0.60 USD/h"
    assert SystemChange("budget", value=60.0).applied_to(system) == found
    assert SystemChange("budget").applied_to(system).options.budget_cents_per_h is None


def test_headroom_is_an_option_or_that_of_one_item() -> None:
    classes = [service_class("gold") | {"headroomShare": 0.3}]
    system = made([server("a"), server("b", headroomShare=0.1)], [accelerator("A")], classes=classes)
    found = SystemChange("headroomShare", value=0.2).applied_to(system)
    assert found.options.headroom_share == 0.2
    assert found.servers["b"].headroom_share == 0.1
    of_one, of_class = (SystemChange("headroomShare", name, 0.5).applied_to(system) for name in ("a", "gold"))
    assert of_one.servers["a"].headroom_share == of_class.service_classes["gold"].headroom_share == 0.5
    none = SystemChange("headroomShare").applied_to(found)
    assert (none.options.headroom_share, none.servers["b"].headroom_share) == (0.0, None)
    assert none.service_classes["gold"].headroom_share is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (SystemChange("laod", "", 1.0), "change: 'laod' does not exist; did you mean 'load'"),
        (SystemChange("count", "", 1), "name an item, count:A"),
        (SystemChange("count", "B", 1), "item of count: 'B' does not exist"),
        (SystemChange("arrivalRate", "", 1.0), "name an item; the system has none"),
        (SystemChange("headroomShare", "", 11.0), "headroomShare: must be at most 10"),
        (
            SystemChange("percentile", "", 100),
            r"serviceClasses.*modelTargets.m.percentile: must be less",
        ),
        (SystemChange("spareReplicas", "a", -1), "servers.a.spareReplicas: must be at least 0"),
        (SystemChange("headroomShare", "", "many"), "headroomShare: 'many': give a number"),
    ],
)
def test_a_wrong_change_is_named(change: SystemChange, message: str) -> None:
    system = made([server("a")], [accelerator("A")])
    with pytest.raises(SpecError, match=message):
        change.applied_to(system)
