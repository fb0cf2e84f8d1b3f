"""Work of the page: hostile documents, figures as of the commands, wide tables."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import accelerator, document, server

from optimizer import load_system, solve
from optimizer.money import cost_unit
from optimizer.render.money import Money
from optimizer.schema.samples import DESCRIPTIONS, samples
from rest_server.settings import Settings
from rest_server.web.changes import Changes
from rest_server.web.shown import in_words
from rest_server.web.work import open_text, outlook_view, plan_view, study_view

SETTINGS = Settings(solver_processes=0, max_servers=3)
ROOMY = Settings(solver_processes=0)
SMALL = document([server("s1"), server("s2")], [accelerator("A", cost=40.0)], {"A": 2})
NESTED = 20_000


ALIASES = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{f'*{before}, ' * 9}]\n" for before, name in pairwise("abcdefghijklmnop")
)


@pytest.mark.parametrize(
    "text",
    [
        ALIASES,
        "servers: !!python/object/apply:os.system ['touch hostile']",
        "[" * NESTED,
        "servers: {<<: *servers}",
        "servers: \x00",
        "servers: [{name: a}, {name: a}",
        f"servers: {'9' * 5000}",
    ],
    ids=["aliases", "object", "nested", "itself", "control", "open", "number"],
)
def test_hostile_yaml_is_a_finding(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened = open_text(text, SETTINGS)
    assert opened.base == b""
    assert opened.errors
    assert not list(tmp_path.iterdir())


def test_a_document_over_the_limits_of_the_service_is_a_finding() -> None:
    many = document([server(f"s{i}") for i in range(4)], [accelerator("A")])
    found = open_text(json.dumps(many), SETTINGS).errors[0]
    assert "limit" in found.problem
    assert "3" in found.problem


def test_figures_are_those_of_solve() -> None:
    opened = open_text(json.dumps(SMALL), SETTINGS)
    view = plan_view(opened.base, Changes(given={"load": "9", "count:A": "3"}), SETTINGS)
    more = document([server("s1", 540.0), server("s2", 540.0)], [accelerator("A", cost=40.0)], {"A": 3})
    plan = solve(load_system(more))
    assert {tile.name: tile.value for tile in view.tiles}["total cost"] == (
        Money.of(plan).text(plan.total_cost_cents_per_h)
    )
    assert json.loads(view.plan) == json.loads(plan.to_json())
    assert [(item.type, item.used, item.limit) for item in view.types] == [
        (item.type, item.used, item.limit) for item in plan.capacity
    ]


def test_every_sample_has_a_description() -> None:
    assert set(DESCRIPTIONS) == set(samples())


def test_key_figures_state_what_is_missing() -> None:
    source = document([server("s", 500, spareReplicas=1), server("t")], [accelerator("A")], {"A": 2})
    view = plan_view(open_text(json.dumps(source), SETTINGS).base, Changes(), SETTINGS)
    shown = [(tile.name, tile.value, tile.number, tile.state) for tile in view.tiles[:3]]
    assert shown == [
        ("total cost", "20.00 cents/h", 20, "ok"),
        ("served in full", "all 2 servers", 2, "ok"),
        ("have their reserve", "0 of 1 server", 0, "missed"),
    ]
    assert view.status.startswith("Every server is served in full. 1 server lacks its reserve: s. Proved: ")


@pytest.mark.slow
def test_unserved_load_has_cards_that_would_serve_it(specs: Path) -> None:
    """gpus.yaml at 2.5 times the load: five of ten servers are not served in full."""
    base = open_text((specs / "gpus.yaml").read_text("utf-8"), ROOMY).base
    changes = Changes(given={"load": "2.5"})
    view = plan_view(base, changes, ROOMY)
    outlook = outlook_view(base, changes, view.plan, ROOMY)
    assert view.shortage.startswith("Not served: ")
    assert view.shortage.endswith(" (5 servers) at 2.5 times the stated load.")
    assert outlook.shortage == f"{view.shortage} Serve all: +16 H100 +28 H200, 263.20 USD/h in total."
    assert outlook.remedy is not None
    assert outlook.remedy.changes == {"count:H100": "32", "count:H200": "44"}
    remedied = plan_view(base, Changes(given=changes.given | outlook.remedy.changes), ROOMY)
    assert remedied.shortage == ""
    assert remedied.cost == pytest.approx(263.2)
    assert [row.server for row in view.servers if not row.places] == [
        "batch-llama-3.1-70b",
        "batch-qwen3-32b",
    ]


@pytest.mark.slow
def test_typical_cost_and_what_to_measure_first_follow_the_plan(specs: Path) -> None:
    base = open_text((specs / "gpus.yaml").read_text("utf-8"), ROOMY).base
    view = plan_view(base, Changes(), ROOMY)
    assert view.answer == "129.20 USD/h at cautious token times."
    outlook = outlook_view(base, Changes(), view.plan, ROOMY)
    assert outlook.answer.startswith("129.20 USD/h, 72.80 if token times are typical")
    assert "Measure first: " in outlook.answer
    assert outlook.cost_note == "typical: 72.80 USD/h"


def test_the_service_of_two_plans_is_compared_by_priority(specs: Path) -> None:
    """gpus.yaml at 50 % more load: chat and agents in full, batch in part; 8 more H100 complete it."""
    base = open_text((specs / "gpus.yaml").read_text("utf-8"), ROOMY).base
    short, full = (
        plan_view(base, Changes(given={"load": "1.5"} | more), ROOMY) for more in ({}, {"count:H100": "24"})
    )
    assert {row.priority for row in short.servers if not row.in_full} == {3}
    assert short.tiles[0].value == "180.80 USD/h"
    costs, unit = (full.cost, short.cost), cost_unit(full.currency)
    assert in_words(full.service, short.service, costs, unit) == (
        "Against the pinned plan: 10.9 requests/s more of priority 3, 3.60 USD/h more."
    )
    assert in_words(short.service, full.service, costs[::-1], unit) == (
        "Against the pinned plan: 10.9 requests/s less of priority 3, 3.60 USD/h less."
    )
    same = in_words(short.service, short.service, (short.cost, short.cost), unit)
    assert same == "Against the pinned plan: the same service and cost."


def test_a_type_has_one_price_per_card(specs: Path) -> None:
    opened = open_text((specs / "gpus.yaml").read_text("utf-8"), ROOMY)
    assert opened.controls is not None
    prices = {(item.key, item.name, item.unit, item.original) for item in opened.controls.prices}
    assert prices == {
        ("card:A100", "A100", "USD/h", 1.8), ("card:H100", "H100", "USD/h", 3.0),
        ("card:H200", "H200", "USD/h", 3.8), ("card:L40S", "L40S", "USD/h", 0.8),
    }  # fmt: skip
    system = Changes(given={"card:H100": "2.5 USD/h"}).applied_to(load_system(json.loads(opened.base)))
    costs = {name: item.cost_cents_per_h for name, item in system.accelerators.items() if item.type == "H100"}
    assert costs == {"H100": 250.0, "2xH100": 500.0, "4xH100": 1000.0}
    source = document(
        [server("s")], [accelerator("A"), accelerator("B") | {"type": "A", "cost": 7}], {"A": 2}
    )
    opened = open_text(json.dumps(source), SETTINGS)
    assert opened.controls is not None
    assert [item.key for item in opened.controls.prices] == ["cost:A", "cost:B"]


def test_reserves_and_estimates_can_be_changed() -> None:
    changes = Changes(given={"headroom": "30", "spares": "1"})
    system = changes.applied_to(load_system(SMALL))
    assert system.options.headroom_share == pytest.approx(0.3)
    assert {item.spare_replicas for item in system.servers.values()} == {1}
    changed = Changes(given={"estimates": "middle"}).applied_to(load_system(SMALL))
    assert changed.options.estimates == "middle"


@pytest.mark.parametrize("options", [{"requests": 1}, {"unknown": 1}, {"requests": "many"}])
def test_wrong_options_of_a_study_are_named(options: dict[str, Any]) -> None:
    from optimizer.errors import InferplanError

    opened = open_text(json.dumps(SMALL), SETTINGS)
    with pytest.raises(InferplanError, match=next(iter(options))):
        study_view(opened.base, Changes(), "simulate", json.dumps(options), SETTINGS)


def test_a_wide_table_begins_with_the_verdict(specs: Path) -> None:
    """A window of 1280 points shows about eight columns of numbers."""
    opened = open_text((specs / "gpus.yaml").read_text("utf-8"), ROOMY)
    view = study_view(opened.base, Changes(), "simulate", json.dumps({"requests": 500}), ROOMY)
    headings = next(each.headings for each in view.tables if each.title.startswith("Pools"))
    assert len(headings) > 12
    assert {"within limits", "times plan", "verdict"} <= set(headings[:7])
